#include "lmdbio/sync/over_wire/wire_collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/over_wire/wire_trial.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {
namespace {

// AllGather of at most so many bytes takes the fewest steps; a larger one sends the fewest bytes.
constexpr uint64_t kSmallGatherBytesMax = 64 << 10;

bool Overlap(const std::byte* one, size_t one_bytes, const std::byte* other, size_t other_bytes) {
  return std::less<>()(one, other + other_bytes) && std::less<>()(other, one + one_bytes);
}

// counts  [ranks, or empty] elements of each part
CallShape ShapeOf(WireCall kind, const Values& values, const Reduction& reduction,
                  std::span<const uint64_t> counts) {
  const std::array details{std::bit_cast<uint64_t>(reduction.scale), DigestOf(counts)};
  return {.kind = kind,
          .type = static_cast<uint8_t>(values.type),
          .op = static_cast<uint8_t>(reduction.op),
          .bytes = values.count * ElementBytes(values.type),
          .details_digest = DigestOf(details)};
}

class OverWire final : public TableCollectives {
 public:
  explicit OverWire(std::unique_ptr<Wire> wire)
      : wire_(std::move(wire)), held_(std::make_unique<HeldByWire>(*wire_)) {}
  ~OverWire() override {
    if (wire_->writes_after_failure()) KeepForever(std::move(held_));
  }
  OverWire(const OverWire&) = delete;
  OverWire& operator=(const OverWire&) = delete;

  Status ChooseTable(const WireCollectiveOptions& options);

  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override;
  Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts,
                                    const Reduction& reduction) override;
  Result<CallOutcome> ReduceToParts(const CallTag& tag, const Values& values,
                                    const Reduction& reduction) override;
  Result<CallOutcome> GatherParts(const CallTag& tag, const Values& values) override;
  Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                std::span<const uint64_t> part_bytes) override;
  Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) override;
  Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                               MutableBytes receive,
                               std::span<const uint64_t> receive_bytes) override;
  Result<CallOutcome> Barrier(const CallTag& tag) override { return agreement().Agree(tag, {}); }
  void Stop(const Error& why) override { wire_->Stop(why); }
  bool writes_after_failure() const override { return wire_->writes_after_failure(); }
  uint64_t ample_bytes() const override { return ample_bytes_; }
  bool is_reproducible() const override { return IsReproducible(table_); }
  std::string Description() const override;
  const WireTable& table() const override { return table_; }

 private:
  // Memory of messages. It is kept if a message may still write to it.
  struct HeldByWire {
    explicit HeldByWire(Wire& wire) : agreement(wire) {}
    WireAgreement agreement;
    WireScratch scratch;
    std::vector<std::byte> apart;  // of a ReduceScatter
    std::vector<uint64_t> told, heard;
    uint8_t measures = 0;
  };

  WireAgreement& agreement() { return held_->agreement; }
  WireJob JobBy(const WireChoice& choice) {
    return {*wire_, held_->scratch, choice.chunk_bytes, choice.chunk_depth};
  }
  WireJob JobFor(uint64_t bytes) { return JobBy(ChoiceFor(table_, bytes)); }
  Status AllReduceBy(const WireChoice& choice, const Values& values, const Reduction& reduction);
  Result<CallOutcome> TryAllReduce(const WireChoice& choice, const CallTag& tag,
                                   const Values& values, const Reduction& reduction);
  Status ReduceScatterOfMany(const Values& input, std::byte* output, MutableBytes own,
                             const Reduction& reduction);
  Result<bool> SizesFit(std::span<const uint64_t> send_bytes,
                        std::span<const uint64_t> receive_bytes);

  std::unique_ptr<Wire> wire_;
  std::unique_ptr<HeldByWire> held_;
  WireTable table_ = UsualWireTable();
  uint64_t ample_bytes_ = kUsualAmpleBytes;
  uint64_t measured_bytes_ = 0;  // the largest size of the trial; 0: no trial
};

WireTable TableWithoutTrial(const WireCollectiveOptions& options) {
  if (!options.table.empty()) return options.table;
  if (!options.algorithm) return UsualWireTable();
  return OneWireAlgorithm(*options.algorithm, options.chunk_bytes, options.chunk_depth);
}

bool HasChoice(const WireCollectiveOptions& options) {
  if (!options.table.empty()) return false;
  if (!options.algorithm) return true;
  // The values of doubling travel in the agreement, without chunks.
  if (*options.algorithm == WireAlgorithm::kDoubling) return false;
  return options.chunk_bytes == 0 || options.chunk_depth == 0;
}

std::string OverWire::Description() const {
  if (measured_bytes_ == 0) return TextOf(table_);
  return fmt::format("by a trial of {} to {} bytes:\n{}", kTriedBytes.front(), measured_bytes_,
                     TextOf(table_));
}

// The usual table serves until the ranks share the chosen one. The broadcasts here take their chunk
// size from it.
Status OverWire::ChooseTable(const WireCollectiveOptions& options) {
  // Rank 0 also decides whether to measure.
  uint8_t& measures = held_->measures;
  measures = size() > 1 && HasChoice(options) && options.trial_time.count() > 0 ? 1 : 0;
  LMDBIO_TRY_VOID(
      TreeOrChainBroadcast(JobFor(1), std::as_writable_bytes(std::span(&measures, 1)), 0));
  const WireJob job = JobFor(kAnyBytes);
  WireTable mine = TableWithoutTrial(options);
  if (measures != 0) {
    const auto all_reduce = [this](const WireChoice& choice, const Values& values) -> Status {
      LMDBIO_TRY_VOID(TryAllReduce(choice, {}, values, ReduceOp::kSum));
      return {};
    };
    const WireSearchSpace space{.rank_count = size(),
                                .algorithm = options.algorithm,
                                .chunk_bytes = options.chunk_bytes,
                                .chunk_depth = options.chunk_depth};
    LMDBIO_TRY(MeasuredWire measured, MeasureWire(job, space, options.trial_time, all_reduce));
    mine = std::move(measured.table);
    ample_bytes_ = measured.ample_bytes;
    measured_bytes_ = measured.measured_bytes;
  }
  for (WireChoice& row : mine) {
    if (options.chunk_bytes > 0) row.chunk_bytes = options.chunk_bytes;
    if (options.chunk_depth > 0) row.chunk_depth = options.chunk_depth;
  }
  LMDBIO_TRY(table_, ShareWireTable(job, std::move(mine)));
  return {};
}

Status OverWire::AllReduceBy(const WireChoice& choice, const Values& values,
                             const Reduction& reduction) {
  switch (choice.algorithm) {
    case WireAlgorithm::kRing:
      return RingAllReduce(JobBy(choice), values, reduction);
    case WireAlgorithm::kDirect:
      return DirectAllReduce(JobBy(choice), values, reduction);
    case WireAlgorithm::kHalving:
    case WireAlgorithm::kDoubling:  // complete after the agreement
      break;
  }
  return HalvingAllReduce(JobBy(choice), values, reduction);
}

// The trial passes the choice that it measures, and AllReduce passes that of the table.
Result<CallOutcome> OverWire::TryAllReduce(const WireChoice& choice, const CallTag& tag,
                                           const Values& values, const Reduction& reduction) {
  const CallShape shape = ShapeOf(WireCall::kAllReduce, values, reduction, {});
  if (size() > 1 && choice.algorithm == WireAlgorithm::kDoubling) {
    return agreement().AgreeAndReduce(tag, shape, values, reduction);
  }
  LMDBIO_TRY(const CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  // No exchange takes place, so no step has scaled the values.
  if (size() == 1) {
    Scale(values.type, reduction.scale, values.data, values.data, values.count);
  } else {
    LMDBIO_TRY_VOID(AllReduceBy(choice, values, reduction));
  }
  return outcome;
}

Result<CallOutcome> OverWire::AllReduce(const CallTag& tag, const Values& values,
                                        const Reduction& reduction) {
  const uint64_t bytes = values.count * ElementBytes(values.type);
  return TryAllReduce(ChoiceFor(table_, bytes), tag, values, reduction);
}

Result<CallOutcome> OverWire::ReduceScatter(const CallTag& tag, const Values& input,
                                            std::byte* output, std::span<const uint64_t> counts,
                                            const Reduction& reduction) {
  const size_t element_bytes = ElementBytes(input.type);
  const CallShape shape = ShapeOf(WireCall::kReduceScatter, input, reduction, counts);
  LMDBIO_TRY(const CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(counts.size() == static_cast<size_t>(size()));
  const Bounds bounds = BoundsOf(counts, element_bytes);
  LMDBIO_CHECK(bounds.back() == shape.bytes);
  const MutableBytes own = PartOf(input.data, bounds, rank());
  if (size() > kDirectRanksMax) {
    LMDBIO_TRY_VOID(ReduceScatterOfMany(input, output, own, reduction));
    return outcome;
  }
  // Other ranks may still wait for parts of the input, so the output must not overwrite them.
  const bool is_apart =
      output == own.data() || !Overlap(output, own.size(), input.data, shape.bytes);
  std::vector<std::byte>& apart = held_->apart;
  apart.resize(is_apart ? 0 : own.size());
  LMDBIO_TRY_VOID(DirectReduceScatter(JobFor(shape.bytes), input, is_apart ? output : apart.data(),
                                      counts, reduction));
  if (!apart.empty()) std::memcpy(output, apart.data(), apart.size());
  return outcome;
}

// The direct algorithm would need a connection to every rank. Halving needs log2 P connections, and
// sends twice the bytes.
// own  [the part of this rank in `input`]
Status OverWire::ReduceScatterOfMany(const Values& input, std::byte* output, MutableBytes own,
                                     const Reduction& reduction) {
  const size_t bytes = input.count * ElementBytes(input.type);
  std::vector<std::byte>& copy = held_->apart;
  copy.assign(input.data, input.data + bytes);
  const Values values{.data = copy.data(), .count = input.count, .type = input.type};
  LMDBIO_TRY_VOID(HalvingAllReduce(JobFor(bytes), values, reduction));
  if (!own.empty())
    std::memcpy(output, &copy[static_cast<size_t>(own.data() - input.data)], own.size());
  return {};
}

// Of many ranks halving needs the fewest connections, and both halves of it send each byte once.
Result<CallOutcome> OverWire::ReduceToParts(const CallTag& tag, const Values& values,
                                            const Reduction& reduction) {
  if (size() <= kDirectRanksMax) return Collectives::ReduceToParts(tag, values, reduction);
  const CallShape shape = ShapeOf(WireCall::kReduceToParts, values, reduction, {});
  LMDBIO_TRY(const CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_TRY_VOID(HalvingReduceToParts(JobFor(shape.bytes), values, reduction));
  return outcome;
}

Result<CallOutcome> OverWire::GatherParts(const CallTag& tag, const Values& values) {
  if (size() <= kDirectRanksMax) return Collectives::GatherParts(tag, values);
  const CallShape shape = ShapeOf(WireCall::kGatherParts, values, ReduceOp::kSum, {});
  LMDBIO_TRY(const CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_TRY_VOID(HalvingGatherParts(JobFor(shape.bytes), values));
  return outcome;
}

Result<CallOutcome> OverWire::AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                        std::span<const uint64_t> part_bytes) {
  const CallShape shape{
      .kind = WireCall::kAllGather, .bytes = all.size(), .details_digest = DigestOf(part_bytes)};
  LMDBIO_TRY(const CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(part_bytes.size() == static_cast<size_t>(size()));
  const Bounds bounds = BoundsOf(part_bytes);
  const MutableBytes own = PartOf(all.data(), bounds, rank());
  LMDBIO_CHECK(bounds.back() == all.size() && own.size() == mine.size());
  if (!mine.empty() && own.data() != mine.data()) {
    std::memmove(own.data(), mine.data(), mine.size());
  }
  const WireJob job = JobFor(all.size());
  // In the ring each rank sends a part at most once, to its neighbour. For few bytes the number of
  // steps matters more: the direct algorithm has one step but needs a connection to every rank;
  // doubling has log2 P steps.
  if (all.size() > kSmallGatherBytesMax) {
    LMDBIO_TRY_VOID(RingAllGather(job, all, part_bytes));
  } else if (size() <= kDirectRanksMax) {
    LMDBIO_TRY_VOID(DirectAllGather(job, all, part_bytes));
  } else {
    LMDBIO_TRY_VOID(DoublingAllGather(job, all, part_bytes));
  }
  return outcome;
}

Result<CallOutcome> OverWire::Broadcast(const CallTag& tag, MutableBytes bytes, int root) {
  const CallShape shape{.kind = WireCall::kBroadcast, .root = root, .bytes = bytes.size()};
  LMDBIO_TRY(const CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  // After the agreement all ranks have the same root. A wrong root is then wrong on all of them.
  LMDBIO_CHECK(root >= 0 && root < size());
  LMDBIO_TRY_VOID(TreeOrChainBroadcast(JobFor(bytes.size()), bytes, root));
  return outcome;
}

// Whether the other ranks send as many bytes as this rank expects. A rank with too few or too many
// sizes exchanges zeros, so no rank waits for its message.
Result<bool> OverWire::SizesFit(std::span<const uint64_t> send_bytes,
                                std::span<const uint64_t> receive_bytes) {
  const auto count = static_cast<size_t>(size());
  const bool is_whole = send_bytes.size() == count && receive_bytes.size() == count;
  std::vector<uint64_t>& told = held_->told;
  std::vector<uint64_t>& heard = held_->heard;
  told.assign(count, 0);
  heard.assign(count, 0);
  if (is_whole) std::ranges::copy(send_bytes, told.begin());
  const std::vector<uint64_t> each(count, sizeof(uint64_t));
  LMDBIO_TRY_VOID(DirectAllToAll(JobFor(1), std::as_bytes(std::span(told)), each,
                                 std::as_writable_bytes(std::span(heard)), each));
  return is_whole && std::ranges::equal(heard, receive_bytes);
}

Result<CallOutcome> OverWire::AllToAll(const CallTag& tag, Bytes send,
                                       std::span<const uint64_t> send_bytes, MutableBytes receive,
                                       std::span<const uint64_t> receive_bytes) {
  const CallShape shape{.kind = WireCall::kAllToAll};
  LMDBIO_TRY(CallOutcome outcome, agreement().Agree(tag, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_TRY(const bool fits, SizesFit(send_bytes, receive_bytes));
  // A second agreement, because a rank knows only the sizes of its own parts.
  LMDBIO_TRY(outcome, agreement().Agree({.digest = tag.digest, .is_declined = !fits}, shape));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(BoundsOf(send_bytes).back() == send.size() &&
               BoundsOf(receive_bytes).back() == receive.size());
  LMDBIO_TRY_VOID(DirectAllToAll(JobFor(kAnyBytes), send, send_bytes, receive, receive_bytes));
  return outcome;
}

}  // namespace

Result<std::unique_ptr<TableCollectives>> WireCollectives(std::unique_ptr<Wire> wire,
                                                          const WireCollectiveOptions& options) {
  auto collectives = std::make_unique<OverWire>(std::move(wire));
  LMDBIO_TRY_VOID(collectives->ChooseTable(options));
  return collectives;
}

}  // namespace lmdbio::sync
