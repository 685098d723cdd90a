// Goal: a thread can ask for short slices, keeps everything else, and others are left alone.

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "lmdbio/base/thread_slices.h"
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
    ShortenThreadSlices();  // does nothing, and does not fail
    return;
  }
  CHECK(*before > kShortSlice);
  std::thread([&] {
    const int nice = NiceOfThisThread();
    ShortenThreadSlices();
    CHECK(ThreadSlice() == kShortSlice);
    CHECK(NiceOfThisThread() == nice);
    CHECK(::sched_getscheduler(0) == SCHED_OTHER);
    ShortenThreadSlices();  // again
    CHECK(ThreadSlice() == kShortSlice);
  }).join();
  CHECK(ThreadSlice() == before);
}

TEST_CASE("A thread that is nice and of the batch policy stays so with short slices",
          "[thread_slices]") {
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

}  // namespace
}  // namespace lmdbio
