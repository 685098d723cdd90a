// lmdbio/sync/control/round_coordinator.h - the common part of all coordinators.
//
// An exchange with a single member is answered here, without the caller.
#ifndef LMDBIO_SYNC_CONTROL_ROUND_COORDINATOR_H_
#define LMDBIO_SYNC_CONTROL_ROUND_COORDINATOR_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/control/pending.h"
#include "lmdbio/sync/control/rank_topology.h"
#include "lmdbio/sync/request/message_codec.h"

namespace lmdbio::sync {

// Threads: one at a time.
class RoundCoordinator : public Coordinator {
 public:
  void Submit(Request request) override;
  std::vector<Request> TakePending() override;
  bool has_pending() const override;
  bool ReleaseHeld(const std::string& group) override { return pending_.ReleaseHeld(group); }
  std::optional<Exchange> BeginRound() override;
  Result<std::optional<Exchange>> Continue(Reply reply) override;
  std::vector<Response> TakeResponses() override;
  void End() override { wants_end_ = true; }
  bool is_ended() const override { return is_ended_; }
  void MarkStalled(const std::vector<std::string>& names) override;
  CoordinatorCounters counters() const override { return counters_; }

 protected:
  explicit RoundCoordinator(RankTopology layout) : layout_(std::move(layout)) {}

  // The first exchange of a round; `pending()` is open.
  virtual Exchange FirstExchange() = 0;
  // The exchange after the reply to the last one; nothing at the end of a round.
  // Errors: as Continue
  virtual Result<std::optional<Exchange>> NextExchange(Reply reply) = 0;
  // Drops the requests that this rank has collected from others; those ranks keep them.
  virtual void ForgetCollected() = 0;

  const RankTopology& layout() const { return layout_; }
  Pending& pending() { return pending_; }
  CoordinatorCounters& counts() { return counters_; }
  bool wants_end() const { return wants_end_; }
  void SetEnded() { is_ended_ = true; }
  // Names marked as stalled since the last call.
  std::vector<std::string> TakeStalled() { return std::exchange(stalled_, {}); }

  // All ranks have got this response.
  void Deliver(Response response);

  // Decodes the broadcast in `reply`, for all members of the scope except the first, which sent it.
  // Errors: kInternal  a malformed message; names `sender`
  Result<ResponseList> Received(const Reply& reply, int sender) const;

 private:
  bool IsAlone(const Exchange& exchange) const;
  // Errors: as Continue
  Result<std::optional<Exchange>> SkipAlone(std::optional<Exchange> exchange);

  RankTopology layout_;
  Pending pending_;
  std::vector<Response> responses_;
  std::vector<std::string> stalled_;
  CoordinatorCounters counters_;
  bool wants_end_ = false;
  bool is_ended_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_ROUND_COORDINATOR_H_
