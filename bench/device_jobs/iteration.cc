#include "bench/device_jobs/iteration.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/on_device/device_timer.h"
#include "lmdbio/base/align.h"

namespace lmdbio::figures {
namespace {

// How often the copied memory passes in one backward pass: some 10 ms with 256 MiB.
constexpr double kPasses = 64;

}  // namespace

Result<std::unique_ptr<EmulatedIteration>> EmulatedIteration::Make(JobRank& rank) {
  const uint64_t gradient_bytes_max = rank.spec().sizes[0];
  const uint64_t copied_bytes = rank.spec().sizes[1];
  std::vector<EmulatedGradient> list = Resnet50Gradients();
  std::ranges::reverse(list);
  uint64_t all_bytes = 0;
  for (EmulatedGradient& one : list) {
    one.count = std::min(one.count, gradient_bytes_max / sizeof(float));
    all_bytes += AlignUp(one.count * sizeof(float), kCacheLineBytes);
  }
  LMDBIO_TRY(auto job, JobSynchronizer::Create(rank, all_bytes));
  LMDBIO_TRY(device::DeviceMemory from, rank.device().Allocate(copied_bytes));
  LMDBIO_TRY(device::DeviceMemory to, rank.device().Allocate(copied_bytes));
  std::unique_ptr<EmulatedIteration> made(
      new EmulatedIteration(rank, std::move(job), std::move(from), std::move(to)));
  for (const EmulatedGradient& one : list) {
    LMDBIO_TRY(const device::DeviceSpan values,
               made->job_->synchronizer().PlaceOnDevice(one.count * sizeof(float)));
    const double work_bytes = one.cost * kPasses * static_cast<double>(copied_bytes);
    made->gradients_.push_back({fmt::format("gradient {}", made->gradients_.size()), values,
                                static_cast<uint64_t>(work_bytes)});
  }
  return made;
}

Status EmulatedIteration::EnqueueWork(size_t gradient) {
  for (uint64_t left = gradients_[gradient].work_bytes; left > 0;) {
    const uint64_t bytes = std::min(left, from_.size_bytes());
    LMDBIO_TRY_VOID(rank_.stream().Copy(to_.begin(), from_.begin(), bytes));
    left -= bytes;
  }
  return {};
}

Status EmulatedIteration::EnqueueAllWork() {
  for (size_t i = 0; i < gradients_.size(); ++i) LMDBIO_TRY_VOID(EnqueueWork(i));
  return {};
}

Status EmulatedIteration::Submit(size_t gradient) {
  const PlacedGradient& one = gradients_[gradient];
  LMDBIO_TRY(sync::Handle handle, job_->Submit(one.name, one.values.begin, one.values.size_bytes));
  handles_.push_back(std::move(handle));
  return {};
}

Status EmulatedIteration::WaitOnAll() {
  for (sync::Handle& handle : handles_) LMDBIO_TRY_VOID(handle.WaitOn(rank_.stream().native()));
  handles_.clear();
  return {};
}

Status EmulatedIteration::Check() {
  for (const PlacedGradient& one : gradients_) {
    LMDBIO_TRY_VOID(rank_.Write(one.values.begin, one.values.size_bytes));
  }
  for (size_t i = 0; i < gradients_.size(); ++i) LMDBIO_TRY_VOID(Submit(i));
  LMDBIO_TRY_VOID(WaitOnAll());
  LMDBIO_TRY_VOID(AwaitDone(rank_.stream()));
  for (const PlacedGradient& one : gradients_) {
    LMDBIO_TRY_VOID(rank_.CheckSum(one.values.begin, one.values.size_bytes));
  }
  return job_->CheckWay();
}

}  // namespace lmdbio::figures
