// lmdbio/sync/collective/forwarded_collectives.h - collectives that pass each call on to others.
//
// A derived class overrides what it adds.
#ifndef LMDBIO_SYNC_COLLECTIVE_FORWARDED_COLLECTIVES_H_
#define LMDBIO_SYNC_COLLECTIVE_FORWARDED_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

// Threads: as the inner collectives.
class ForwardedCollectives : public Collectives {
 public:
  explicit ForwardedCollectives(std::unique_ptr<Collectives> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    return inner_->AllReduce(tag, values, reduction);
  }
  Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts,
                                    const Reduction& reduction) override {
    return inner_->ReduceScatter(tag, input, output, counts, reduction);
  }
  Result<CallOutcome> ReduceToParts(const CallTag& tag, const Values& values,
                                    const Reduction& reduction) override {
    return inner_->ReduceToParts(tag, values, reduction);
  }
  Result<CallOutcome> GatherParts(const CallTag& tag, const Values& values) override {
    return inner_->GatherParts(tag, values);
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
  bool is_reproducible() const override { return inner_->is_reproducible(); }
  void Stop(const Error& why) override { inner_->Stop(why); }

 private:
  const std::unique_ptr<Collectives> inner_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_FORWARDED_COLLECTIVES_H_
