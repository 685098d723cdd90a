// Collectives that report the begin of each transfer of gradients, and do all else as others do.
#include <utility>

#include "bench/sync/gradient_sync.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::bench {
namespace {

using sync::CallOutcome;
using sync::CallTag;

// The library has no such report, because only this measurement needs it. A call more for each
// collective costs some nanoseconds of its microseconds.
class WatchedCollectives final : public sync::Collectives {
 public:
  WatchedCollectives(std::unique_ptr<sync::Collectives> inner, InputWindow& window)
      : inner_(std::move(inner)), window_(window) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  // Gradients move in this call only.
  Result<CallOutcome> AllReduce(const CallTag& tag, const sync::Values& values,
                                const sync::Reduction& reduction) override {
    window_.OnTransfer();
    return inner_->AllReduce(tag, values, reduction);
  }

  Result<CallOutcome> ReduceScatter(const CallTag& tag, const sync::Values& input,
                                    std::byte* output, std::span<const uint64_t> counts,
                                    const sync::Reduction& reduction) override {
    return inner_->ReduceScatter(tag, input, output, counts, reduction);
  }
  Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                std::span<const uint64_t> part_bytes) override {
    return inner_->AllGather(tag, mine, all, part_bytes);
  }
  Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) override {
    return inner_->Broadcast(tag, bytes, root);
  }
  Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                               MutableBytes receive,
                               std::span<const uint64_t> receive_bytes) override {
    return inner_->AllToAll(tag, send, send_bytes, receive, receive_bytes);
  }
  Result<CallOutcome> Barrier(const CallTag& tag) override { return inner_->Barrier(tag); }

  MutableBytes registered() const override { return inner_->registered(); }
  uint64_t ample_bytes() const override { return inner_->ample_bytes(); }
  std::string Description() const override { return inner_->Description(); }
  bool writes_after_failure() const override { return inner_->writes_after_failure(); }
  void Stop(const Error& why) override { inner_->Stop(why); }

 private:
  const std::unique_ptr<sync::Collectives> inner_;
  InputWindow& window_;
};

}  // namespace

std::unique_ptr<sync::Collectives> WatchTransfers(std::unique_ptr<sync::Collectives> inner,
                                                  InputWindow& window) {
  return std::make_unique<WatchedCollectives>(std::move(inner), window);
}

}  // namespace lmdbio::bench
