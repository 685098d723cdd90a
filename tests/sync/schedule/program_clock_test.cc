// Goal: waits of a program are no time of its computing.
#include "lmdbio/sync/schedule/program_clock.h"

#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

// The names of threads that do not run.
class ThreadNames {
 public:
  explicit ThreadNames(size_t count) {
    // Together, because an id may be used again when its thread has ended.
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([] {});
    for (std::thread& thread : threads_) ids_.push_back(thread.get_id());
    for (std::thread& thread : threads_) thread.join();
  }
  std::thread::id operator[](size_t i) const { return ids_[i]; }

 private:
  std::vector<std::thread> threads_;
  std::vector<std::thread::id> ids_;
};

TEST_CASE("The clock stands still while the only thread waits", "[program_clock]") {
  const ThreadNames threads(1);
  ProgramClock clock;
  CHECK(clock.Read(1000) == 0);
  CHECK(clock.Read(1500) == 500);
  clock.BeginWait(threads[0], 1700);
  CHECK(clock.Read(1900) == 700);
  clock.EndWait(threads[0], 2900);
  CHECK(clock.Read(3000) == 800);
  CHECK(clock.Read(2950) == 800);  // a reading that comes late
  CHECK(clock.Read(3100) == 900);
}

TEST_CASE("Computing beside the wait of another thread counts", "[program_clock]") {
  const ThreadNames threads(2);
  ProgramClock clock;
  clock.BeginWait(threads[0], 0);
  clock.BeginWait(threads[1], 10);
  CHECK(clock.Read(20) == 0);  // only the first one had ever waited, and now both wait
  clock.EndWait(threads[0], 30);
  CHECK(clock.Read(50) == 20);
  clock.BeginWait(threads[0], 60);
  clock.EndWait(threads[1], 100);
  clock.EndWait(threads[0], 120);
  CHECK(clock.Read(130) == 30 + 20 + 10);
}

TEST_CASE("A wait within a wait of one thread is one wait", "[program_clock]") {
  const ThreadNames threads(1);
  ProgramClock clock;
  clock.BeginWait(threads[0], 0);
  clock.BeginWait(threads[0], 10);
  clock.EndWait(threads[0], 20);
  CHECK(clock.Read(30) == 0);
  clock.EndWait(threads[0], 40);
  CHECK(clock.Read(45) == 5);
}

TEST_CASE("A thread that has not waited for long counts no more", "[program_clock]") {
  const ThreadNames threads(2);
  constexpr int64_t kLong = ProgramClock::kForgottenAfterNs;
  ProgramClock clock;
  clock.BeginWait(threads[1], 0);
  clock.EndWait(threads[1], 10);
  clock.BeginWait(threads[0], 20);  // the other one may compute
  CHECK(clock.Read(30) == 20);
  clock.EndWait(threads[0], 30);
  clock.BeginWait(threads[0], kLong + 11);
  CHECK(clock.Read(kLong + 100) == kLong + 1);
}

}  // namespace
}  // namespace lmdbio::sync
