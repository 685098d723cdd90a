// tests/load/slots/process_ranks.h - ranks of one host as processes that a test can kill.
//
//   ProcessRanks ranks({.rank_count = 3, .reader_count = 1});
//   ranks.Start(0, [](Window& window) { ... return Verdict::kRight; });
//   ...
//   ranks.Kill(1);
//   CHECK(ranks.EndOf(0) == Verdict::kRight);
#ifndef LMDBIO_TESTS_LOAD_SLOTS_PROCESS_RANKS_H_
#define LMDBIO_TESTS_LOAD_SLOTS_PROCESS_RANKS_H_

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lmdbio/load/slots/window.h"
#include "tests/support/in_child.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {

// The job rank of local rank `rank`, as messages name it.
constexpr int JobRank(int rank) { return 10 + rank; }

// Requires: no other thread runs
class ProcessRanks {
 public:
  using Body = std::function<Verdict(load::Window& window)>;

  explicit ProcessRanks(const load::WindowShape& shape)
      : shape_(shape),
        memory_(load::Window::BytesNeeded(shape) + sizeof(ProcessArrivals)),
        children_(static_cast<size_t>(shape.rank_count), 0) {
    meeting_ = new (&memory_.bytes()[load::Window::BytesNeeded(shape)]) ProcessArrivals;
  }
  ~ProcessRanks() {
    for (const pid_t child : children_) {
      if (child <= 0) continue;
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  // Runs `body` as `rank`, in a process, once all ranks have been started and know each other.
  void Start(int rank, const Body& body) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork");
    if (child == 0) {
      load::Window window(memory_.bytes(), shape_, rank, JobRank(rank));
      window.Introduce();
      Arrive(meeting_->introduced);
      window.WatchPeers();
      Arrive(meeting_->watched);
      ::_exit(static_cast<int>(body(window)));
    }
    children_[static_cast<size_t>(rank)] = child;
  }

  // Waits until all ranks are in their bodies.
  void AwaitStart() { Await(meeting_->watched, shape_.rank_count); }

  // Kills the process with SIGKILL.
  void Kill(int rank) { ::kill(children_[static_cast<size_t>(rank)], SIGKILL); }

  // Waits for the end of a rank, for a limited time.
  Verdict EndOf(int rank, std::chrono::seconds limit = std::chrono::seconds(20)) {
    pid_t& child = children_[static_cast<size_t>(rank)];
    const auto give_up = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > give_up) return Verdict::kWrong;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    child = 0;
    return WIFEXITED(status) ? static_cast<Verdict>(WEXITSTATUS(status)) : Verdict::kWrong;
  }

 private:
  struct ProcessArrivals {
    std::atomic<int> introduced{0};
    std::atomic<int> watched{0};
  };

  static void Await(const std::atomic<int>& count, int wanted) {
    while (count.load() < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void Arrive(std::atomic<int>& count) const {
    count.fetch_add(1);
    Await(count, shape_.rank_count);
  }

  load::WindowShape shape_;
  SharedBytes memory_;
  ProcessArrivals* meeting_;
  std::vector<pid_t> children_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_LOAD_SLOTS_PROCESS_RANKS_H_
