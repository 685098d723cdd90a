// Goal: sync_bench counts each sleep, switch and batch once, for the thread that it belongs to.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/input_load.h"
#include "bench/sync/sleep_lateness.h"
#include "bench/sync/thread_clocks.h"
#include "lmdbio/sync/collective/collectives.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::bench {
namespace {

using test::Good;

// A thread that lives until the end of its scope, and repeats `step`.
template <typename Step>
class LoopingThread {
 public:
  explicit LoopingThread(Step step)
      : thread_([this, step] {
          number_ = ::gettid();
          while (!is_ending_) step();
        }) {
    while (number_ == 0) std::this_thread::yield();
  }
  ~LoopingThread() {
    is_ending_ = true;
    thread_.join();
  }

  pid_t number() const { return number_; }

 private:
  std::atomic<pid_t> number_{0};
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

TEST_CASE("LatenessCounts give the quantiles of a sorted list, to a sixteenth", "[sleep]") {
  std::mt19937_64 chance(1);
  std::vector<uint64_t> values;
  LatenessCounts counts;
  for (int i = 0; i < 10'000; ++i) {
    values.push_back(chance() >> (24 + chance() % 40));
    counts.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  CHECK(counts.sleep_count() == values.size());
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 1.0}) {
    const auto place = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))) - 1;
    const auto expected = static_cast<double>(values[place]);
    CHECK(std::abs(counts.QuantileNs(q) - expected) <= expected / 16);
  }
  CHECK(LatenessCounts().QuantileNs(0.5) == 0);
}

TEST_CASE("Classes of lateness grow with it and have an end", "[sleep]") {
  for (uint64_t late = 0; late < 5000; ++late) {
    const size_t step = LatenessCounts::ClassOf(late + 1) - LatenessCounts::ClassOf(late);
    CHECK(step <= 1);
  }
  CHECK(LatenessCounts::ClassOf((uint64_t{1} << 43) - 1) == LatenessCounts::kClassCount - 1);
  CHECK(LatenessCounts::ClassOf(~uint64_t{0}) == LatenessCounts::kClassCount - 1);
}

TEST_CASE("Each sleep counts for the thread that slept", "[sleep]") {
  const std::vector<pid_t> self = {::gettid()};
  const LatenessCounts before = LatenessOf(self);
  for (int i = 0; i < 7; ++i) std::this_thread::sleep_for(std::chrono::microseconds(10));
  pid_t other = 0;
  std::thread([&other] {
    other = ::gettid();
    for (int i = 0; i < 3; ++i) std::this_thread::sleep_for(std::chrono::microseconds(10));
  }).join();
  CHECK((LatenessOf(self) - before).sleep_count() == 7);
  CHECK(LatenessOf({other}).sleep_count() == 3);
  CHECK((LatenessOf({self.front(), other}) - before).sleep_count() == 10);
}

TEST_CASE("nanosleep fails as that of the C library does, and such a sleep does not count",
          "[sleep]") {
  const LatenessCounts before = LatenessOf({::gettid()});
  const timespec wrong = {.tv_sec = 0, .tv_nsec = -1};
  errno = 0;
  CHECK(::nanosleep(&wrong, nullptr) == -1);
  CHECK(errno == EINVAL);
  CHECK((LatenessOf({::gettid()}) - before).sleep_count() == 0);
}

TEST_CASE("Threads that share a core lose it; one that sleeps gives it up", "[threads]") {
  const CoreList core = {Good(ProcessCores()).allowed.front()};
  const auto spin = [] {};
  const LoopingThread one(spin);
  const LoopingThread other(spin);
  const LoopingThread sleeper([] { std::this_thread::sleep_for(std::chrono::microseconds(100)); });
  REQUIRE(PinThreads({one.number(), other.number()}, core).has_value());
  while (TimeOf(one.number()).involuntary_count < 3 ||
         TimeOf(other.number()).involuntary_count < 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const ThreadTime sum = TimeOf({one.number(), other.number()});
  CHECK(sum.involuntary_count >= 6);
  const ThreadTime slept = TimeOf(sleeper.number());
  CHECK(LatenessOf({sleeper.number()}).sleep_count() > 0);
  // A kernel that counts starts counts one for each sleep.
  if (sum.start_count > 0) CHECK(slept.start_count > slept.involuntary_count);
}

TEST_CASE("PinThreads pins the threads that it is given", "[threads]") {
  const CoreList all = Good(ProcessCores()).allowed;
  const CoreList first = {all.front()};
  const auto doze = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  const LoopingThread one(doze);
  const LoopingThread other(doze);
  REQUIRE(PinThreads({one.number()}, first).has_value());
  CHECK(CoresOf({one.number()}) == CoresText(first));
  CHECK(CoresOf({other.number()}) == CoresText(all));
  CHECK(CoresOf({one.number(), other.number()}) == CoresText(all));
  REQUIRE(PinThreads({one.number()}, {}).has_value());
  CHECK(CoresOf({one.number()}) == CoresText(first));
  REQUIRE(PinThreads({one.number()}, all).has_value());
  CHECK(CoresOf({one.number()}) == CoresText(all));
  CHECK(CoresOf({}).empty());

  const Status pinned = PinThreads({one.number()}, {60'000});
  REQUIRE_FALSE(pinned.has_value());
  CHECK(pinned.error().code() == ErrorCode::kInvalidArgument);
  CHECK(pinned.error().message().find("cores 60000") != std::string::npos);
}

constexpr uint64_t kLongBatch = 20'000;

void AwaitMoreBusyTime(const InputLoad& load) {
  const std::chrono::nanoseconds before = load.BusyTime();
  while (load.BusyTime() == before) std::this_thread::yield();
}

TEST_CASE("Input threads prepare one batch in each iteration", "[input]") {
  InputLoad load({.thread_count = 2, .units_per_batch = 100, .is_by_iteration = true});
  REQUIRE(load.threads().size() == 2);
  CHECK(load.BusyTime().count() == 0);
  for (uint64_t i = 0; i < 10; ++i) {
    load.BeginIteration();  // waits for the batches of the one before
    CHECK(load.batch_count() >= 2 * i);
    CHECK(load.batch_count() <= 2 * (i + 1));
  }
  CHECK(load.BusyTime().count() > 0);
}

TEST_CASE("A load without threads does not hold an iteration up", "[input]") {
  InputLoad load({.thread_count = 0, .units_per_batch = 100, .is_by_iteration = true});
  for (int i = 0; i < 3; ++i) load.BeginIteration();
  CHECK(load.threads().empty());
  CHECK(load.BusyTime().count() == 0);
}

TEST_CASE("The busy time of threads that work at once is that of one", "[input]") {
  const auto began = std::chrono::steady_clock::now();
  InputLoad load({.thread_count = 3, .units_per_batch = kLongBatch, .is_by_iteration = true});
  load.BeginIteration();
  load.BeginIteration();
  const std::chrono::nanoseconds busy = load.BusyTime();
  CHECK(busy.count() > 0);
  CHECK(busy <= std::chrono::steady_clock::now() - began);
}

TEST_CASE("The window ends at the first transfer, and adds up over iterations", "[input]") {
  InputLoad load({.thread_count = 1, .units_per_batch = kLongBatch, .is_by_iteration = true});
  InputWindow window(load);
  window.OnTransfer();  // not open
  CHECK(window.early_count() == 0);
  CHECK(window.total().count() == 0);
  window.Open();
  load.BeginIteration();
  AwaitMoreBusyTime(load);
  window.OnTransfer();
  const std::chrono::nanoseconds first = window.total();
  CHECK(first.count() > 0);
  CHECK(first <= load.BusyTime());
  load.BeginIteration();  // the rest of the batch comes after the first transfer
  AwaitMoreBusyTime(load);
  window.OnComputed();
  CHECK(window.total() == first);
  window.Open();
  load.BeginIteration();
  AwaitMoreBusyTime(load);
  window.OnComputed();
  window.OnTransfer();
  CHECK(window.total() > first);
  CHECK(window.total() <= load.BusyTime());
  CHECK(window.early_count() == 1);  // in the first of the two iterations
}

// Collectives that name the call and the state of the window at its begin.
class RecordingCollectives final : public sync::Collectives {
 public:
  RecordingCollectives(const InputWindow& window, std::vector<std::string>& calls)
      : window_(window), calls_(calls) {}

  int rank() const override { return 3; }
  int size() const override { return 5; }
  Result<sync::CallOutcome> AllReduce(const sync::CallTag& tag, const sync::Values& values,
                                      const sync::Reduction&) override {
    return Note("AllReduce", tag.digest + values.count);
  }
  Result<sync::CallOutcome> ReduceScatter(const sync::CallTag& tag, const sync::Values&, std::byte*,
                                          std::span<const uint64_t> counts,
                                          const sync::Reduction&) override {
    return Note("ReduceScatter", tag.digest + counts.size());
  }
  Result<sync::CallOutcome> AllGather(const sync::CallTag& tag, Bytes mine, MutableBytes,
                                      std::span<const uint64_t>) override {
    return Note("AllGather", tag.digest + mine.size());
  }
  Result<sync::CallOutcome> Broadcast(const sync::CallTag& tag, MutableBytes, int root) override {
    return Note("Broadcast", tag.digest + static_cast<uint64_t>(root));
  }
  Result<sync::CallOutcome> AllToAll(const sync::CallTag& tag, Bytes, std::span<const uint64_t>,
                                     MutableBytes, std::span<const uint64_t>) override {
    return Note("AllToAll", tag.digest);
  }
  Result<sync::CallOutcome> Barrier(const sync::CallTag& tag) override {
    return Note("Barrier", tag.digest);
  }
  MutableBytes registered() const override { return {&memory_, 1}; }
  uint64_t ample_bytes() const override { return 77; }
  std::string Description() const override { return "recording"; }
  bool writes_after_failure() const override { return true; }
  void Stop(const Error& why) override { calls_.push_back(why.message()); }

 private:
  Result<sync::CallOutcome> Note(const char* name, uint64_t number) {
    calls_.push_back(fmt::format("{} {}, {} early", name, number, window_.early_count()));
    return sync::CallOutcome::kDeclined;
  }

  const InputWindow& window_;
  std::vector<std::string>& calls_;
  mutable std::byte memory_{};
};

TEST_CASE("Watched collectives report an AllReduce before it begins, and pass all calls on",
          "[input]") {
  InputLoad load({});
  InputWindow window(load);
  std::vector<std::string> calls;
  const auto watched =
      WatchTransfers(std::make_unique<RecordingCollectives>(window, calls), window);
  const sync::CallTag tag = {.digest = 10};
  const std::vector<uint64_t> counts(4);
  std::byte byte{};
  window.Open();
  CHECK(Good(watched->Barrier(tag)) == sync::CallOutcome::kDeclined);
  Good(watched->Broadcast(tag, {}, 2));
  Good(watched->AllGather(tag, {&byte, 1}, {}, {}));
  Good(watched->AllToAll(tag, {}, {}, {}, {}));
  Good(watched->ReduceScatter(tag, {}, nullptr, counts, sync::ReduceOp::kSum));
  Good(watched->AllReduce(tag, {.data = &byte, .count = 7}, sync::ReduceOp::kSum));
  watched->Stop(Error(ErrorCode::kInternal, "stopped"));
  CHECK(calls == std::vector<std::string>{"Barrier 10, 0 early", "Broadcast 12, 0 early",
                                          "AllGather 11, 0 early", "AllToAll 10, 0 early",
                                          "ReduceScatter 14, 0 early", "AllReduce 17, 1 early",
                                          "stopped"});
  CHECK(watched->rank() == 3);
  CHECK(watched->size() == 5);
  CHECK(watched->registered().size() == 1);
  CHECK(watched->ample_bytes() == 77);
  CHECK(watched->Description() == "recording");
  CHECK(watched->writes_after_failure());
}

}  // namespace
}  // namespace lmdbio::bench
