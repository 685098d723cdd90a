// lmdbio/sync/control/coordinator.h - the algorithm that decides the order of the responses.
//
// Ranks submit the same tensors in different orders and at different times. A coordinator
// determines the tensors that all ranks have submitted, checks that their requests agree, and
// orders them. It does so in rounds of exchanges, with the same result on every rank. It is a pure
// state machine, without threads, clocks or messages of its own:
//
//   coordinator->Submit(request)...                           for each new request
//   for (exchange = BeginRound(); exchange; exchange = *Continue(reply)) reply = ...
//   for (response : TakeResponses()) execute it
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2, 2.2.3, 3.1; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_COORDINATOR_H_
#define LMDBIO_SYNC_CONTROL_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/control/exchange.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// A tensor that some ranks wait for.
struct Stall {
  std::string name;
  std::vector<int> missing_ranks;  // the ranks known here that have not submitted it
};

// Merges `extra` of two kAdoptPlan requests; an error fails the request on every rank.
using MergeExtra = std::function<Result<std::vector<std::byte>>(Bytes a, Bytes b)>;

struct CoordinatorOptions {
  std::string kind = "cache";      // "horovod", "cache" or "hierarchical"
  uint32_t cache_capacity = 1024;  // responses; 0: none, and every tensor is negotiated each time
  // MergeProposals of sync/graph/plan_learner.h; empty: all must be equal
  MergeExtra merge;
};

// Counts since the coordinator was made.
struct CoordinatorCounters {
  uint64_t round_count = 0;
  uint64_t exchange_count = 0;    // of these rounds
  uint64_t negotiated_count = 0;  // tensors that went through rank 0
  uint64_t cached_count = 0;      // tensors that came from the response cache
  uint64_t evicted_count = 0;
};

// Threads: one at a time.
class Coordinator {
 public:
  // Errors: kInvalidArgument  unknown kind; the message lists the valid ones
  static Result<std::unique_ptr<Coordinator>> Create(const CoordinatorOptions& options,
                                                     const Ranks& ranks);
  virtual ~Coordinator() = default;

  // Submits a request of this rank. It takes part from the next round on. A tensor of a group takes
  // part when all `group_size` tensors of the group have been submitted here.
  // Requires: no other request of the name is in progress here: submitted, and not yet among the
  //           responses. Between kJoin and its response this rank submits nothing. The responses in
  //           that time name tensors of other ranks, to which this rank contributes zeros or no
  //           rows
  virtual void Submit(Request request) = 0;

  // Takes back the submitted requests that are not yet among the responses, oldest first. The
  // caller owns them from now on. If some tensors of a group have already failed, because ranks did
  // not agree on it, the group consists of the others from now on.
  // Requires:   no round is in progress
  // Collective: every rank calls it after the same round
  virtual std::vector<Request> TakePending() = 0;

  // Whether this rank needs a round: it has an unanswered request that takes part, has joined, or
  // wants to end.
  virtual bool has_pending() const = 0;

  // The requests of this incomplete group take part from the next round on, each alone. If other
  // ranks have the whole group, the tensors of a learned group are answered alone; those of another
  // group fail, because the ranks do not agree on it.
  // Requires: no round is in progress
  // Returns:  whether there were any
  virtual bool ReleaseHeld(const std::string& group) = 0;

  // Begins a round and returns its first exchange, or nothing if the round needs none.
  // Requires:   no round is in progress
  // Collective: over all ranks, and so are the exchanges that follow
  virtual std::optional<Exchange> BeginRound() = 0;

  // Takes the reply to the last exchange and returns the next one, or nothing if the round is over.
  // Errors: kInternal  another rank sent an invalid message; names the rank
  virtual Result<std::optional<Exchange>> Continue(Reply reply) = 0;

  // The responses of the rounds since the last call, in the order in which all ranks execute them.
  // Each kAllReduce has one tensor; sync/request/fusion.h fuses them.
  virtual std::vector<Response> TakeResponses() = 0;

  // This rank ends. After the next round is_ended() is true on every rank.
  virtual void End() = 0;
  virtual bool is_ended() const = 0;

  // Marks stalled tensors. All ranks evict them from their caches, so that the requests go to rank
  // 0 and rank 0 learns the missing ranks.
  virtual void MarkStalled(const std::vector<std::string>& names) = 0;
  // On rank 0: the tensors that some known ranks have submitted and others have not. On other
  // ranks: empty.
  virtual std::vector<Stall> Stalls() const = 0;

  virtual CoordinatorCounters counters() const = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_COORDINATOR_H_
