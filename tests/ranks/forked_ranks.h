// tests/ranks/forked_ranks.h - ranks that are processes, without MPI, for tests that kill and stop
// them.
#ifndef LMDBIO_TESTS_RANKS_FORKED_RANKS_H_
#define LMDBIO_TESTS_RANKS_FORKED_RANKS_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {

// One job. Its ranks are children of this process. Their reports stay in memory of this process.
class ForkedJob {
 public:
  // Returns the report of a rank; "" if it found no fault.
  using Body = std::function<std::string(ranks::Group& group, ForkedJob& job)>;

  // ranks_per_host  neighbours that count as one host
  ForkedJob(int rank_count, int ranks_per_host);
  // Kills the ranks that still run.
  ~ForkedJob();
  ForkedJob(const ForkedJob&) = delete;
  ForkedJob& operator=(const ForkedJob&) = delete;

  // Forks the ranks. Requires: no other thread runs
  void Start(const Body& body);

  // In a rank: it has reached the point at which the test continues.
  void SayReady();
  // Waits up to 120 s until all ranks have called SayReady. False if they have not.
  bool AwaitReady();

  // Sends a signal to one rank, and records the time for SecondsSinceSignal.
  void Send(int signal, int rank);
  void SendAll(int signal);
  // Since the last signal that was sent to a rank; < 0 if there was none yet.
  double SecondsSinceSignal() const;

  // Waits for the end of a rank, up to `limit`. Returns its report, "killed" or "hangs". The limit
  // is for hangs: ranks under sanitizers beside other tests may be slow.
  std::string EndOf(int rank, std::chrono::seconds limit = std::chrono::seconds(120));

  int size() const { return rank_count_; }

 private:
  struct Board;
  Board& board() const;
  char* ReportOf(int rank) const;

  int rank_count_;
  int ranks_per_host_;
  SharedBytes memory_;
  std::vector<pid_t> children_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_FORKED_RANKS_H_
