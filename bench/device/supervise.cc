#include "bench/device/supervise.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "bench/device/probe_part.h"
#include "lmdbio/base/errno_error.h"
#include "tools/cli/cli.h"

namespace lmdbio::probe {
namespace {

constexpr int kFirstInherited = 3;
constexpr double kReapSecondsMax = 2;
constexpr auto kLookEvery = std::chrono::milliseconds(1);

// Descriptors below 10 are free for the new process.
UniqueFd Above(int descriptor) { return UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 10)); }

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void Pass(int descriptor, int number) {
    ::posix_spawn_file_actions_adddup2(&actions_, descriptor, number);
  }
  void LeadNowhere(int number, int flags) {
    ::posix_spawn_file_actions_addopen(&actions_, number, "/dev/null", flags, 0);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

}  // namespace

Result<ChildProcess> ChildProcess::Start(const std::vector<std::string>& words,
                                         const std::vector<int>& inherited, int output) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Fail(ErrnoError(errno, words.front(), "pipe2"));
  UniqueFd read_end(ends[0]);
  const UniqueFd pipe_end(ends[1]);
  const UniqueFd write_end = Above(pipe_end.get());
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  FileActions actions;
  actions.LeadNowhere(STDIN_FILENO, O_RDONLY);
  if (output != STDOUT_FILENO) actions.LeadNowhere(STDOUT_FILENO, O_WRONLY);
  std::vector<UniqueFd> passed;
  for (const int descriptor : inherited) {
    passed.push_back(Above(descriptor));
    actions.Pass(passed.back().get(), kFirstInherited + static_cast<int>(passed.size()) - 1);
  }
  actions.Pass(write_end.get(), output);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int failure =
      ::posix_spawnp(&pid, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  if (failure != 0) return Fail(ErrnoError(failure, words.front(), "start"));
  return ChildProcess(pid, std::move(read_end));
}

ChildProcess::~ChildProcess() {
  if (pid_ == 0 || HasEnded()) return;
  Kill();
  const double begin = SecondsNow();
  while (!HasEnded() && SecondsNow() - begin < kReapSecondsMax) {
    std::this_thread::sleep_for(kLookEvery);
  }
}

bool ChildProcess::Read() {
  std::array<char, 4096> buffer;
  while (output_) {
    const ssize_t count = ::read(output_.get(), buffer.data(), buffer.size());
    if (count > 0) {
      text_.append(buffer.data(), static_cast<size_t>(count));
    } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      return true;
    } else {
      output_ = UniqueFd();
    }
  }
  return false;
}

bool ChildProcess::HasEnded() {
  if (wait_status_) return true;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  return wait_status_.has_value();
}

void ChildProcess::Kill() const {
  if (!wait_status_) ::kill(pid_, SIGKILL);
}

SupervisedEnd Supervise(std::span<ChildProcess> processes, ProbeBoard* board, double seconds_max,
                        SuperviseUntil until) {
  SupervisedEnd end = SupervisedEnd::kEnded;
  double limit = SecondsNow() + seconds_max;
  bool are_killed = false;
  while (true) {
    bool is_any_left = false;
    for (size_t i = 0; i < processes.size(); ++i) {
      ChildProcess& process = processes[i];
      if (board != nullptr && board->wants_kill[i].load() != 0) process.Kill();
      const bool has_ended = process.HasEnded();  // before the last look at its pipe
      const bool is_silent = !process.Read() && until == SuperviseUntil::kSilence;
      if (has_ended && board != nullptr) board->is_gone[i].store(1);
      is_any_left = is_any_left || (!has_ended && !is_silent);
    }
    if (!is_any_left) return end;
    if (!are_killed && (SecondsNow() > limit || tools::StopRequested())) {
      end = tools::StopRequested() ? SupervisedEnd::kInterrupted : SupervisedEnd::kLate;
      for (const ChildProcess& process : processes) process.Kill();
      are_killed = true;
      limit = SecondsNow() + kReapSecondsMax;
    } else if (are_killed && SecondsNow() > limit) {
      return end;  // a process that cannot be ended
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

std::string EndWords(const std::optional<int>& wait_status) {
  if (!wait_status) return "cannot be ended";
  if (WIFSIGNALED(*wait_status)) {
    const int number = WTERMSIG(*wait_status);
    return fmt::format("ended by signal {} ({})", number, ::strsignal(number));
  }
  return fmt::format("exit code {}", WEXITSTATUS(*wait_status));
}

}  // namespace lmdbio::probe
