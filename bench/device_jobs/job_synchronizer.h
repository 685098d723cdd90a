// bench/device_jobs/job_synchronizer.h - the synchronizer of a rank of a job.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_JOB_SYNCHRONIZER_H_
#define LMDBIO_BENCH_DEVICE_JOBS_JOB_SYNCHRONIZER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "bench/device_jobs/job_rank.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::figures {

// By the order, the variant and the buffer of the job. Threads: one
class JobSynchronizer {
 public:
  // Collective.
  // gradient_bytes  to be placed on the GPU
  // Errors: as sync::Synchronizer::Create
  static Result<std::unique_ptr<JobSynchronizer>> Create(JobRank& rank, uint64_t gradient_bytes);

  sync::Synchronizer& synchronizer() { return *synchronizer_; }

  // A sum in place, of float32. Behind the work on the stream of the rank.
  // Errors: as sync::Synchronizer::Submit
  Result<sync::Handle> Submit(const std::string& name, device::DeviceAddress values,
                              uint64_t size_bytes);

  // After the first sum.
  // Errors: kUnsupported  the ranks did not go the way of the variant, or have another order; has
  //                       the notes of the synchronizer
  Status CheckWay() const;

 private:
  // Written by the helper thread.
  struct LoggedNotes {
    std::mutex mutex;
    std::string text;
  };

  explicit JobSynchronizer(JobRank& rank) : rank_(rank) {}
  std::string NotesText() const;

  JobRank& rank_;
  const std::shared_ptr<LoggedNotes> notes_ = std::make_shared<LoggedNotes>();
  std::unique_ptr<sync::Synchronizer> synchronizer_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_JOB_SYNCHRONIZER_H_
