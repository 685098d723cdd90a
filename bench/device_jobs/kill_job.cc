// A rank ends at any moment of a job: when do the others know, and when are their streams done?
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/device_jobs/job_kinds.h"
#include "bench/device_jobs/job_synchronizer.h"
#include "bench/on_device/device_timer.h"

namespace lmdbio::figures {
namespace {

constexpr int kTensors = 4;
constexpr int kCallsBeforeKill = 8;
constexpr double kDrainSecondsMax = 10;
constexpr uint64_t kSpareBytes = 4096;

// All ranks of a host see it.
struct KillBoard {
  std::atomic<double> killed_at;  // by SecondsNow, which is the clock of the host; 0: not yet
};

Status ReduceOnce(JobRank& rank, JobSynchronizer& job, const device::DeviceSpan& values) {
  const uint64_t part_bytes = values.size_bytes / kTensors;
  std::vector<sync::Handle> handles;
  for (uint64_t i = 0; i < kTensors; ++i) {
    LMDBIO_TRY(sync::Handle handle,
               job.Submit(fmt::format("w{}", i), values.begin + i * part_bytes, part_bytes));
    handles.push_back(std::move(handle));
  }
  for (sync::Handle& handle : handles) {
    LMDBIO_TRY_VOID(handle.WaitOn(rank.stream().native()));
    LMDBIO_TRY_VOID(handle.Wait());
  }
  return {};
}

// Ends this process at a random moment, while its other threads go on.
void KillSoon(KillBoard& board) {
  std::random_device random;
  std::this_thread::sleep_for(std::chrono::microseconds(100'000 + random() % 100'000));
  board.killed_at = SecondsNow();
  ::kill(::getpid(), SIGKILL);
}

// Made before the rank is killed: a call of the driver that makes something may wait for stuck
// streams.
struct SpareStream {
  device::DeviceStream stream;
  device::DeviceMemory memory;
};

Status PlaySurvivor(JobRank& rank, JobSynchronizer& job, const device::DeviceSpan& values,
                    SpareStream& spare, const KillBoard& board) {
  Status status;
  while (status) status = ReduceOnce(rank, job, values);
  const double error_seconds = SecondsNow() - board.killed_at.load();
  if (board.killed_at.load() == 0 || status.error().code() != ErrorCode::kPeerFailed) {
    return Fail(std::move(status).error().Within("before a rank was killed, or another error"));
  }
  rank.Say("error", "s", {error_seconds}, status.error().message());
  const double drain_begin = SecondsNow();
  bool is_done = false;
  while (!is_done && SecondsNow() - drain_begin < kDrainSecondsMax) {
    LMDBIO_TRY(is_done, rank.stream().IsDone());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  rank.Say("drain", "s", {SecondsNow() - drain_begin}, is_done ? "" : "a stream is not done");
  // The GPU still works.
  LMDBIO_TRY_VOID(spare.stream.Copy(spare.memory.begin(), spare.memory.begin() + kSpareBytes / 2,
                                    kSpareBytes / 2));
  LMDBIO_TRY_VOID(AwaitDone(spare.stream));
  rank.Say("works", "ratio", {1});
  return {};
}

}  // namespace

Status PlayKill(JobRank& rank) {
  const uint64_t size_bytes = rank.spec().sizes.front();
  LMDBIO_TRY(const auto shared, rank.group().AllocateShared(sizeof(KillBoard)));
  auto* const board = reinterpret_cast<KillBoard*>(shared->bytes().data());
  if (rank.group().rank() == 0) new (board) KillBoard();
  LMDBIO_TRY(const auto job, JobSynchronizer::Create(rank, size_bytes));
  LMDBIO_TRY(const device::DeviceSpan values, job->synchronizer().PlaceOnDevice(size_bytes));
  for (int i = 0; i < kCallsBeforeKill; ++i) LMDBIO_TRY_VOID(ReduceOnce(rank, *job, values));
  LMDBIO_TRY_VOID(job->CheckWay());
  LMDBIO_TRY_VOID(rank.Write(values.begin, size_bytes));
  LMDBIO_TRY_VOID(ReduceOnce(rank, *job, values));
  LMDBIO_TRY_VOID(rank.CheckSum(values.begin, size_bytes));
  LMDBIO_TRY(device::DeviceStream spare_stream, rank.device().MakeStream());
  LMDBIO_TRY(device::DeviceMemory spare_memory, rank.device().Allocate(kSpareBytes));
  SpareStream spare = {std::move(spare_stream), std::move(spare_memory)};
  LMDBIO_TRY_VOID(rank.group().Barrier());
  if (rank.group().rank() == rank.group().size() - 1) {
    const std::jthread killer([board] { KillSoon(*board); });
    while (true) LMDBIO_TRY_VOID(ReduceOnce(rank, *job, values));
  }
  LMDBIO_TRY_VOID(PlaySurvivor(rank, *job, values, spare, *board));
  // Objects that wait for the dead rank would wait long.
  std::_Exit(0);
}

}  // namespace lmdbio::figures
