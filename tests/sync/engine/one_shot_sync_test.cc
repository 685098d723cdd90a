// Goal: tensors on several GPUs of one host get the right sums in one shot and by parts, whatever
// memory they are in. Method: ranks are threads that take two GPUs in turn. Oracle: sums of whole
// numbers.
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/device_job.h"

namespace lmdbio::sync {
namespace {

using device::DeviceAddress;
using device::DeviceMemory;
using test::EmulatedGpu;
using test::Findings;
using test::Good;
using test::GradientOf;
using test::OnDevice;
using test::ProgramOnDevice;
using test::SumOf;

constexpr int kRanks = 4;
constexpr uint64_t kOneShotBytes = 4096;
// Floats of each tensor: in one shot, as large as that, by parts, and in several pieces.
constexpr std::array<size_t, 4> kElementCounts = {10, 1024, 1025, 9000};

SyncOptions OneShotOptions(int rank, uint64_t fusion_bytes) {
  SyncOptions options;
  options.device = static_cast<uint32_t>(1 + rank % 2);
  options.device_buffer_bytes = 30'000;
  options.device_gradient_bytes = 64 << 10;
  options.device_one_shot_bytes = kOneShotBytes;
  options.fusion_threshold_bytes = fusion_bytes;
  return options;
}

void ReduceAllTensors(Synchronizer& synchronizer, ProgramOnDevice& program, Findings& wrong) {
  const int rank = synchronizer.rank();
  std::vector<DeviceMemory> own;
  std::vector<DeviceAddress> addresses;
  for (const size_t count : kElementCounts) {
    const device::DeviceSpan place = Good(synchronizer.PlaceOnDevice(count * sizeof(float)));
    own.push_back(program.Allocate(count * sizeof(float)));
    addresses.push_back(rank % 3 == 0 ? place.begin : own.back().begin());
  }
  for (int iteration = 0; iteration < 6; ++iteration) {
    std::vector<Handle> handles;
    for (size_t i = 0; i < kElementCounts.size(); ++i) {
      const auto values = GradientOf(rank, static_cast<int>(i), iteration, kElementCounts[i]);
      program.WriteLater(addresses[i], test::BytesOfAll(values));
      handles.push_back(
          Good(synchronizer.Submit(OnDevice(AllReduceOf(fmt::format("w{}", i), nullptr, nullptr,
                                                        static_cast<int64_t>(kElementCounts[i])),
                                            program, addresses[i], addresses[i]))));
    }
    for (size_t i = 0; i < kElementCounts.size(); ++i) {
      wrong.Expect(handles[i].WaitOn(program.stream().native()), rank, "WaitOn");
      const auto sum = SumOf(kRanks, static_cast<int>(i), iteration, kElementCounts[i]);
      wrong.Expect(program.ReadNow(addresses[i], kElementCounts[i] * 4) == test::BytesOfAll(sum),
                   rank, fmt::format("iteration {}: another sum of tensor {}", iteration, i));
    }
  }
}

TEST_CASE("Tensors on several GPUs are reduced in one shot and by parts", "[one_shot_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  const uint64_t fusion_bytes = GENERATE(uint64_t{0}, uint64_t{1} << 20);
  for (uint64_t seed = 1; seed <= test::SeedCount(3); ++seed) {
    CAPTURE(seed, fusion_bytes);
    const EmulatedGpu gpu(seed);
    Findings wrong;
    ranks::RunAsThreads({.rank_count = kRanks}, [&](ranks::Group& group) {
      const int rank = group.rank();
      auto made = Good(Synchronizer::Create(group, OneShotOptions(rank, fusion_bytes), {}));
      ProgramOnDevice program(gpu.Open(rank % 2));
      ReduceAllTensors(*made, program, wrong);
      std::string lines;
      for (const std::string& line : made->Description()) lines += line + "\n";
      wrong.Expect(lines.find("; up to 4096 bytes in one shot\n") != std::string::npos, rank,
                   lines);
      wrong.Expect(made->counters().device_tensor_count == 0, rank, "tensors are staged");
      wrong.Expect(made->Shutdown(), rank, "Shutdown");
    });
    CHECK(wrong.lines() == std::vector<std::string>());
  }
}

}  // namespace
}  // namespace lmdbio::sync
