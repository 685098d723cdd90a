// Goal: if a rank is killed or stopped, all other ranks fail within 5 s with a message that names
// it, and nothing hangs. Method: ranks are processes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/graph/plan.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/wide.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ForkedJob;
using test::GradientOf;
using test::SumOf;
using test::SyncJob;

constexpr double kSecondsMax = 5.0;
constexpr size_t kLargeCount = (64 << 20) / sizeof(float);
constexpr uint64_t kSliceBytes = 128 << 10;  // kSlicesMax slices of the large tensor
const std::vector<std::string> kCoordinators = {"horovod", "cache", "hierarchical", "topo"};

// The activity of the ranks when the victim fails.
enum class FailureMoment { kIdle, kInRounds, kInLarge, kLacking, kInSlices };

struct Scene {
  FailureMoment place;
  int victim;
  int signal;
  int rank_count = 3;
  int ranks_per_host = 1 << 20;
  uint32_t host_roots = 1;
  std::vector<std::string> coordinators = kCoordinators;
};

// The same tensors a few times, so that plans are learnt and caches full.
std::string Train(Synchronizer& synchronizer, int first, int last) {
  const int rank = synchronizer.rank();
  for (int iteration = first; iteration < last; ++iteration) {
    std::vector<std::vector<float>> values;
    std::vector<Handle> handles;
    for (int tensor = 0; tensor < 4; ++tensor) {
      auto& one = values.emplace_back(GradientOf(rank, tensor, iteration, 100));
      auto handle =
          synchronizer.Submit(AllReduceOf(fmt::format("w{}", tensor), one.data(), one.data(), 100));
      if (!handle) return handle.error().message();
      handles.push_back(std::move(*handle));
    }
    for (Handle& handle : handles) {
      const Status status = handle.Wait();
      if (!status) return status.error().message();
    }
    for (int tensor = 0; tensor < 4; ++tensor) {
      if (values[static_cast<size_t>(tensor)] != SumOf(synchronizer.size(), tensor, iteration, 100))
        return "a wrong sum";
    }
  }
  return "";
}

// The first note, with the reason why a synchronizer has ended.
class FirstNote {
 public:
  void Add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    text_ += line + "\n";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  bool Await(std::string_view part, std::chrono::seconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (text().find(part) == std::string::npos) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// Calls the synchronizer until it fails, and returns its error. A killed rank does not return.
Status GoOnUntilItFails(Synchronizer& synchronizer, ForkedJob& job, const Scene& scene,
                        const FirstNote& notes) {
  const bool is_victim = synchronizer.rank() == scene.victim;
  const bool is_large =
      scene.place == FailureMoment::kInLarge || scene.place == FailureMoment::kInSlices;
  std::vector<float> values(is_large ? kLargeCount : 1000, 1.0F);
  if (scene.place == FailureMoment::kInRounds || is_large) {
    bool is_ready = false;
    for (int call = 0;; ++call) {
      const std::string name =
          scene.place == FailureMoment::kInRounds ? fmt::format("x{}", call % 40) : "x";
      const uint64_t before = synchronizer.counters().collective_count;
      LMDBIO_TRY_VOID(SyncJob::Sum(synchronizer, name, values));
      // Slices begin with the plan that holds this tensor.
      const bool is_cut = synchronizer.counters().collective_count - before == kSlicesMax;
      const bool is_there = scene.place == FailureMoment::kInSlices ? is_cut : call == 2;
      if (is_there && !std::exchange(is_ready, true)) job.SayReady();
    }
  }
  job.SayReady();
  if (scene.place == FailureMoment::kLacking && !is_victim) {
    return SyncJob::Sum(synchronizer, "lacking", values);
  }
  if (!notes.Await("rank", 20s)) return Fail(ErrorCode::kInternal, "no note has come");
  return Fail(ErrorCode::kPeerFailed, notes.text());
}

std::string RunRank(ranks::Group& group, ForkedJob& job, const std::string& coordinator,
                    const Scene& scene) {
  FirstNote notes;
  SyncOptions options;
  options.coordinator = coordinator;
  options.host_roots = scene.host_roots;
  options.slice_bytes = scene.place == FailureMoment::kInSlices ? kSliceBytes : 0;
  options.tree_arity = 1;  // host after host, so a host in the middle has a parent and a child
  SyncParts parts;
  // After the note that the synchronizer has ended, it must refuse submissions.
  std::atomic<Synchronizer*> asked{nullptr};
  std::atomic<bool> takes_more{false};
  float more = 1;
  parts.log = [&](const std::string& line) {
    Synchronizer* const told = scene.place == FailureMoment::kIdle ? asked.load() : nullptr;
    if (told != nullptr && told->Submit(AllReduceOf("more", &more, &more, 1))) takes_more = true;
    notes.Add(line);
  };
  auto made = Synchronizer::Create(group, options, std::move(parts));
  if (!made) return "Create: " + made.error().message();
  Synchronizer& synchronizer = **made;
  if (const std::string wrong = Train(synchronizer, 0, 6); !wrong.empty()) return wrong;
  asked.store(&synchronizer);
  const Status how = GoOnUntilItFails(synchronizer, job, scene, notes);
  const double seconds = job.SecondsSinceSignal();
  std::string wrong;
  if (how || how.error().code() != ErrorCode::kPeerFailed) wrong += "not kPeerFailed; ";
  const std::string message = how ? "no error" : how.error().message();
  const std::string expected = fmt::format("rank {}", scene.victim);
  if (message.find(expected) == std::string::npos) wrong += "does not name the rank; ";
  const bool is_slice = scene.place == FailureMoment::kInSlices;
  if (is_slice && message.find("tensor 'x'") == std::string::npos) {
    wrong += "does not name the tensor; ";
  }
  if (scene.signal == SIGSTOP && message.find("may be stopped") == std::string::npos) {
    wrong += "does not say that it may be stopped; ";
  }
  if (group.rank() != scene.victim && (seconds < 0 || seconds > kSecondsMax)) wrong += "late; ";
  float value = 1;
  const auto late = synchronizer.Submit(AllReduceOf("late", &value, &value, 1));
  if (late || late.error().code() != ErrorCode::kPeerFailed) wrong += "goes on; ";
  if (takes_more) wrong += "takes more when it has said why it ends; ";
  const auto closed = synchronizer.Shutdown();
  if (closed) wrong += "shuts down; ";
  const auto began = std::chrono::steady_clock::now();
  made->reset();
  if (std::chrono::steady_clock::now() - began > 2s) wrong += "closing takes long; ";
  if (wrong.empty()) return "";
  return fmt::format("{}after {:.2f} s: {}; notes: {}", wrong, seconds, message, notes.text());
}

// All coordinators at once: most of the time is waiting.
std::vector<std::string> Play(const Scene& scene) {
  std::vector<std::string> wrong;
  std::vector<std::unique_ptr<ForkedJob>> jobs;
  for (const std::string& coordinator : scene.coordinators) {
    auto& job =
        jobs.emplace_back(std::make_unique<ForkedJob>(scene.rank_count, scene.ranks_per_host));
    job->Start([&](ranks::Group& group, ForkedJob& own) {
      return RunRank(group, own, coordinator, scene);
    });
  }
  for (auto& job : jobs) {
    if (!job->AwaitReady()) wrong.emplace_back("a job does not become ready");
  }
  const bool is_calling =
      scene.place == FailureMoment::kInLarge || scene.place == FailureMoment::kInSlices;
  if (!is_calling) std::this_thread::sleep_for(300ms);
  for (auto& job : jobs) job->Send(scene.signal, scene.victim);
  const auto end = [&](size_t job, int rank) {
    const std::string how = jobs[job]->EndOf(rank);
    const bool is_killed = rank == scene.victim && scene.signal == SIGKILL;
    if (how == (is_killed ? "killed" : "")) return;
    wrong.push_back(fmt::format("{}, rank {}: {}", scene.coordinators[job], rank, how));
  };
  for (size_t job = 0; job < jobs.size(); ++job) {
    for (int rank = 0; rank < scene.rank_count; ++rank) {
      if (rank != scene.victim) end(job, rank);
    }
  }
  for (size_t job = 0; job < jobs.size(); ++job) {
    jobs[job]->Send(SIGCONT, scene.victim);
    end(job, scene.victim);
  }
  return wrong;
}

TEST_CASE("A rank that is killed is named by all others", "[sync][failure]") {
  const FailureMoment place = GENERATE(FailureMoment::kIdle, FailureMoment::kInRounds,
                                       FailureMoment::kInLarge, FailureMoment::kLacking);
  const int victim = GENERATE(0, 1);
  CAPTURE(static_cast<int>(place), victim);
  CHECK(Play({.place = place, .victim = victim, .signal = SIGKILL}) == std::vector<std::string>());
}

TEST_CASE("A rank that is stopped is named by all others, and hears of it when it goes on",
          "[sync][failure]") {
  const FailureMoment place = GENERATE(FailureMoment::kIdle, FailureMoment::kInRounds,
                                       FailureMoment::kInLarge, FailureMoment::kLacking);
  const int victim = place == FailureMoment::kIdle || place == FailureMoment::kInLarge ? 0 : 1;
  CAPTURE(static_cast<int>(place), victim);
  CHECK(Play({.place = place, .victim = victim, .signal = SIGSTOP}) == std::vector<std::string>());
}

TEST_CASE("A rank that fails between two slices is named, and the tensor is",
          "[sync][failure][steps]") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  const int victim = GENERATE(0, 1);
  CAPTURE(signal, victim);
  CHECK(Play({.place = FailureMoment::kInSlices,
              .victim = victim,
              .signal = signal,
              .coordinators = {"topo"}}) == std::vector<std::string>());
}

TEST_CASE("A failure on one host is told on all hosts in the same words", "[.][hosts]") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  const FailureMoment place = GENERATE(FailureMoment::kIdle, FailureMoment::kInRounds,
                                       FailureMoment::kInLarge, FailureMoment::kLacking);
  const int victim =
      place == FailureMoment::kIdle || place == FailureMoment::kInLarge ? 2 : GENERATE(0, 3);
  // Where there are two victims, each has one of the signals, and the other one at the other place.
  const bool is_first = (signal == SIGKILL) == (place == FailureMoment::kInRounds);
  if (victim != 2 && is_first != (victim == 0) && !test::IsWide()) return;
  CAPTURE(signal, static_cast<int>(place), victim);
  CHECK(Play({.place = place,
              .victim = victim,
              .signal = signal,
              .rank_count = 5,
              .ranks_per_host = 2}) == std::vector<std::string>());
}

TEST_CASE("A second root of a host that fails is told on all hosts", "[.][hosts]") {
  const int victim = GENERATE(0, 4);  // the first root of host 0, the second of host 1
  CAPTURE(victim);
  CHECK(Play({.place = FailureMoment::kInLarge,
              .victim = victim,
              .signal = SIGKILL,
              .rank_count = 5,
              .ranks_per_host = 3,
              .host_roots = 2}) == std::vector<std::string>());
}

// Iterates until the whole job has been stopped for long and goes on, and a while longer.
std::string RunThroughAPause(ranks::Group& group, ForkedJob& job, const std::string& coordinator) {
  FirstNote notes;
  SyncOptions options;
  options.coordinator = coordinator;
  options.stall_limit = 7s;
  SyncParts parts;
  parts.log = [&notes](const std::string& line) { notes.Add(line); };
  auto made = Synchronizer::Create(group, options, std::move(parts));
  if (!made) return "Create: " + made.error().message();
  int iteration = 0;
  for (bool is_over = false; !is_over; ++iteration) {
    std::string wrong = Train(**made, iteration, iteration + 1);
    if (!wrong.empty()) return wrong;
    if (iteration == 8) {
      // One rank is late, so that the others are stopped while they wait.
      job.SayReady();
      if (group.rank() == 1) std::this_thread::sleep_for(600ms);
    }
    // All ranks decide alike.
    std::vector<float> going_on(1, job.SecondsSinceSignal() < 1 ? 1.0F : 0.0F);
    const Status told = SyncJob::Sum(**made, "going on", going_on);
    if (!told) return told.error().message();
    is_over = iteration > 8 && going_on[0] == 0;
  }
  std::string wrong = Train(**made, iteration, iteration + 8);
  if (!wrong.empty()) return wrong;
  const Status down = (*made)->Shutdown();
  if (!down) return "Shutdown: " + down.error().message();
  return notes.text().find("rank") == std::string::npos ? "" : notes.text();
}

TEST_CASE("A job that is stopped as a whole, and goes on, has no failed rank", "[sync][failure]") {
  constexpr int kRanks = 3;
  std::vector<std::unique_ptr<ForkedJob>> jobs;
  for (size_t i = 0; i < 2 * kCoordinators.size(); ++i) {
    auto& job = jobs.emplace_back(std::make_unique<ForkedJob>(kRanks, i % 2 == 0 ? kRanks : 2));
    job->Start([&](ranks::Group& group, ForkedJob& own) {
      return RunThroughAPause(group, own, kCoordinators[i / 2]);
    });
  }
  for (auto& job : jobs) CHECK(job->AwaitReady());
  for (auto& job : jobs) job->SendAll(SIGSTOP);
  std::this_thread::sleep_for(10s);
  for (auto& job : jobs) job->SendAll(SIGCONT);
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (int rank = 0; rank < kRanks; ++rank) {
      CAPTURE(kCoordinators[i / 2], i % 2, rank);
      CHECK(jobs[i]->EndOf(rank).empty());
    }
  }
}

}  // namespace
}  // namespace lmdbio::sync
