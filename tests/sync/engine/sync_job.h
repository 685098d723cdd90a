// tests/sync/engine/sync_job.h - ranks that are threads, each with a synchronizer.
#ifndef LMDBIO_TESTS_SYNC_ENGINE_SYNC_JOB_H_
#define LMDBIO_TESTS_SYNC_ENGINE_SYNC_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::test {

// Errors or notes of all ranks.
class Findings {
 public:
  void Add(int rank, const std::string& what);
  void Expect(bool holds, int rank, const std::string& what) {
    if (!holds) Add(rank, what);
  }
  // An error is a finding.
  bool Expect(const Status& status, int rank, const std::string& what);
  std::vector<std::string> lines() const;
  bool empty() const { return lines().empty(); }
  // Whether a line contains this.
  bool Has(const std::string& part) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct SyncJob {
  ranks::ThreadRanks ranks;
  sync::SyncOptions options;
  // In place of the collectives of the options; empty: those.
  std::function<Result<std::unique_ptr<sync::Collectives>>(ranks::Group&, ranks::Health&)>
      collectives;
  Findings wrong;  // errors
  Findings notes;  // log lines of the synchronizers

  using Body = std::function<void(sync::Synchronizer& synchronizer)>;
  // Runs `body` on every rank, and then Shutdown, unless the body has ended it.
  void Run(const Body& body);
  // The same without Shutdown: the body returns, and the synchronizer is gone.
  void RunAndLeave(const Body& body);

  // One tensor of float32, reduced in place; waits. Errors: as Handle::Wait
  static Status Sum(sync::Synchronizer& synchronizer, const std::string& name,
                    std::vector<float>& values);
};

// The values of rank `rank` for tensor `tensor` in iteration `iteration`: small whole numbers, so
// that sums are exact.
std::vector<float> GradientOf(int rank, int tensor, int iteration, size_t count);
// The sum over all ranks.
std::vector<float> SumOf(int rank_count, int tensor, int iteration, size_t count);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ENGINE_SYNC_JOB_H_
