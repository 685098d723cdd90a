// Goal: calls on one handle take turns, the log is called after the turn, and a child of fork()
// does not wait for a turn that only its parent can end.
#include "lmdbio/api/c/handles.h"
#include "tests/support/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace lmdbio::api {
namespace {

TEST_CASE("Calls of several threads take turns", "[c]") {
  HandleState state;
  int inside = 0;
  int overlaps = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        static_cast<void>(state.InTurn([&] {
          if (++inside != 1) ++overlaps;
          std::this_thread::yield();
          --inside;
          return LMDBIO_OK;
        }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(overlaps == 0);
}

TEST_CASE("The log may use the handle", "[c]") {
  HandleState state;
  struct Heard {
    HandleState* state;
    std::string words;
  } heard{&state, ""};
  state.log = [](void* context, const char* message) {
    auto* const to = static_cast<Heard*>(context);
    static_cast<void>(to->state->InTurn([&] {
      to->words += message;
      return LMDBIO_OK;
    }));
  };
  state.log_context = &heard;
  const int status = state.InTurn([&] {
    state.notes = {"one, ", "two"};
    return LMDBIO_IO;
  });
  CHECK(status == LMDBIO_IO);
  CHECK(heard.words == "one, two");
  CHECK(state.notes.empty());
}

TEST_CASE("A failure leaves its words and its errno", "[c]") {
  HandleState state;
  CHECK(state.Keep(Error(ErrorCode::kIo, "the disk is gone", EIO)) == LMDBIO_IO);
  CHECK(std::string(state.LastWords()) == "the disk is gone");
  CHECK(state.LastErrorNumber() == EIO);
  CHECK(state.Keep(LMDBIO_INVALID_ARGUMENT, "rows is NULL") == LMDBIO_INVALID_ARGUMENT);
  CHECK(state.LastErrorNumber() == 0);
  const auto fail = []() -> int { throw std::bad_alloc(); };
  CHECK(Guarded(&state, fail) == LMDBIO_RESOURCE_EXHAUSTED);
  CHECK(std::string(state.LastWords()).empty());
  CHECK(state.LastErrorNumber() == ENOMEM);
}

TEST_CASE("A child of fork() does not wait for a call of its parent's", "[c]") {
  HandleState state;
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_end{false};
  std::thread caller([&] {
    static_cast<void>(state.InTurn([&] {
      is_inside = true;
      while (!may_end) std::this_thread::yield();
      return LMDBIO_OK;
    }));
  });
  while (!is_inside) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const int status = state.InTurn([] { return LMDBIO_OK; });
    const bool says_why = std::strstr(state.LastWords(), "fork") != nullptr;
    ::_exit(status == LMDBIO_FORKED && says_why ? 0 : 1);
  }
  may_end = true;
  caller.join();
  int ended = -1;
  REQUIRE(::waitpid(child, &ended, 0) == child);
  CHECK(WIFEXITED(ended));
  CHECK(WEXITSTATUS(ended) == 0);
  CHECK(state.InTurn([] { return LMDBIO_OK; }) == LMDBIO_OK);
}

}  // namespace
}  // namespace lmdbio::api
