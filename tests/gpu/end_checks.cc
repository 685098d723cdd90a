// C4: a rank is killed or stopped at a random moment of a running job. The others get kPeerFailed
// with its name within 5 s of the signal, their streams are done within 5 s more, and their GPU
// works.
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/gpu/device_check.h"
#include "tests/gpu/gpu_room.h"
#include "tests/gpu/rank_jobs.h"
#include "tests/ranks/forked_ranks.h"

namespace lmdbio::test {
namespace {

using Clock = std::chrono::steady_clock;
using sync::Handle;
using sync::Submission;
using sync::Synchronizer;

constexpr int kRanks = 3;
constexpr int kVictims = 3;  // each rank in turn
constexpr double kTellSecondsMax = 5;
constexpr double kDrainSecondsMax = 5;
constexpr uint64_t kGradients = 4;
constexpr uint64_t kGradientBytes = 400'000;

// A rank of a job that trains until it fails.
class TrainingRank {
 public:
  TrainingRank(ranks::Group& group, const CheckScene& scene, const ReduceWay& way)
      : way_(way), gpu_(scene.Open()) {
    synchronizer_ = Good(Synchronizer::Create(group, OptionsOf(way, scene), {}));
  }

  // Returns the error.
  Error Train(ForkedJob& job) {
    for (int iteration = 0;; ++iteration) {
      if (iteration == 8) job.SayReady();
      if (Status status = Step(); !status) return std::move(status).error();
    }
  }

  // Whether the stream of the program is done in time.
  bool Drains() const {
    const auto limit = Clock::now() + std::chrono::duration<double>(kDrainSecondsMax);
    while (Clock::now() < limit) {
      const auto is_done = stream_.IsDone();
      if (!is_done || *is_done) return is_done.has_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // Whether new work on the GPU runs.
  bool Works() {
    device::DeviceStream another = Good(gpu_->MakeStream());
    GpuRoom room(*gpu_, 64);
    room.Write(another, "still works");
    return room.Read(another, 11) == "still works";
  }

  // In seconds.
  double Close() {
    const auto begin = Clock::now();
    synchronizer_.reset();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  bool may_block() const { return std::string(way_.order) == "event"; }

 private:
  // Gradients of ones are summed over all ranks, and compared.
  Status Step() {
    std::vector<Handle> handles;
    for (uint64_t i = 0; i < kGradients; ++i) {
      const device::DeviceAddress at = gradients_.At(i * kGradientBytes);
      LMDBIO_TRY_VOID(stream_.Fill(at, std::byte{1}, kGradientBytes));
      Submission submission = sync::AllReduceOf(fmt::format("w{}", i), nullptr, nullptr,
                                                kGradientBytes / 4, sync::DataType::kInt32);
      submission.on_device = {at, at, stream_.native()};
      LMDBIO_TRY(Handle handle, synchronizer_->Submit(std::move(submission)));
      handles.push_back(std::move(handle));
    }
    for (Handle& handle : handles) {
      LMDBIO_TRY_VOID(handle.WaitOn(stream_.native()));
      LMDBIO_TRY_VOID(handle.Wait());
    }
    const std::string found = gradients_.Read(stream_, kGradients * kGradientBytes);
    if (found == std::string(found.size(), char{kRanks})) return {};
    return Fail(ErrorCode::kCorruption, "a wrong sum");
  }

  const ReduceWay way_;
  const std::shared_ptr<device::Device> gpu_;
  GpuRoom gradients_{*gpu_, kGradients* kGradientBytes};
  device::DeviceStream stream_ = Good(gpu_->MakeStream());
  std::unique_ptr<Synchronizer> synchronizer_;
};

RankReport RunUntilTheEnd(ranks::Group& group, ForkedJob& job, const CheckScene& scene,
                          const ReduceWay& way, int victim) {
  try {
    auto training = std::make_unique<TrainingRank>(group, scene, way);
    const Error error = training->Train(job);
    const double seconds = job.SecondsSinceSignal();
    std::string wrong;
    if (error.code() != ErrorCode::kPeerFailed) wrong += "not kPeerFailed; ";
    if (error.message().find(fmt::format("rank {}", victim)) == std::string::npos) {
      wrong += "does not name the rank; ";
    }
    const bool is_victim = group.rank() == victim;
    if (!is_victim && !(seconds >= 0 && seconds <= kTellSecondsMax)) wrong += "late; ";
    const bool has_drained = training->Drains();
    if (!has_drained && !training->may_block()) wrong += "its stream is not done; ";
    if (!training->Works()) wrong += "its GPU does not work; ";
    if (training->Close() > 2) wrong += "closing takes long; ";
    if (!has_drained) static_cast<void>(training.release());  // destructors would wait for ever
    if (wrong.empty()) return "";
    return fmt::format("{}after {:.2f} s: {}", wrong, seconds, error.message());
  } catch (const std::exception& error) {
    return error.what();
  }
}

// A job whose rank `victim` gets the signal `after_ms` after all train. "" or a complaint.
class SignalledJob {
 public:
  SignalledJob(const CheckScene& scene, const ReduceWay& way, int victim)
      : victim_(victim), job_(kRanks, kRanks) {
    job_.Start([&](ranks::Group& group, ForkedJob& own) {
      return RunUntilTheEnd(group, own, scene, way, victim_);
    });
  }

  std::string AwaitReady() { return job_.AwaitReady() ? "" : "the ranks do not train"; }
  void Send(int signal) { job_.Send(signal, victim_); }

  std::string Await(int signal) {
    std::string wrong;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim_) continue;
      const std::string report = job_.EndOf(rank, std::chrono::seconds(30));
      if (!report.empty()) wrong += fmt::format("rank {}: {}; ", rank, report);
    }
    job_.Send(SIGCONT, victim_);
    const std::string end = job_.EndOf(victim_, std::chrono::seconds(30));
    const std::string expected = signal == SIGKILL ? "killed" : "";
    if (end != expected) wrong += fmt::format("rank {}, the victim: {}; ", victim_, end);
    return wrong.empty() ? "" : fmt::format("victim {}: {}", victim_, wrong);
  }

 private:
  const int victim_;
  ForkedJob job_;
};

// Some jobs at a time, because a stopped rank is told late.
CheckOutcome CheckEnds(const CheckScene& scene, const ReduceWay& way, int signal) {
  constexpr uint64_t kAtOnce = 5;
  Random random(scene.seed + static_cast<uint64_t>(signal));
  const uint64_t moments = scene.Of(10, 1);
  for (uint64_t done = 0; done < moments; done += kAtOnce) {
    std::vector<std::unique_ptr<SignalledJob>> jobs;
    for (uint64_t i = done; i < std::min(moments, done + kAtOnce); ++i) {
      const int victim = static_cast<int>((random.Below(kVictims) + i) % kVictims);
      jobs.push_back(std::make_unique<SignalledJob>(scene, way, victim));
    }
    std::string wrong;
    for (const auto& job : jobs) wrong += job->AwaitReady();
    if (!wrong.empty()) return Failed(wrong);
    for (const auto& job : jobs) {
      std::this_thread::sleep_for(std::chrono::microseconds(random.Below(40'000)));
      job->Send(signal);
    }
    for (const auto& job : jobs) wrong += job->Await(signal);
    if (!wrong.empty()) return Failed(wrong);
  }
  return Passed(fmt::format("{} moments", moments));
}

}  // namespace

DeviceChecks EndChecks() {
  DeviceChecks checks;
  for (const ReduceWay& way : kEachWay) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      const char* const verb = signal == SIGKILL ? "killed" : "stopped";
      checks.push_back(
          {"C4", fmt::format("a rank is {}, {}", verb, way.name), 60,
           [signal, way](const CheckScene& scene) { return CheckEnds(scene, way, signal); }});
    }
  }
  return checks;
}

}  // namespace lmdbio::test
