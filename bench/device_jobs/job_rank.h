// bench/device_jobs/job_rank.h - one rank of a job: its GPU, its values, and its clock.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_JOB_RANK_H_
#define LMDBIO_BENCH_DEVICE_JOBS_JOB_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/device_jobs/job_spec.h"
#include "bench/on_device/roofs.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::figures {

// Of one call: the mean of those in a sample.
struct CallTimes {
  std::vector<double> microseconds;            // of the slowest rank
  std::vector<double> processor_microseconds;  // of one rank, in the mean
};

// Values are float32 that are small whole numbers, so their sum has the same bits in every order.
// Threads: one
class JobRank {
 public:
  // rows  a descriptor for rows
  // Errors: as device::SystemDriver, Device::Open, PinnedSpace::Make
  static Result<std::unique_ptr<JobRank>> Open(const JobSpec& spec, ranks::Group& group, int rows);

  const JobSpec& spec() const { return spec_; }
  ranks::Group& group() const { return group_; }
  device::Device& device() const { return *device_; }
  const std::shared_ptr<device::Device>& shared_device() const { return device_; }
  // Of the program.
  device::DeviceStream& stream() { return stream_; }

  // --- rows ---
  void Say(std::string measure, std::string unit, std::vector<double> samples,
           std::string note = "") const;
  void SayError(std::string measure, const Error& error) const;
  // By rank 0 alone, with the unit "us".
  void SayTimes(const std::string& what, uint64_t size_bytes, const CallTimes& times) const;

  // --- values ---
  // Writes those of this rank, and waits.
  // Errors: as DeviceStream::CopyIn
  Status Write(device::DeviceAddress to, uint64_t size_bytes);
  // Errors: kCorruption  they are not the sum of all ranks, which the host computes serially; and
  //                      as DeviceStream::CopyOut
  Status CheckSum(device::DeviceAddress from, uint64_t size_bytes);

  // --- time ---
  // Collective. Some calls to warm up, and then those that are timed. Their number is the same on
  // every rank.
  // once  waits for its result
  // Errors: those of `once`, and as Group::AllGather
  Result<CallTimes> Time(const std::function<Status()>& once);
  // Collective. The largest number of all ranks.
  // Errors: as Group::AllGather
  Result<double> LargestOf(double mine) const;

 private:
  JobRank(const JobSpec& spec, ranks::Group& group, int rows,
          std::shared_ptr<device::Device> device, device::DeviceStream stream, PinnedSpace space)
      : spec_(spec),
        group_(group),
        rows_(rows),
        device_(std::move(device)),
        stream_(std::move(stream)),
        space_(std::move(space)) {}

  Result<std::vector<double>> LargestOfEach(std::vector<double> mine) const;

  const JobSpec spec_;
  ranks::Group& group_;
  const int rows_;
  const std::shared_ptr<device::Device> device_;
  device::DeviceStream stream_;
  PinnedSpace space_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_JOB_RANK_H_
