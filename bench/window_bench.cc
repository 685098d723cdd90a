// Question: how long does it take to announce a slot of the window to 2 to 8 ranks and to get it
// back, compared with two barriers, the common protection of shared buffers?
//
// State: warm, no storage, empty slots. Each rank is a process, and the reader is a thread of the
// first rank, as in a job. On a machine with few cores, ranks share cores. No rank spins for long,
// so MPI's wait mode has no influence.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::bench {
namespace {

using load::Window;
using load::WindowShape;

// A shared map that forked processes inherit, in place of MPI's shared memory.
class SharedPages {
 public:
  explicit SharedPages(size_t size_bytes) : size_bytes_(size_bytes) {
    address_ =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (address_ == MAP_FAILED) std::exit(1);
  }
  ~SharedPages() { ::munmap(address_, size_bytes_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  MutableBytes bytes() const { return {static_cast<std::byte*>(address_), size_bytes_}; }

 private:
  size_t size_bytes_;
  void* address_;
};

constexpr auto kLeaveLimit = std::chrono::seconds(60);

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "window_bench: %s\n", what);
  std::exit(1);
}

// Runs `rank_body` in a process for each rank, for rank 0 in a thread of this process, and `reader`
// in the calling thread.
void RunJob(int rank_count, const std::function<void(int)>& rank_body,
            const std::function<void()>& reader) {
  std::vector<pid_t> children;
  for (int rank = 1; rank < rank_count; ++rank) {
    // All forks come before the thread: a child has only the thread that forks, and locks of other
    // threads would stay locked in it.
    const pid_t child = ::fork();
    Require(child >= 0, "cannot fork");
    if (child == 0) {
      rank_body(rank);
      // Without destructors and without flushing: buffered output belongs to the parent.
      ::_exit(0);
    }
    children.push_back(child);
  }
  std::thread first(rank_body, 0);
  reader();
  first.join();
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    Require(status == 0, "a rank has failed");
  }
}

// in_flight  slots that the reader may be ahead; 1: announce a slot and wait for its release
void HandOver(int rank_count, uint64_t slot_count, uint64_t in_flight) {
  const WindowShape shape{rank_count, 1, 0};
  const SharedPages memory(Window::BytesNeeded(shape));
  const auto rank_body = [&](int rank) {
    Window window(memory.bytes(), shape, rank, rank);
    for (uint64_t slot = 0; slot < slot_count; ++slot) {
      const auto head = window.AwaitSlot(slot);
      Require(head && head->first_batch == slot, "the window returned a wrong slot");
      window.LetGo(slot + 1);
    }
    window.Leave();
  };
  RunJob(rank_count, rank_body, [&] {
    Window window(memory.bytes(), shape, 0, 0);
    for (uint64_t slot = 0; slot < slot_count; ++slot) {
      // Slot s starts once slot s - in_flight is released by all ranks. After the loop the reader
      // waits until all ranks have left, so each job covers whole hand-overs.
      if (slot >= in_flight)
        Require(*window.AwaitSpace(slot - in_flight + 1),
                "a wait for window memory was interrupted");
      Require(window.FinishPart(slot), "a slot has more than one reader");
      window.Announce(slot, {slot, 1, 0, 0});
    }
    Require(window.AwaitAllLeft(kLeaveLimit), "a rank has not left the window");
  });
}

void MeetTwice(int rank_count, uint64_t slot_count) {
  const SharedPages memory(sizeof(pthread_barrier_t));
  auto* barrier = new (memory.bytes().data()) pthread_barrier_t;
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(barrier, &shared, static_cast<unsigned>(rank_count) + 1);
  // Twice for each slot: once when it is full, and once when all ranks have used it. The reader is
  // one more participant.
  const auto meet = [&] {
    for (uint64_t i = 0; i < 2 * slot_count; ++i) pthread_barrier_wait(barrier);
  };
  RunJob(
      rank_count, [&](int /*rank*/) { meet(); }, meet);
  pthread_barrier_destroy(barrier);
  pthread_barrierattr_destroy(&shared);
}

void Register(const std::string& name, uint64_t slot_count, const std::function<void()>& job) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 const auto start = std::chrono::steady_clock::now();
                                 for (auto _ : state) job();
                                 const std::chrono::duration<double, std::micro> took =
                                     std::chrono::steady_clock::now() - start;
                                 state.counters["us per slot"] =
                                     took.count() / static_cast<double>(slot_count);
                               })
      ->UseRealTime()
      ->Iterations(1);
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  using namespace lmdbio::bench;
  const BenchOptions options = ParseOptions(argc, argv);
  const uint64_t slots = options.is_tiny ? 50 : 20'000;
  for (const int ranks : {2, 4, 8}) {
    const std::string group = fmt::format("{} ranks", ranks);
    Register(group + "/barrier, twice a slot", slots, [=] { MeetTwice(ranks, slots); });
    Register(group + "/window, one slot at a time", slots, [=] { HandOver(ranks, slots, 1); });
    Register(group + "/window, 8 slots in flight", slots, [=] { HandOver(ranks, slots, 8); });
  }
  return RunAndCompare(argc, argv, options.is_tiny ? 2 : 5);
}
