// tests/sync/control/control_simulator.h - all ranks of a coordinator in one thread, in random
// order.
//
// Every rank runs its own program: iterations over the same random tensors, with its own order and
// pace. The oracle derives the expected responses from the programs alone.
#ifndef LMDBIO_TESTS_SYNC_CONTROL_CONTROL_SIMULATOR_H_
#define LMDBIO_TESTS_SYNC_CONTROL_CONTROL_SIMULATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/sync/control/coordinator.h"

namespace lmdbio::test {

// Executes the exchanges of ranks that run in one thread.
class FakeTransport {
 public:
  // host_of  [ranks] or empty: one host
  FakeTransport(int rank_count, std::vector<int> host_of, int tree_arity = 0);

  sync::Ranks RanksOf(int rank) const;

  // This rank enters an exchange. If it is the last one of the scope, all get their replies.
  // Returns: "" or the mismatch between the ranks
  std::string Post(int rank, sync::Exchange exchange);
  bool HasReply(int rank) const { return has_reply_[static_cast<size_t>(rank)] != 0; }
  sync::Reply TakeReply(int rank);
  bool is_anybody_waiting() const { return waiting_count_ > 0; }

  // Messages that ranks have sent to each other in gathers and broadcasts since the beginning. In a
  // gather each rank but the first sends one, in a broadcast it receives one.
  struct MessageCounts {
    uint64_t from_host = 0;      // gathered from or sent to the other ranks of its host
    uint64_t from_children = 0;  // the same, of the roots below this root
    uint64_t from_first = 0;     // sent to or received from the first rank of a scope
    uint64_t all() const { return from_host + from_children + from_first; }
  };
  const MessageCounts& CountsOf(int rank) const { return counts_[static_cast<size_t>(rank)]; }

 private:
  struct PendingExchange {
    std::vector<int> members;
    std::vector<sync::Exchange> exchanges;  // [members]
    std::vector<uint8_t> has_come;          // [members]
    size_t come_count = 0;
  };
  PendingExchange& MeetingOf(int rank, sync::ExchangeScope scope);
  std::string Hold(PendingExchange& meeting);
  void Count(const PendingExchange& meeting);

  int rank_count_;
  std::vector<int> host_of_;
  int tree_arity_;
  std::vector<size_t> parent_of_;  // [hosts] the host above
  std::vector<PendingExchange> hosts_;
  std::vector<PendingExchange>
      families_;  // [hosts] the root of a host, and those directly below it
  PendingExchange all_;
  std::vector<MessageCounts> counts_;
  std::vector<sync::Reply> replies_;
  std::vector<uint8_t> has_reply_;
  int waiting_count_ = 0;
};

// The coordinators of all ranks, which run their rounds in step.
class Ensemble {
 public:
  Ensemble(const sync::CoordinatorOptions& options, int rank_count,
           const std::vector<int>& host_of = {}, int tree_arity = 0);

  sync::Coordinator& operator[](int rank) { return *coordinators_[static_cast<size_t>(rank)]; }
  // One round of all ranks.
  // Returns: the responses, which must be the same for all ranks
  std::vector<sync::Response> Round();

  const FakeTransport& transport() const { return transport_; }

 private:
  FakeTransport transport_;
  std::vector<std::unique_ptr<sync::Coordinator>> coordinators_;
};

// Runs one random job.
// Returns: "" or the failure
std::string Simulate(const std::string& kind, int rank_count, uint64_t seed, int tree_arity = 0);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_CONTROL_CONTROL_SIMULATOR_H_
