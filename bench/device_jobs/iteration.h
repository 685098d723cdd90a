// bench/device_jobs/iteration.h - an iteration of a trainer: emulated work, and its gradients.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_ITERATION_H_
#define LMDBIO_BENCH_DEVICE_JOBS_ITERATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/device_jobs/job_rank.h"
#include "bench/device_jobs/job_synchronizer.h"
#include "bench/device_jobs/resnet50_list.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::figures {

// Gradients of ResNet-50, placed on the GPU in the order in which a backward pass gives them. The
// first size of the job is the largest gradient, the second the memory that emulated work copies.
// Threads: one
class EmulatedIteration {
 public:
  // Collective.
  // Errors: as JobSynchronizer::Create, Synchronizer::PlaceOnDevice, Device::Allocate
  static Result<std::unique_ptr<EmulatedIteration>> Make(JobRank& rank);

  size_t gradient_count() const { return gradients_.size(); }

  // Enqueues the work that gives a gradient, on the stream of the rank: copies on the device.
  // gradient  in the order of the backward pass
  // Errors: as DeviceStream::Copy
  Status EnqueueWork(size_t gradient);
  // The same for all of them.
  Status EnqueueAllWork();

  // As a hook does.
  // Errors: as Synchronizer::Submit
  Status Submit(size_t gradient);
  // As synchronize() does: the stream of the rank waits for the sums.
  // Errors: as Handle::WaitOn
  Status WaitOnAll();

  // Whether one iteration gives the right sums.
  // Errors: kCorruption  they are wrong; and as above
  Status Check();

  JobSynchronizer& job() { return *job_; }

 private:
  EmulatedIteration(JobRank& rank, std::unique_ptr<JobSynchronizer> job, device::DeviceMemory from,
                    device::DeviceMemory to)
      : rank_(rank), job_(std::move(job)), from_(std::move(from)), to_(std::move(to)) {}

  struct PlacedGradient {
    std::string name;
    device::DeviceSpan values;
    uint64_t work_bytes = 0;
  };

  JobRank& rank_;
  const std::unique_ptr<JobSynchronizer> job_;
  const device::DeviceMemory from_;
  const device::DeviceMemory to_;
  std::vector<PlacedGradient> gradients_;  // the last layer first
  std::vector<sync::Handle> handles_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_ITERATION_H_
