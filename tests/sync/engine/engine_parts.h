// tests/sync/engine/engine_parts.h - the parts of an engine for a job of one rank, without a helper
// thread. The test takes the steps of the thread.
#ifndef LMDBIO_TESTS_SYNC_ENGINE_ENGINE_PARTS_H_
#define LMDBIO_TESTS_SYNC_ENGINE_ENGINE_PARTS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/engine/counter_publisher.h"
#include "lmdbio/sync/engine/executor.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/engine/task_table.h"
#include "tests/sync/rounds/scripted_transport.h"

namespace lmdbio::test {

struct EnginePartsOfOneRank {
  explicit EnginePartsOfOneRank(std::unique_ptr<sync::Collectives> given = sync::SoloCollectives())
      : collectives(std::move(given)),
        coordinator(std::move(*sync::Coordinator::Create({}, transport.job))),
        queue(std::make_shared<sync::SubmissionQueue>([] {})),
        executor(*collectives, tracer, 1 << 20, 0),
        counters(executor),
        tasks(*queue, tracer, counters) {}

  // Submits an AllReduce of floats 1, and adds it to the tasks as the helper thread does.
  sync::TaskPtr Submit(const std::string& name, size_t count = 1) {
    auto task = std::make_shared<sync::Task>();
    values.push_back(std::make_unique<std::vector<float>>(count, 1.0F));
    float* const data = values.back()->data();
    task->submission = sync::AllReduceOf(name, data, data, static_cast<int64_t>(count));
    task->queue = queue;
    if (!queue->Submit({task})) return nullptr;
    static_cast<void>(queue->Take());
    tasks.Add(task);
    return task;
  }

  ScriptedTransport transport;
  ranks::SoloHealth health;
  std::unique_ptr<sync::Collectives> collectives;
  std::unique_ptr<sync::Coordinator> coordinator;
  sync::SyncTracer tracer{nullptr};
  std::shared_ptr<sync::SubmissionQueue> queue;
  sync::Executor executor;
  sync::CounterPublisher counters;
  sync::TaskTable tasks;
  std::vector<std::unique_ptr<std::vector<float>>> values;  // [submissions]
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ENGINE_ENGINE_PARTS_H_
