// Goal: the processor time of another thread can be read while it runs; its end gives an error.

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "lmdbio/base/thread_times.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio {
namespace {

using test::Good;

TEST_CASE("ThreadWatch distinguishes a working thread from a sleeping one", "[base]") {
  std::atomic<bool> stop{false};
  std::atomic<int> ready{0};
  std::optional<ThreadWatch> worker, sleeper;
  std::thread working([&] {
    worker.emplace();
    ready.fetch_add(1);
    while (!stop.load()) {
    }
  });
  std::thread sleeping([&] {
    sleeper.emplace();
    ready.fetch_add(1);
    stop.wait(false);
  });
  while (ready.load() < 2) std::this_thread::yield();
  const ThreadUsage before = Good(worker->Read());
  uint64_t grown = 0;
  // Even on a busy machine the thread reaches 20 ms of processor time at some time.
  while (grown < 20'000'000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ThreadUsage now = Good(worker->Read());
    CHECK(now.cpu_ns >= before.cpu_ns + grown);
    CHECK(now.run_delay_ns >= before.run_delay_ns);
    grown = now.cpu_ns - before.cpu_ns;
  }
  const ThreadUsage asleep = Good(sleeper->Read());
  CHECK(asleep.cpu_ns < Good(worker->Read()).cpu_ns);
  CHECK(asleep.has_run_delay == before.has_run_delay);
  stop.store(true);
  stop.notify_all();
  working.join();
  sleeping.join();
  // The kernel removes a thread from /proc a moment after join has returned.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  Result<ThreadUsage> gone = worker->Read();
  while (gone.has_value() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
    gone = worker->Read();
  }
  REQUIRE_FALSE(gone.has_value());
  CHECK(gone.error().code() == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lmdbio
