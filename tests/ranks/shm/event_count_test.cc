// Goal: no wake-up of an EventCount is lost, between threads and between processes, and a Notify
// without sleepers costs nothing.
// Method: the participants pass a number around, and each sleeps until it is its turn. The limit of
// a sleep is far longer than the whole test, so a lost wake-up is seen as one long sleep.
#include "lmdbio/ranks/shm/event_count.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLostAfter = 10s;  // no sleep of these tests takes as long, unless it is never ended

double SecondsOf(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// A number that the participants raise in turn.
struct Turns {
  std::atomic<uint32_t> next;
  EventCount changed;
  std::atomic<uint32_t> lost;

  // Participant `mine` of `count` raises the number `rounds` times.
  void Take(uint32_t mine, uint32_t count, uint32_t rounds) {
    for (uint32_t turn = mine; turn < count * rounds; turn += count) {
      const auto began = Clock::now();
      while (next.load() != turn) {
        changed.WaitUnless([&] { return next.load() == turn; }, kLostAfter);
        if (Clock::now() - began < kLostAfter) continue;
        lost.fetch_add(1);
        return;
      }
      next.store(turn + 1);
      changed.Notify();
    }
  }
};

TEST_CASE("EventCount loses no wake-up among threads", "[ranks][event_count]") {
  const uint32_t count = GENERATE(2U, 3U, 8U);
  CAPTURE(count);
  constexpr uint32_t kRounds = 3000;
  Turns turns{};
  std::vector<std::thread> threads;
  for (uint32_t mine = 0; mine < count; ++mine) {
    threads.emplace_back([&turns, mine, count] { turns.Take(mine, count, kRounds); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(turns.lost == 0);
  CHECK(turns.next == count * kRounds);
  CHECK_FALSE(turns.changed.has_sleepers());
}

TEST_CASE("EventCount loses no wake-up among processes", "[ranks][event_count]") {
  constexpr uint32_t kRounds = 3000;
  constexpr uint32_t kProcesses = 4;
  const test::SharedBytes memory(sizeof(Turns));
  auto& turns = *std::launder(reinterpret_cast<Turns*>(memory.bytes().data()));
  std::vector<pid_t> children;
  for (uint32_t mine = 0; mine < kProcesses; ++mine) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      turns.Take(mine, kProcesses, kRounds);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  CHECK(turns.lost == 0);
  CHECK(turns.next == kProcesses * kRounds);
}

TEST_CASE("EventCount: a notification after Prepare ends the wait at once",
          "[ranks][event_count]") {
  EventCount event;
  const EventCount::Ticket ticket = event.Prepare();
  CHECK(event.has_sleepers());
  event.Notify();
  const auto began = Clock::now();
  event.Wait(ticket, kLostAfter);
  CHECK(SecondsOf(Clock::now() - began) < 5);
  CHECK_FALSE(event.has_sleepers());
}

TEST_CASE("EventCount: a wait ends at its limit", "[ranks][event_count]") {
  const bool is_deadline = GENERATE(false, true);
  EventCount event;
  const auto began = Clock::now();
  const EventCount::Ticket ticket = event.Prepare();
  if (is_deadline) {
    event.Wait(ticket, began + 50ms);
  } else {
    event.Wait(ticket, 50ms);
  }
  CHECK(SecondsOf(Clock::now() - began) < 5);
  CHECK_FALSE(event.has_sleepers());
  event.Wait(event.Prepare(), began);  // a deadline in the past
  event.Wait(event.Prepare(), 0ms);
  CHECK(SecondsOf(Clock::now() - began) < 5);
  CHECK_FALSE(event.has_sleepers());
}

TEST_CASE("EventCount: a condition that holds needs no sleep", "[ranks][event_count]") {
  EventCount event;
  const auto began = Clock::now();
  event.WaitUnless([] { return true; }, kLostAfter);
  CHECK(SecondsOf(Clock::now() - began) < 5);
  CHECK_FALSE(event.has_sleepers());
  // A notification without sleepers leaves the epoch alone, so it makes no system call.
  const uint32_t before = event.Prepare().epoch;
  event.Cancel();
  event.Notify();
  CHECK(event.Prepare().epoch == before);
  event.Cancel();
}

TEST_CASE("EventCount: a sleeper that is killed costs no other its wake-up",
          "[ranks][event_count]") {
  const test::SharedBytes memory(sizeof(EventCount) + sizeof(std::atomic<uint32_t>));
  auto& event = *std::launder(reinterpret_cast<EventCount*>(memory.bytes().data()));
  auto& is_met =
      *std::launder(reinterpret_cast<std::atomic<uint32_t>*>(&memory.bytes()[sizeof(EventCount)]));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    while (true) event.Wait(event.Prepare(), kLostAfter);
  }
  while (!event.has_sleepers()) std::this_thread::sleep_for(1ms);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE(event.has_sleepers());
  double seconds = 0;
  std::thread sleeper([&] {
    const auto began = Clock::now();
    while (is_met.load() == 0) {
      event.WaitUnless([&] { return is_met.load() != 0; }, kLostAfter);
    }
    seconds = SecondsOf(Clock::now() - began);
  });
  std::this_thread::sleep_for(20ms);
  is_met.store(1);
  event.Notify();
  sleeper.join();
  CHECK(seconds < 5);
}

}  // namespace
}  // namespace lmdbio::ranks
