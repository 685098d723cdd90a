// Goal: if a rank is killed or stopped at any step of a bucket on its GPU, the others fail within 5
// s with its name, their streams are done, and their GPUs still work. Method: ranks are processes,
// each with devices of its own; the stand-in kills a rank in a call of the driver.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/device_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using device::DeviceMemory;
using test::EmulatedGpu;
using test::ForkedJob;
using test::Good;
using test::ProgramOnDevice;
using test::SumOnDevice;

constexpr double kSecondsMax = 5.0;
constexpr int kRanks = 3;
constexpr int kVictim = 1;

// Iterates until it fails. Returns the error.
Status TrainUntilItFails(Synchronizer& synchronizer, ProgramOnDevice& program, ForkedJob& job) {
  std::vector<DeviceMemory> gradients;
  for (int i = 0; i < 4; ++i) gradients.push_back(program.Allocate(400'000));
  for (int iteration = 0;; ++iteration) {
    if (iteration == 8) job.SayReady();
    std::vector<Handle> handles;
    for (size_t i = 0; i < gradients.size(); ++i) {
      LMDBIO_TRY(Handle handle, synchronizer.Submit(SumOnDevice(fmt::format("w{}", i), program,
                                                                gradients[i], 100'000)));
      handles.push_back(std::move(handle));
    }
    for (Handle& handle : handles) {
      LMDBIO_TRY_VOID(handle.WaitOn(program.stream().native()));
      LMDBIO_TRY_VOID(handle.Wait());
    }
  }
}

std::string RunRank(ranks::Group& group, ForkedJob& job, const std::string& fault) {
  if (group.rank() == kVictim && !fault.empty()) {
    ::setenv("LMDBIO_EMULATED_GPU_FAULTS", fault.c_str(), 1);
  }
  SyncOptions options;
  options.device = 1;
  auto made = Synchronizer::Create(group, options, {});
  if (!made) return "Create: " + made.error().message();
  const auto driver = device::SystemDriver();
  if (!driver) return driver.error().message();
  ProgramOnDevice program(Good(device::Device::Open(0, **driver)));
  const auto began = std::chrono::steady_clock::now();
  const Status status = TrainUntilItFails(**made, program, job);
  const double seconds =
      fault.empty()
          ? job.SecondsSinceSignal()
          : std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::string wrong;
  if (status.error().code() != ErrorCode::kPeerFailed) wrong += "not kPeerFailed; ";
  if (status.error().message().find(fmt::format("rank {}", kVictim)) == std::string::npos) {
    wrong += "does not name the rank; ";
  }
  // A victim of a fault dies at some time; only a signal has a known one.
  if (group.rank() != kVictim && fault.empty() && (seconds < 0 || seconds > kSecondsMax)) {
    wrong += "late; ";
  }
  const DeviceMemory memory = program.Allocate(64);
  program.WriteLater(memory.begin(), "still works");
  if (program.ReadNow(memory.begin(), 11) != "still works") wrong += "the GPU does not work; ";
  const auto closing = std::chrono::steady_clock::now();
  made->reset();
  if (std::chrono::steady_clock::now() - closing > 2s) wrong += "closing takes long; ";
  return wrong.empty()
             ? ""
             : fmt::format("{}after {:.2f} s: {}", wrong, seconds, status.error().message());
}

TEST_CASE("A rank that is killed in any call of a bucket is named by the others",
          "[device_processes_sync]") {
  std::vector<std::string> faults = {"cuEventRecord:9:kill",     "cuEventRecord:40:kill",
                                     "cuStreamWaitEvent:5:kill", "cuStreamWaitEvent:60:kill",
                                     "cuMemcpyDtoHAsync:2:kill", "cuMemcpyHtoDAsync:2:kill",
                                     "cuEventQuery:30:kill",     "cuStreamIsCapturing:17:kill"};
  if (!kernels::BuiltInKernels().bytes.empty()) {
    faults.emplace_back("cuLaunchKernel:1:kill");
    faults.emplace_back("cuLaunchKernel:6:kill");
  }
  std::vector<std::unique_ptr<ForkedJob>> jobs;
  for (const std::string& fault : faults) {
    auto& job = jobs.emplace_back(std::make_unique<ForkedJob>(kRanks, kRanks));
    job->Start([&](ranks::Group& group, ForkedJob& own) { return RunRank(group, own, fault); });
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (int rank = 0; rank < kRanks; ++rank) {
      CAPTURE(faults[i], rank);
      CHECK(jobs[i]->EndOf(rank) == (rank == kVictim ? "killed" : ""));
    }
  }
}

TEST_CASE("A rank that is killed or stopped among its buckets is named by the others",
          "[device_processes_sync]") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  ForkedJob job(kRanks, kRanks);
  job.Start([&](ranks::Group& group, ForkedJob& own) { return RunRank(group, own, ""); });
  REQUIRE(job.AwaitReady());
  job.Send(signal, kVictim);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim) CHECK(job.EndOf(rank).empty());
  }
  job.Send(SIGCONT, kVictim);
  CHECK(job.EndOf(kVictim) == (signal == SIGKILL ? "killed" : ""));
}

}  // namespace
}  // namespace lmdbio::sync
