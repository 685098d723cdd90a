#include "lmdbio/sync/collective/solo_collectives.h"

#include <cstring>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {
namespace {

CallOutcome OutcomeOf(const CallTag& tag) {
  return tag.is_declined ? CallOutcome::kDeclined : CallOutcome::kDone;
}

// The input of one rank is its output.
Result<CallOutcome> Copy(const CallTag& tag, const std::byte* from, std::byte* to, size_t bytes) {
  if (!tag.is_declined && bytes > 0 && from != to) std::memmove(to, from, bytes);
  return OutcomeOf(tag);
}

// The reduction of one rank is its own values, scaled.
Result<CallOutcome> Scale(const CallTag& tag, const Values& input, std::byte* to, double scale) {
  if (!tag.is_declined) Scale(input.type, scale, to, input.data, input.count);
  return OutcomeOf(tag);
}

// The tag of one rank agrees with itself, so only the flag of a declined call counts. No call
// waits, so Stop has nothing to end.
class OneRankCollectives final : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool is_reproducible() const override { return true; }

  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    return Scale(tag, values, values.data, reduction.scale);
  }
  Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts,
                                    const Reduction& reduction) override {
    LMDBIO_CHECK(counts.size() == 1 && counts[0] == input.count);
    return Scale(tag, input, output, reduction.scale);
  }
  Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                std::span<const uint64_t>) override {
    LMDBIO_CHECK(mine.size() == all.size());
    return Copy(tag, mine.data(), all.data(), mine.size());
  }
  // The only rank is the root, and has the bytes.
  Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes, int) override {
    return OutcomeOf(tag);
  }
  Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t>,
                               MutableBytes receive, std::span<const uint64_t>) override {
    LMDBIO_CHECK(send.size() == receive.size());
    return Copy(tag, send.data(), receive.data(), send.size());
  }
  Result<CallOutcome> Barrier(const CallTag& tag) override { return OutcomeOf(tag); }
  void Stop(const Error&) override {}
};

}  // namespace

std::unique_ptr<Collectives> SoloCollectives() { return std::make_unique<OneRankCollectives>(); }

}  // namespace lmdbio::sync
