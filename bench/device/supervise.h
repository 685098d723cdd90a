// bench/device/supervise.h - starts processes of the probe, reads what they write, and ends them.
#ifndef LMDBIO_BENCH_DEVICE_SUPERVISE_H_
#define LMDBIO_BENCH_DEVICE_SUPERVISE_H_

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/probe_board.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::probe {

// A program that runs, and a pipe from it. The destructor ends it.
class ChildProcess {
 public:
  // words      the program, which is looked for in PATH, and its arguments
  // inherited  descriptors of this process; the k-th has the number 3 + k in the new process
  // output     the number of the pipe in the new process; its standard output if it is 1, else that
  //            leads nowhere
  // Errors: kNotFound, kPermission, kInternal...  the program cannot be started, with its name
  static Result<ChildProcess> Start(const std::vector<std::string>& words,
                                    const std::vector<int>& inherited, int output);

  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)),
        output_(std::move(other.output_)),
        text_(std::move(other.text_)),
        wait_status_(other.wait_status_) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  // SIGKILL; waits for its end, 2 s at most.
  ~ChildProcess();

  // Reads what is in the pipe. Does not wait. False at its end.
  bool Read();
  // Whether it has ended. Does not wait.
  bool HasEnded();
  void Kill() const;

  const std::string& text() const { return text_; }
  // As of waitpid; nothing while it runs.
  std::optional<int> wait_status() const { return wait_status_; }

 private:
  ChildProcess(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_;  // 0: moved away
  UniqueFd output_;
  std::string text_;
  std::optional<int> wait_status_;
};

enum class SupervisedEnd { kEnded, kLate, kInterrupted };

// kSilence: a process that has closed its pipe may go on.
enum class SuperviseUntil { kEnd, kSilence };

// Reads the pipes until all processes have ended. Kills a process that asks for it on the board,
// and tells the board of each end. When the time is over, or the user interrupts the program, kills
// all.
// board  null: the processes have none
SupervisedEnd Supervise(std::span<ChildProcess> processes, ProbeBoard* board, double seconds_max,
                        SuperviseUntil until = SuperviseUntil::kEnd);

// "ended by signal 9 (Killed)", "exit code 1"; of a process that has not ended: "cannot be ended".
std::string EndWords(const std::optional<int>& wait_status);

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_SUPERVISE_H_
