// lmdbio/control/coordinator.h - in which order all ranks do what each of them wants.
//
// Ranks submit the same tensors in different orders and at different times. A coordinator finds out
// which tensors all of them have submitted, whether they mean the same, and in which order they are
// done: in rounds of exchanges, the same on every rank. It is a pure state machine, without
// threads, clocks or messages of its own:
//
//   coordinator->Submit(request)...                           whenever there is something new
//   for (exchange = BeginRound(); exchange; exchange = *Continue(reply)) reply = ...
//   for (response : TakeResponses()) do it
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2, 2.2.3, 3.1; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_CONTROL_COORDINATOR_H_
#define LMDBIO_CONTROL_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/control/exchange.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

// A tensor that some ranks wait for.
struct Stall {
  std::string name;
  std::vector<int> missing_ranks;  // those that have not submitted it, as far as is known here
};

// How `extra` of two kAdoptPlan becomes one; an error fails the request on every rank.
using MergeExtra = std::function<Result<std::vector<std::byte>>(Bytes a, Bytes b)>;

struct CoordinatorOptions {
  std::string kind = "cache";      // "horovod", "cache" or "hierarchical"
  uint32_t cache_capacity = 1024;  // responses; 0: none, and every tensor is negotiated each time
  MergeExtra merge;                // MergeProposals of control/plan.h; empty: all must be equal
};

// Counts since the coordinator was made.
struct CoordinatorCounters {
  uint64_t round_count = 0;
  uint64_t exchange_count = 0;    // of these rounds
  uint64_t negotiated_count = 0;  // tensors that went through rank 0
  uint64_t cached_count = 0;      // tensors that did not need to
  uint64_t evicted_count = 0;
};

// Threads: one at a time.
class Coordinator {
 public:
  // Errors: kInvalidArgument  no such kind; names those that there are
  static Result<std::unique_ptr<Coordinator>> Create(const CoordinatorOptions& options,
                                                     const Ranks& ranks);
  virtual ~Coordinator() = default;

  // This rank wants a tensor. In a round that is under way it takes no part. A tensor of a group
  // takes part when all `group_size` of the group have been submitted here.
  // Requires: no other request of the name is under way here: submitted, and not yet among the
  //           responses. Between kJoin and its response nothing is submitted; the responses
  //           meanwhile name tensors that this rank has not submitted, to which it brings zeros or
  //           no rows
  virtual void Submit(Request request) = 0;

  // Takes back what has been submitted and is not among the responses yet, oldest first: requests
  // that are from now on somebody else's. A group of which some tensors have failed already,
  // because ranks did not agree on it, consists of the others from now on.
  // Requires: no round is under way; every rank does the same at the same place of its rounds
  virtual std::vector<Request> TakePending() = 0;

  // Whether this rank waits for something: it has submitted a tensor that is not done, has joined,
  // or wants to end.
  virtual bool has_pending() const = 0;

  // Begins a round, and says the first exchange of it: nothing if this coordinator needs none.
  // Collective, as are the exchanges that follow.
  // Requires: no round is under way
  virtual std::optional<Exchange> BeginRound() = 0;

  // Takes the reply to the last exchange, and says the next one: none if the round is over.
  // Errors: kInternal  another rank sent what no rank should; names it
  virtual Result<std::optional<Exchange>> Continue(Reply reply) = 0;

  // What was agreed upon in the rounds since the last call, in the order in which all ranks do it.
  // kAllReduce of one tensor each: see control/fusion.h.
  virtual std::vector<Response> TakeResponses() = 0;

  // This rank does not go on. From the next round on is_ended() tells every rank so.
  virtual void End() = 0;
  virtual bool is_ended() const = 0;

  // These tensors have been waited for too long: they are forgotten by caches, on all ranks, so
  // that rank 0 learns who has not submitted them.
  virtual void MarkStalled(const std::vector<std::string>& names) = 0;
  // What rank 0 knows of tensors that some ranks have submitted and others have not; empty on other
  // ranks.
  virtual std::vector<Stall> Stalls() const = 0;

  virtual CoordinatorCounters counters() const = 0;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_COORDINATOR_H_
