// Goal: results and failures of a handle belong to a thread and end with it, and a child of fork()
// waits for no thread of its parent.
#include "lmdbio/api/c/handles.h"
#include "tests/support/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lmdbio::api {
namespace {

struct Counted : ThreadFailure {
  std::shared_ptr<int> token = std::make_shared<int>(0);
};
using State = SharedHandleState<Counted>;

TEST_CASE("Each thread has its own words and results", "[c]") {
  const auto state = std::make_shared<State>();
  std::atomic<int> foreign_count{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const std::string words = "thread " + std::to_string(i);
      for (int round = 0; round < 200; ++round) {
        static_cast<void>(state->Keep(LMDBIO_IO, words, i));
        std::this_thread::yield();
        if (state->LastWords() != words || state->LastErrorNumber() != i) ++foreign_count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(foreign_count == 0);
}

TEST_CASE("The results of a thread end with it", "[c]") {
  auto state = std::make_shared<State>();
  const auto other = std::make_shared<State>();
  std::weak_ptr<int> of_thread;
  std::weak_ptr<int> of_other;
  const std::weak_ptr<int> of_this = state->lent().token;
  std::thread([&] {
    of_thread = state->lent().token;
    of_other = other->lent().token;
    std::thread([&] { static_cast<void>(state->lent()); }).join();
    CHECK_FALSE(of_thread.expired());
  }).join();
  CHECK(of_thread.expired());
  CHECK(of_other.expired());
  CHECK_FALSE(of_this.expired());
  // The object may end before its threads.
  std::atomic<bool> has_used{false};
  std::atomic<bool> may_end{false};
  std::thread last([&] {
    static_cast<void>(state->lent());
    has_used = true;
    while (!may_end) std::this_thread::yield();
  });
  while (!has_used) std::this_thread::yield();
  state.reset();
  CHECK(of_this.expired());
  may_end = true;
  last.join();
}

TEST_CASE("A failure leaves its words and its errno", "[c]") {
  const auto state = std::make_shared<State>();
  CHECK(state->Keep(Error(ErrorCode::kIo, "the disk is gone", EIO)) == LMDBIO_IO);
  CHECK(std::string(state->LastWords()) == "the disk is gone");
  CHECK(state->LastErrorNumber() == EIO);
  CHECK(state->Keep(LMDBIO_INVALID_ARGUMENT, "rows is NULL") == LMDBIO_INVALID_ARGUMENT);
  CHECK(state->LastErrorNumber() == 0);
  const auto fail = []() -> int { throw std::bad_alloc(); };
  CHECK(Guarded(state.get(), fail) == LMDBIO_RESOURCE_EXHAUSTED);
  CHECK(std::string(state->LastWords()).empty());
  CHECK(state->LastErrorNumber() == ENOMEM);
}

TEST_CASE("A thread is not cancelled within a call", "[c]") {
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_end{false};
  std::atomic<bool> has_left{false};
  pthread_t thread;
  struct Flags {
    std::atomic<bool>&is_inside, &may_end, &has_left;
  } flags{is_inside, may_end, has_left};
  const auto run = [](void* argument) -> void* {
    auto& of = *static_cast<Flags*>(argument);
    static_cast<void>(Guarded(nullptr, [&] {
      of.is_inside = true;
      while (!of.may_end) ::usleep(100);  // a cancellation point
      of.has_left = true;
      return LMDBIO_OK;
    }));
    while (true) ::pause();
  };
  REQUIRE(::pthread_create(&thread, nullptr, run, &flags) == 0);
  while (!is_inside) std::this_thread::yield();
  REQUIRE(::pthread_cancel(thread) == 0);
  ::usleep(10'000);
  may_end = true;
  void* result = nullptr;
  REQUIRE(::pthread_join(thread, &result) == 0);
  CHECK(has_left);
  CHECK(result == PTHREAD_CANCELED);
}

TEST_CASE("A child of fork() waits for no thread of its parent", "[c]") {
  const auto state = std::make_shared<State>();
  static_cast<void>(state->Keep(LMDBIO_IO, "of the parent"));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const bool says_why = std::strstr(state->LastWords(), "fork") != nullptr;
    state->Forget(0);
    state->ForgetThisThread();
    const bool keeps = state->Keep(LMDBIO_FORKED, "x") == LMDBIO_FORKED;
    ::_exit(says_why && keeps && state->LastErrorNumber() == 0 ? 0 : 1);
  }
  int ended = -1;
  REQUIRE(::waitpid(child, &ended, 0) == child);
  CHECK(WIFEXITED(ended));
  CHECK(WEXITSTATUS(ended) == 0);
  CHECK(std::string(state->LastWords()) == "of the parent");
}

}  // namespace
}  // namespace lmdbio::api
