// tests/campaign/kills/kills_ledger.h - the records that a job has had over all of its runs: each
// exactly once, or a finding.
#ifndef LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_LEDGER_H_
#define LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/campaign/kills/kills_case.h"
#include "tests/campaign/kills/kills_log.h"

namespace lmdbio::test {

// Keeps what the ranks had before the last state that all of them have saved. The rest is lost, as
// in a program that writes such a state to its checkpoint; the next run has it again.
class StreamLedger {
 public:
  explicit StreamLedger(const KillJob& job) : job_(job) {}

  // The logs of all ranks of one run, which began at state(). A finding, or "".
  std::string Take(const std::vector<KillTimeline>& ranks);

  // The state at which the next run begins; "": at the first record.
  const std::string& state() const { return state_; }
  // All batches are kept.
  bool is_over() const { return is_over_; }

  // Once it is over: each record of the database came once in each epoch. A finding, or "".
  std::string Check() const;

 private:
  std::string Keep(const std::vector<KillTimeline>& ranks, uint64_t batch_count);
  std::string CheckEpoch(uint64_t epoch) const;

  const KillJob& job_;
  std::string state_;
  bool is_over_ = false;
  std::map<uint64_t, uint64_t> kept_;  // position -> digest
  std::map<uint64_t, uint64_t> seen_;  // the same, also of what was lost
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_LEDGER_H_
