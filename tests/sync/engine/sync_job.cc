#include "tests/sync/engine/sync_job.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/ranks/launcher/launched_threads.h"

namespace lmdbio::test {

void Findings::Add(int rank, const std::string& what) {
  const std::lock_guard lock(mutex_);
  lines_.push_back(fmt::format("rank {}: {}", rank, what));
}

bool Findings::Expect(const Status& status, int rank, const std::string& what) {
  if (!status) Add(rank, what + ": " + status.error().message());
  return status.has_value();
}

std::vector<std::string> Findings::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

bool Findings::Has(const std::string& part) const {
  const auto all = lines();
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

void SyncJob::RunAndLeave(const Body& body) {
  RunAsThreadsOrLaunched(ranks, [&](ranks::Group& group) {
    sync::SyncParts parts;
    parts.log = [this, rank = group.rank()](const std::string& line) { notes.Add(rank, line); };
    if (collectives) {
      parts.collectives = [&](ranks::Health& health) { return collectives(group, health); };
    }
    auto made = sync::Synchronizer::Create(group, options, std::move(parts));
    if (!made) {
      wrong.Add(group.rank(), "Create: " + made.error().message());
      return;
    }
    body(**made);
    made->reset();
    static_cast<void>(group.Barrier());
  });
}

void SyncJob::Run(const Body& body) {
  RunAndLeave([&](sync::Synchronizer& synchronizer) {
    body(synchronizer);
    wrong.Expect(synchronizer.Shutdown(), synchronizer.rank(), "Shutdown");
  });
}

Status SyncJob::Sum(sync::Synchronizer& synchronizer, const std::string& name,
                    std::vector<float>& values) {
  LMDBIO_TRY(sync::Handle handle,
             synchronizer.Submit(sync::AllReduceOf(name, values.data(), values.data(),
                                                   static_cast<int64_t>(values.size()))));
  return handle.Wait();
}

std::vector<float> GradientOf(int rank, int tensor, int iteration, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        static_cast<float>((static_cast<size_t>(rank * 7 + tensor * 3 + iteration) + i) % 101);
  }
  return values;
}

std::vector<float> SumOf(int rank_count, int tensor, int iteration, size_t count) {
  std::vector<float> sum(count, 0.0F);
  for (int rank = 0; rank < rank_count; ++rank) {
    const std::vector<float> theirs = GradientOf(rank, tensor, iteration, count);
    for (size_t i = 0; i < count; ++i) sum[i] += theirs[i];
  }
  return sum;
}

}  // namespace lmdbio::test
