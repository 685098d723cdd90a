// tests/sync/engine/device_job.h - ranks that are threads, each with a synchronizer and tensors on
// a GPU of the stand-in (tests/emulated_gpu).
#ifndef LMDBIO_TESTS_SYNC_ENGINE_DEVICE_JOB_H_
#define LMDBIO_TESTS_SYNC_ENGINE_DEVICE_JOB_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tests/sync/engine/sync_job.h"
#include "tests/sync/on_device/tensors_on_device.h"

namespace lmdbio::test {

// `submission` with these addresses in place of its memory.
inline sync::Submission OnDevice(sync::Submission submission, ProgramOnDevice& program,
                                 ::lmdbio::device::DeviceAddress input,
                                 ::lmdbio::device::DeviceAddress output) {
  submission.on_device = {input, output, program.stream().native()};
  return submission;
}

// An AllReduce in place.
inline sync::Submission SumOnDevice(std::string name, ProgramOnDevice& program,
                                    const ::lmdbio::device::DeviceMemory& memory, int64_t count,
                                    sync::DataType type = sync::DataType::kFloat32,
                                    sync::ReduceOp op = sync::ReduceOp::kSum) {
  return OnDevice(sync::AllReduceOf(std::move(name), nullptr, nullptr, count, type, op), program,
                  memory.begin(), memory.begin());
}

// All ranks use GPU 0, which they share. Their values pass through the host, unless a test has them
// reduce on the GPU, in an arena that takes many pieces.
struct DeviceJob : SyncJob {
  explicit DeviceJob(int rank_count, uint64_t seed = 1) : gpu(seed) {
    ranks.rank_count = rank_count;
    options.device = 1;
    options.device_collective = "staged";
    options.device_buffer_bytes = 100'000;
  }

  using OnDeviceBody = std::function<void(sync::Synchronizer&, ProgramOnDevice&)>;
  // As Run, with the streams of a program.
  void RunOnDevice(const OnDeviceBody& body) {
    Run([&](sync::Synchronizer& synchronizer) {
      ProgramOnDevice program(gpu.Open(static_cast<int>(options.device) - 1));
      body(synchronizer, program);
    });
  }

  EmulatedGpu gpu;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ENGINE_DEVICE_JOB_H_
