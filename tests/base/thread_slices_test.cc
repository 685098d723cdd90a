// Goal: a thread can request short slices. Its other attributes and other threads do not change.
// Its sleeps end in time while it looks for something, and are as before later.

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "lmdbio/base/thread_times.h"
#include "tests/support/catch.h"

namespace lmdbio {
namespace {

int NiceOfThisThread() {
  return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
}

TEST_CASE("A thread with short slices keeps its niceness, and others keep their slices",
          "[thread_slices]") {
  const auto before = ThreadSlice();
  if (!before) {
    WARN("SKIPPED: this kernel has no slices for single threads");
    ShortenThreadSlices();  // must do nothing
    return;
  }
  CHECK(*before > kShortSlice);
  std::thread([&] {
    const int nice = NiceOfThisThread();
    ShortenThreadSlices();
    CHECK(ThreadSlice() == kShortSlice);
    CHECK(NiceOfThisThread() == nice);
    CHECK(::sched_getscheduler(0) == SCHED_OTHER);
    ShortenThreadSlices();  // a second call changes nothing
    CHECK(ThreadSlice() == kShortSlice);
  }).join();
  CHECK(ThreadSlice() == before);
}

TEST_CASE("Short slices keep niceness and batch policy of a thread", "[thread_slices]") {
  std::thread([] {
    const auto id = static_cast<id_t>(::syscall(SYS_gettid));
    REQUIRE(::setpriority(PRIO_PROCESS, id, NiceOfThisThread() + 1) == 0);
    const int nice = NiceOfThisThread();
    const sched_param none{};
    REQUIRE(::sched_setscheduler(0, SCHED_BATCH, &none) == 0);
    ShortenThreadSlices();
    CHECK(NiceOfThisThread() == nice);
    CHECK(::sched_getscheduler(0) == SCHED_BATCH);
  }).join();
}

TEST_CASE("Sleeps between two looks have no slack, and later ones have it again", "[look_pauses]") {
  REQUIRE(::prctl(PR_SET_TIMERSLACK, 60'000UL) == 0);
  {
    LookPauses pauses;
    CHECK(::prctl(PR_GET_TIMERSLACK) == 60'000);  // it has not slept yet
    std::this_thread::sleep_for(LookPauses::kLookTime);
    pauses.Pause();
    CHECK(::prctl(PR_GET_TIMERSLACK) == 1);
    LookPauses others;
    std::this_thread::sleep_for(LookPauses::kLookTime);
    others.Pause();
  }
  CHECK(::prctl(PR_GET_TIMERSLACK) == 60'000);
  ::prctl(PR_SET_TIMERSLACK, 0UL);  // that of the process
}

}  // namespace
}  // namespace lmdbio
