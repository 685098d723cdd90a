#include "tests/gpu/check_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "tools/cli/cli.h"

namespace lmdbio::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookEveryMs = 20;

// The outcome as bytes in a pipe: a byte for the state, then the note.
constexpr std::array kStateBytes{'p', 'f', 'l'};

[[noreturn]] void PlayChild(const std::function<CheckOutcome()>& make, int pipe) {
  ::setpgid(0, 0);
  CheckOutcome outcome;
  try {
    outcome = make();
  } catch (const std::exception& error) {
    outcome = Failed(error.what());
  }
  const std::string text = kStateBytes[static_cast<size_t>(outcome.state)] + outcome.note;
  const ssize_t written = ::write(pipe, text.data(), text.size());
  std::fflush(stderr);
  ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
}

std::string EndWords(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return fmt::format("ended by signal {} ({})", number, ::strsignal(number));
}

CheckOutcome OutcomeOfText(const std::string& text, int wait_status) {
  for (size_t i = 0; i < kStateBytes.size(); ++i) {
    if (!text.empty() && text[0] == kStateBytes[i]) {
      return {static_cast<CheckState>(i), text.substr(1)};
    }
  }
  return Failed(EndWords(wait_status));
}

// Reads until the child has ended. False if that takes too long, or the user interrupts.
bool ReadUntilEnd(int pipe, pid_t child, double seconds_max, std::string& text, int& wait_status) {
  const auto limit = Clock::now() + std::chrono::duration<double>(seconds_max);
  std::array<char, 4096> buffer;
  bool is_open = true;
  while (true) {
    // Processes that the child has started may keep the pipe open, so its end alone says nothing.
    const bool has_ended = ::waitpid(child, &wait_status, WNOHANG) == child;
    pollfd look{.fd = is_open ? pipe : -1, .events = POLLIN, .revents = 0};
    while (::poll(&look, 1, has_ended ? 0 : kLookEveryMs) > 0 && is_open) {
      const ssize_t count = ::read(pipe, buffer.data(), buffer.size());
      is_open = count > 0;
      if (!is_open) look.fd = -1;
      if (is_open) text.append(buffer.data(), static_cast<size_t>(count));
    }
    if (has_ended) return true;
    if (Clock::now() > limit || tools::StopRequested()) return false;
  }
}

}  // namespace

CheckOutcome RunInProcess(const std::function<CheckOutcome()>& make, double seconds_max) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) PlayChild(make, write_end.get());
  ::setpgid(child, child);  // in both, because either may be first
  write_end = UniqueFd();
  std::string text;
  int wait_status = 0;
  const bool has_ended = ReadUntilEnd(read_end.get(), child, seconds_max, text, wait_status);
  ::kill(-child, SIGKILL);  // also ranks that it has left
  if (has_ended) return OutcomeOfText(text, wait_status);
  ::waitpid(child, &wait_status, 0);
  return Failed(tools::StopRequested() ? std::string("interrupted")
                                       : fmt::format("not done within {:.0f} s", seconds_max));
}

}  // namespace lmdbio::test
