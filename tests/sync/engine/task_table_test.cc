// Goal: tasks are completed once, in the order that wakes each thread as seldom as possible, and
// the name of a completed task can be used again.
#include "lmdbio/sync/engine/task_table.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/engine/engine_parts.h"

namespace lmdbio::sync {
namespace {

using test::EnginePartsOfOneRank;

std::vector<Request> RequestsOf(const std::vector<TaskPtr>& tasks) {
  std::vector<Request> requests;
  for (const TaskPtr& task : tasks) requests.push_back(task->submission.request);
  return requests;
}

TEST_CASE("Finish completes the tasks, counts them and releases their names", "[sync][tasks]") {
  EnginePartsOfOneRank parts;
  const TaskPtr a = parts.Submit("a");
  const TaskPtr b = parts.Submit("b");
  REQUIRE_FALSE(parts.Submit("a"));  // its name is taken
  REQUIRE(parts.tasks.Find(RequestsOf({a, b})) == std::vector<Task*>{a.get(), b.get()});
  parts.tasks.Finish(RequestsOf({a, b}), {});
  REQUIRE(a->is_done.load() == 1);
  REQUIRE(b->is_done.load() == 1);
  REQUIRE(parts.tasks.tasks().empty());
  REQUIRE(parts.counters.Read().tensor_count == 2);
  REQUIRE(parts.Submit("a"));
}

TEST_CASE("A tensor that this rank has not submitted has no task", "[sync][tasks]") {
  EnginePartsOfOneRank parts;
  Request other;
  other.name = "other";
  REQUIRE(parts.tasks.Find({&other, 1}) == std::vector<Task*>{nullptr});
  parts.tasks.Finish({&other, 1}, {});
  REQUIRE(parts.counters.Read().tensor_count == 0);
}

TEST_CASE("Callbacks run after the tasks without one are done and counted", "[sync][tasks]") {
  EnginePartsOfOneRank parts;
  const TaskPtr called_back = parts.Submit("a");
  const TaskPtr quiet = parts.Submit("b");
  bool was_quiet_done = false;
  uint64_t count_in_callback = 0;
  called_back->submission.callback = [&](const Status&) {
    was_quiet_done = quiet->is_done.load() == 1;
    count_in_callback = parts.counters.Read().tensor_count;
  };
  parts.tasks.Finish(RequestsOf({called_back, quiet}), {});
  REQUIRE(was_quiet_done);
  REQUIRE(count_in_callback == 2);
}

TEST_CASE("FailAll names the tensor and its number in each error", "[sync][tasks]") {
  EnginePartsOfOneRank parts;
  static_cast<void>(parts.Submit("a"));
  const TaskPtr b = parts.Submit("b");
  parts.tasks.FailAll({ErrorCode::kPeerFailed, "rank 1 is gone"});
  REQUIRE(parts.tasks.tasks().empty());
  REQUIRE_FALSE(b->status());
  REQUIRE(b->status().error().code() == ErrorCode::kPeerFailed);
  REQUIRE(b->status().error().message() == "tensor 'b' (number 1): rank 1 is gone");
}

}  // namespace
}  // namespace lmdbio::sync
