// tests/sync/over_device/end_jobs.h - jobs of processes, one of which is killed or stopped.
#ifndef LMDBIO_TESTS_SYNC_OVER_DEVICE_END_JOBS_H_
#define LMDBIO_TESTS_SYNC_OVER_DEVICE_END_JOBS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/support/shared_bytes.h"
#include "tests/sync/over_device/ranks_on_file.h"

namespace lmdbio::test {

inline constexpr std::chrono::seconds kSilenceLimit{3};
inline constexpr device::DriverCode kKillInCall = -2;  // of the stand-in

// The moment at which the victim ended; shared by the ranks of a job.
class EndClock {
 public:
  void NoteEnd() { ended_ns_.store(NowNs()); }
  double SecondsSinceEnd() const { return static_cast<double>(NowNs() - ended_ns_.load()) * 1e-9; }

 private:
  static int64_t NowNs() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }

  std::atomic<int64_t> ended_ns_ = 0;
};

// Complaints about the error that a rank got when the victim ended; "" if it is right.
inline std::string WrongFailure(const Error& error, int rank, int victim, double seconds) {
  constexpr double kSecondsMax = 5.0;
  std::string wrong;
  if (error.code() != ErrorCode::kPeerFailed) wrong += "not kPeerFailed; ";
  if (error.message().find(fmt::format("rank {}", victim)) == std::string::npos) {
    wrong += "does not name the rank; ";
  }
  if (rank != victim && seconds > kSecondsMax) wrong += "late; ";
  return wrong;
}

// The report of a rank with these complaints; "" if there are none.
inline std::string FailureReport(const std::string& wrong, double seconds, const Error& error) {
  return wrong.empty() ? "" : fmt::format("{}after {:.2f} s: {}", wrong, seconds, error.message());
}

// Whether a copy to a GPU arrives.
inline bool GpuWorks(const EmulatedGpu& emulated, ::lmdbio::device::Device& gpu) {
  ::lmdbio::device::DeviceStream stream = Good(gpu.MakeStream());
  const ::lmdbio::device::DeviceMemory memory = Good(gpu.Allocate(64));
  Must(stream.Fill(memory.begin(), std::byte{'y'}, 64));
  Must(stream.Synchronize());
  return emulated.Peek(memory.begin(), 64) == std::string(64, 'y');
}

struct EndPlan {
  std::string text;  // for a failed check
  int rank_count = 0;
  int victim = 0;
  int signal = SIGKILL;  // SIGSTOP: the victim goes on when the others have ended
  // Runs a rank, and returns its report.
  std::function<std::string(ranks::Group& group, EndClock& clock)> run;
  int ranks_per_host = 0;  // as in RanksOnFile
};

class EndJob {
 public:
  explicit EndJob(EndPlan plan)
      : plan_(std::move(plan)),
        clock_(*new (shared_.bytes().data()) EndClock()),
        ranks_(
            plan_.rank_count, [this](ranks::Group& group) { return plan_.run(group, clock_); },
            plan_.ranks_per_host) {}

  void Check() {
    INFO(plan_.text);
    for (int rank = 0; rank < plan_.rank_count; ++rank) {
      if (rank != plan_.victim) CHECK(ranks_.EndOf(rank) == "");
    }
    if (plan_.signal == SIGSTOP) ranks_.Send(SIGCONT, plan_.victim);
    CHECK(ranks_.EndOf(plan_.victim) == (plan_.signal == SIGSTOP ? "" : "killed"));
  }

 private:
  const EndPlan plan_;
  const SharedBytes shared_{4096};
  EndClock& clock_;
  RanksOnFile ranks_;
};

// Runs the jobs, some at once, because most of their time is waiting for the limit of silence.
inline void CheckEndJobs(const std::vector<EndPlan>& plans, size_t at_once = 6) {
  for (size_t first = 0; first < plans.size(); first += at_once) {
    std::vector<std::unique_ptr<EndJob>> jobs;
    for (size_t i = first; i < std::min(first + at_once, plans.size()); ++i) {
      jobs.push_back(std::make_unique<EndJob>(plans[i]));
    }
    for (const auto& job : jobs) job->Check();
  }
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_DEVICE_END_JOBS_H_
