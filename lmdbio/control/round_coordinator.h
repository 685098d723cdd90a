// lmdbio/control/round_coordinator.h - what all coordinators have in common.
//
// An exchange of a scope with one member is no exchange: it is answered here.
#ifndef LMDBIO_CONTROL_ROUND_COORDINATOR_H_
#define LMDBIO_CONTROL_ROUND_COORDINATOR_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/control/codec.h"
#include "lmdbio/control/coordinator.h"
#include "lmdbio/control/pending.h"
#include "lmdbio/control/rank_layout.h"

namespace lmdbio::control {

// Threads: one at a time.
class RoundCoordinator : public Coordinator {
 public:
  void Submit(Request request) override;
  std::vector<Request> TakePending() override;
  bool has_pending() const override;
  std::optional<Exchange> BeginRound() override;
  Result<std::optional<Exchange>> Continue(Reply reply) override;
  std::vector<Response> TakeResponses() override;
  void End() override { wants_end_ = true; }
  bool is_ended() const override { return is_ended_; }
  void MarkStalled(const std::vector<std::string>& names) override;
  CoordinatorCounters counters() const override { return counters_; }

 protected:
  explicit RoundCoordinator(RankLayout layout) : layout_(std::move(layout)) {}

  // The first exchange of a round; `pending()` is open.
  virtual Exchange FirstExchange() = 0;
  // What follows on the reply to the last one.
  // Errors: as Continue
  virtual Result<std::optional<Exchange>> NextExchange(Reply reply) = 0;
  // What this rank has collected of others' requests is theirs again.
  virtual void ForgetCollected() = 0;

  const RankLayout& layout() const { return layout_; }
  Pending& pending() { return pending_; }
  CoordinatorCounters& counts() { return counters_; }
  bool wants_end() const { return wants_end_; }
  void SetEnded() { is_ended_ = true; }
  // Names that were marked since the last call.
  std::vector<std::string> TakeStalled() { return std::exchange(stalled_, {}); }

  // All ranks have been told this.
  void Deliver(Response response);

  // What `reply` brought to every member of the scope but the first, which has it.
  // Errors: kInternal  it cannot be read; names `sender`
  Result<ResponseList> Received(const Reply& reply, int sender) const;

 private:
  bool IsAlone(const Exchange& exchange) const;
  // Errors: as Continue
  Result<std::optional<Exchange>> SkipAlone(std::optional<Exchange> exchange);

  RankLayout layout_;
  Pending pending_;
  std::vector<Response> responses_;
  std::vector<std::string> stalled_;
  CoordinatorCounters counters_;
  bool wants_end_ = false;
  bool is_ended_ = false;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_ROUND_COORDINATOR_H_
