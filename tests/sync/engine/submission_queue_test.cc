// Goal: the queue wakes the helper thread when there is enough to do, and only then. Without these
// wake-ups every operation would take as long as the helper thread sleeps.
#include "lmdbio/sync/engine/submission_queue.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

struct WakingQueue {
  int wake_count = 0;
  SubmissionQueue queue{[this] { ++wake_count; }};

  Status Submit(const std::string& name) {
    auto task = std::make_shared<Task>();
    task->submission.request.name = name;
    return queue.Submit({std::move(task)});
  }
};

TEST_CASE("A submission wakes the helper thread", "[sync][queue]") {
  WakingQueue waking;
  REQUIRE(waking.Submit("a"));
  REQUIRE(waking.wake_count == 1);
  const std::vector<ProgramEvent> events = waking.queue.Take();
  REQUIRE(events.size() == 1);
  REQUIRE(events.front().submitted->name() == "a");
  REQUIRE(waking.queue.is_empty());
}

TEST_CASE("The helper thread is woken when the submissions it sleeps for have come",
          "[sync][queue]") {
  WakingQueue waking;
  waking.queue.SetWakeCount(3);
  REQUIRE(waking.Submit("a"));
  REQUIRE(waking.Submit("b"));
  REQUIRE(waking.wake_count == 0);
  REQUIRE(waking.Submit("c"));
  REQUIRE(waking.wake_count == 1);
}

TEST_CASE("Submissions that came before the sleep end it", "[sync][queue]") {
  WakingQueue waking;
  waking.queue.SetWakeCount(5);
  REQUIRE(waking.Submit("a"));
  REQUIRE(waking.Submit("b"));
  REQUIRE(waking.wake_count == 0);
  waking.queue.SetWakeCount(2);  // they came between Take and this call
  REQUIRE(waking.wake_count == 1);
}

TEST_CASE("A thread that begins to wait wakes the helper thread", "[sync][queue]") {
  WakingQueue waking;
  waking.queue.SetWakeCount(5);
  waking.queue.BeginWait();
  REQUIRE(waking.wake_count == 0);  // there is nothing to do
  waking.queue.EndWait("", SubmissionQueue::Got::kNothing, {});
  REQUIRE(waking.Submit("a"));
  REQUIRE(waking.wake_count == 0);
  waking.queue.BeginWait();
  REQUIRE(waking.wake_count == 1);
  REQUIRE(waking.queue.is_waited_for());
  waking.queue.EndWait("a", SubmissionQueue::Got::kResult, {});
  REQUIRE_FALSE(waking.queue.is_waited_for());
}

TEST_CASE("Waits are told only while they are asked for", "[sync][queue]") {
  WakingQueue waking;
  waking.queue.TellWaited("a");
  REQUIRE(waking.queue.is_empty());
  waking.queue.SetWaits(SubmissionQueue::Waits::kTold);
  waking.queue.TellWaited("a");
  waking.queue.BeginWait();
  waking.queue.EndWait("b", SubmissionQueue::Got::kResult, {});
  const std::vector<ProgramEvent> events = waking.queue.Take();
  REQUIRE(events.size() == 2);
  REQUIRE(events[0].waited == "a");
  REQUIRE(events[1].waited == "b");
}

TEST_CASE("Events have the time of the program without its waits", "[sync][queue]") {
  WakingQueue waking;
  waking.queue.SetWaits(SubmissionQueue::Waits::kTold);
  REQUIRE(waking.Submit("a"));
  const WaitBegin first = waking.queue.BeginWait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  waking.queue.EndWait("a", SubmissionQueue::Got::kResult, first);
  const WaitBegin second = waking.queue.BeginWait();
  waking.queue.EndWait("a", SubmissionQueue::Got::kResult, second);
  REQUIRE(waking.Submit("b"));
  const std::vector<ProgramEvent> events = waking.queue.Take();
  REQUIRE(events.size() == 4);
  CHECK(events[0].program_ns <= events[1].program_ns);
  CHECK(events[1].program_ns == first.program_ns);
  CHECK(events[2].program_ns == second.program_ns);
  CHECK(events[2].program_ns <= events[3].program_ns);
  // The sleep was a wait.
  constexpr int64_t kSleepNs = 20'000'000;
  CHECK(second.steady_ns - first.steady_ns >= kSleepNs);
  CHECK((second.steady_ns - first.steady_ns) - (second.program_ns - first.program_ns) >= kSleepNs);
}

TEST_CASE("A closed queue refuses with its reason and wakes nobody", "[sync][queue]") {
  WakingQueue waking;
  REQUIRE(waking.Submit("a"));
  const auto left = waking.queue.Close(Error(ErrorCode::kPeerFailed, "rank 1 has ended"));
  REQUIRE(left.size() == 1);
  waking.wake_count = 0;
  const Status refused = waking.Submit("b");
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().message() == "rank 1 has ended");
  waking.queue.BeginWait();
  REQUIRE(waking.wake_count == 0);
}

}  // namespace
}  // namespace lmdbio::sync
