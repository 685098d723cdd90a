// A call on two hosts with two ranks each. Ranks 0 and 2 are the roots:
//
//   up       0 <- 1   2 <- 3    collectives of each host
//   across      0 <-> 2         collectives of the roots
//   down     0 -> 1   2 -> 3    collectives of each host
//
// Suppose that rank 1 declines. Ranks 0 and 1 learn it in the first stage, rank 2 in the second,
// and rank 3 in the third. Rank 3 has done the first stage by then. So only the last stage may
// write an output, or the ranks agree before.
#include "lmdbio/sync/tiers/tiered_collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"

namespace lmdbio::sync {
namespace {

using Outcome = Result<CallOutcome>;

// The parts of values that the roots of a host move between the hosts.
struct RootParts {
  RootParts(const Values& values, int root_count, const Collectives& host)
      : counts(static_cast<size_t>(host.size()), 0), sizes_bytes(counts.size(), 0) {
    const size_t element_bytes = ElementBytes(values.type);
    const Bounds bounds = EvenBounds(values.count, 1, root_count);
    for (size_t root = 0; root + 1 < bounds.size(); ++root) {
      counts[root] = bounds[root + 1] - bounds[root];
      sizes_bytes[root] = counts[root] * element_bytes;
    }
    all = {values.data, values.count * element_bytes};
    own_bytes = PartOf(values.data, BoundsOf(sizes_bytes), host.rank());
    own = {own_bytes.data(), own_bytes.size() / element_bytes, values.type};
  }

  std::vector<uint64_t> counts;       // [ranks of the host] elements; 0 if the rank is no root
  std::vector<uint64_t> sizes_bytes;  // [ranks of the host]
  MutableBytes all;
  MutableBytes own_bytes;  // the part of this rank
  Values own;
};

// The tag of one stage of a call. Different calls have different tags in every stage.
CallTag Marked(const CallTag& tag, WireCall kind, const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> words{tag.digest, static_cast<uint64_t>(kind)};
  words.insert(words.end(), shape.begin(), shape.end());
  return {.digest = DigestOf(words), .is_declined = tag.is_declined};
}

std::vector<uint64_t> ShapeOf(const Values& values, const Reduction& reduction) {
  return {values.count * ElementBytes(values.type), static_cast<uint64_t>(values.type),
          static_cast<uint64_t>(reduction.op), std::bit_cast<uint64_t>(reduction.scale)};
}

class Tiered final : public Collectives {
 public:
  Tiered(ranks::HostTopology places, int rank, std::unique_ptr<Collectives> host,
         std::unique_ptr<Collectives> roots, const TieredOptions& options)
      : places_(std::move(places)),
        rank_(rank),
        my_host_(places_.host_of[static_cast<size_t>(rank)]),
        host_(std::move(host)),
        roots_(std::move(roots)),
        options_(options) {
    LMDBIO_CHECK(options_.host_roots >= 1 && options_.host_roots <= host_->size());
    LMDBIO_CHECK((roots_ != nullptr) == (host_->rank() < options_.host_roots));
    LMDBIO_CHECK(host_->rank() > 0 || roots_->rank() == my_host_);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(places_.host_of.size()); }
  Outcome AllReduce(const CallTag& tag, const Values& values, const Reduction& reduction) override;
  Outcome ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                        std::span<const uint64_t> counts, const Reduction& reduction) override;
  Outcome ReduceToParts(const CallTag& tag, const Values& values,
                        const Reduction& reduction) override;
  Outcome GatherParts(const CallTag& tag, const Values& values) override;
  Outcome AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                    std::span<const uint64_t> part_bytes) override;
  Outcome Broadcast(const CallTag& tag, MutableBytes bytes, int root) override;
  Outcome AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                   MutableBytes receive, std::span<const uint64_t> receive_bytes) override;
  Outcome Barrier(const CallTag& tag) override {
    return Agree(Marked(tag, WireCall::kBarrier, {}));
  }
  MutableBytes registered() const override {
    return host_->registered().first(options_.registered_bytes);
  }
  // One call makes three calls: on the host, between the roots, and on the host again. Each of them
  // wakes ranks, so a bucket must be large enough to justify three wake-ups.
  uint64_t ample_bytes() const override {
    return std::max({host_->ample_bytes(), options_.ample_bytes, kUsualAmpleBytes});
  }
  // The roots of different parts may have different orders of the hosts.
  bool is_reproducible() const override {
    return options_.is_reproducible && options_.host_roots == 1;
  }
  std::string Description() const override;
  void Stop(const Error& why) override {
    host_->Stop(why);
    if (roots_ != nullptr) roots_->Stop(why);
  }

 private:
  // The tags of the three stages of a call.
  // root_count  the roots of each host that take part in the second stage
  template <typename Up, typename Across, typename Down>
  Outcome Stages(const CallTag& tag, const Up& up, const Across& across, const Down& down,
                 int root_count = 1);
  // A failure of one tier stops the other tier, too.
  tl::unexpected<Error> Fallen(Error error) {
    Stop(error);
    return Fail(std::move(error));
  }
  Outcome Agree(const CallTag& tag);
  Outcome ReduceThrough(const CallTag& tag, const Values& values, const Reduction& reduction);
  Outcome ReduceByParts(const CallTag& tag, const Values& values, const Reduction& reduction);
  Outcome GatherByHost(const CallTag& tag, Bytes mine, MutableBytes by_host,
                       std::span<const uint64_t> part_bytes);

  const ranks::HostTopology places_;
  const int rank_;
  const int my_host_;
  const std::unique_ptr<Collectives> host_;
  const std::unique_ptr<Collectives> roots_;
  const TieredOptions options_;
  std::vector<std::byte> scratch_;
};

template <typename Up, typename Across, typename Down>
Outcome Tiered::Stages(const CallTag& tag, const Up& up, const Across& across, const Down& down,
                       int root_count) {
  CallTag next = tag;
  Outcome outcome = up(next);
  if (!outcome) return Fallen(std::move(outcome).error());
  next.is_declined = *outcome == CallOutcome::kDeclined;
  if (host_->rank() < root_count) {
    outcome = across(next);
    if (!outcome) return Fallen(std::move(outcome).error());
    next.is_declined = *outcome == CallOutcome::kDeclined;
  }
  outcome = down(next);
  if (!outcome) return Fallen(std::move(outcome).error());
  return outcome;
}

// Three barriers: afterwards every rank knows whether any rank declines, and nothing was written.
Outcome Tiered::Agree(const CallTag& tag) {
  const auto on_host = [&](const CallTag& stage) { return host_->Barrier(stage); };
  return Stages(
      tag, on_host, [&](const CallTag& stage) { return roots_->Barrier(stage); }, on_host);
}

// Reduces in place, so the ranks have agreed before, or the values are a copy. Only the call
// between the roots scales, because only its result contains the values of all ranks. On the host
// an AllReduce takes the place of a reduction to the root, which Collectives does not have.
Outcome Tiered::ReduceThrough(const CallTag& tag, const Values& values,
                              const Reduction& reduction) {
  const MutableBytes bytes(values.data, values.count * ElementBytes(values.type));
  return Stages(
      tag, [&](const CallTag& stage) { return host_->AllReduce(stage, values, reduction.op); },
      [&](const CallTag& stage) { return roots_->AllReduce(stage, values, reduction); },
      [&](const CallTag& stage) { return host_->Broadcast(stage, bytes, 0); });
}

// Root number r of a host gets part r of the sum of the host, reduces it with the roots of this
// number on all hosts, and gives it to all ranks of the host. So each root moves its part of the
// bytes between the hosts, at the same time as the other roots. As ReduceThrough it works in place.
Outcome Tiered::ReduceByParts(const CallTag& tag, const Values& values,
                              const Reduction& reduction) {
  const RootParts parts(values, options_.host_roots, *host_);
  return Stages(
      tag,
      [&](const CallTag& stage) {
        return host_->ReduceScatter(stage, values, parts.own.data, parts.counts, reduction.op);
      },
      [&](const CallTag& stage) { return roots_->AllReduce(stage, parts.own, reduction); },
      [&](const CallTag& stage) {
        return host_->AllGather(stage, parts.own_bytes, parts.all, parts.sizes_bytes);
      },
      options_.host_roots);
}

// As ReduceThrough or ReduceByParts without the way down, so the roots alone have parts. Without
// that way no rank learns from the others that one has declined.
Outcome Tiered::ReduceToParts(const CallTag& tag, const Values& values,
                              const Reduction& reduction) {
  const CallTag marked = Marked(tag, WireCall::kReduceToParts, ShapeOf(values, reduction));
  LMDBIO_TRY(const CallOutcome outcome, Agree(marked));
  if (outcome == CallOutcome::kDeclined) return outcome;
  const bool is_through = options_.host_roots == 1;
  const RootParts parts(values, options_.host_roots, *host_);
  return Stages(
      marked,
      [&](const CallTag& stage) {
        return is_through ? host_->AllReduce(stage, values, reduction.op)
                          : host_->ReduceScatter(stage, values, parts.own.data, parts.counts,
                                                 reduction.op);
      },
      [&](const CallTag& stage) { return roots_->ReduceToParts(stage, parts.own, reduction); },
      [](const CallTag&) { return CallOutcome::kDone; }, options_.host_roots);
}

Outcome Tiered::GatherParts(const CallTag& tag, const Values& values) {
  const CallTag marked = Marked(tag, WireCall::kGatherParts, ShapeOf(values, ReduceOp::kSum));
  LMDBIO_TRY(const CallOutcome outcome, Agree(marked));
  if (outcome == CallOutcome::kDeclined) return outcome;
  const RootParts parts(values, options_.host_roots, *host_);
  return Stages(
      marked, [](const CallTag&) { return CallOutcome::kDone; },
      [&](const CallTag& stage) { return roots_->GatherParts(stage, parts.own); },
      [&](const CallTag& stage) {
        return options_.host_roots == 1
                   ? host_->Broadcast(stage, parts.all, 0)
                   : host_->AllGather(stage, parts.own_bytes, parts.all, parts.sizes_bytes);
      },
      options_.host_roots);
}

Outcome Tiered::AllReduce(const CallTag& tag, const Values& values, const Reduction& reduction) {
  const size_t bytes = values.count * ElementBytes(values.type);
  const CallTag marked = Marked(tag, WireCall::kAllReduce, ShapeOf(values, reduction));
  // An agreement makes three more calls, and a copy moves all bytes twice more. So few bytes are
  // copied, and many are agreed on first.
  if (bytes > options_.apart_bytes_max) {
    LMDBIO_TRY(const CallOutcome outcome, Agree(marked));
    if (outcome == CallOutcome::kDeclined) return outcome;
    return options_.host_roots == 1 ? ReduceThrough(marked, values, reduction)
                                    : ReduceByParts(marked, values, reduction);
  }
  scratch_.assign(values.data, values.data + bytes);
  LMDBIO_TRY(const CallOutcome outcome,
             ReduceThrough(marked, {scratch_.data(), values.count, values.type}, reduction));
  if (outcome == CallOutcome::kDone) std::ranges::copy(scratch_, values.data);
  return outcome;
}

Outcome Tiered::ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                              std::span<const uint64_t> counts, const Reduction& reduction) {
  const size_t element_bytes = ElementBytes(input.type);
  const size_t bytes = input.count * element_bytes;
  std::vector<uint64_t> shape = ShapeOf(input, reduction);
  shape.push_back(DigestOf(counts));
  const CallTag marked = Marked(tag, WireCall::kReduceScatter, shape);
  scratch_.assign(input.data, input.data + bytes);
  LMDBIO_TRY(const CallOutcome outcome,
             ReduceThrough(marked, {scratch_.data(), input.count, input.type}, reduction));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(counts.size() == static_cast<size_t>(size()));
  const Bounds bounds = BoundsOf(counts, element_bytes);
  LMDBIO_CHECK(bounds.back() == bytes);
  std::ranges::copy(PartOf(scratch_.data(), bounds, rank_), output);
  return outcome;
}

// The AllGather of the host fills the block of this host. The roots exchange the blocks, and each
// root hands all of them to its host.
// by_host  [sum of part_bytes] the parts in the order of hosts, and of ranks within a host
Outcome Tiered::GatherByHost(const CallTag& tag, Bytes mine, MutableBytes by_host,
                             std::span<const uint64_t> part_bytes) {
  std::vector<uint64_t> host_parts;
  std::vector<uint64_t> host_bytes;
  for (int host = 0; host < places_.host_count(); ++host) {
    host_bytes.push_back(0);
    for (const int rank : places_.ranks[static_cast<size_t>(host)]) {
      const uint64_t bytes = part_bytes[static_cast<size_t>(rank)];
      host_bytes.back() += bytes;
      if (host == my_host_) host_parts.push_back(bytes);
    }
  }
  const MutableBytes block = PartOf(by_host.data(), BoundsOf(host_bytes), my_host_);
  return Stages(
      tag, [&](const CallTag& stage) { return host_->AllGather(stage, mine, block, host_parts); },
      [&](const CallTag& stage) { return roots_->AllGather(stage, block, by_host, host_bytes); },
      [&](const CallTag& stage) { return host_->Broadcast(stage, by_host, 0); });
}

Outcome Tiered::AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                          std::span<const uint64_t> part_bytes) {
  LMDBIO_CHECK(part_bytes.size() == static_cast<size_t>(size()));
  const CallTag marked = Marked(tag, WireCall::kAllGather, {all.size(), DigestOf(part_bytes)});
  const Bounds bounds = BoundsOf(part_bytes);
  LMDBIO_CHECK(bounds.back() == all.size());
  scratch_.resize(all.size());
  LMDBIO_TRY(const CallOutcome outcome, GatherByHost(marked, mine, scratch_, part_bytes));
  if (outcome == CallOutcome::kDeclined) return outcome;
  // Copies the parts from the order of hosts to the order of ranks.
  const std::byte* from = scratch_.data();
  for (const std::vector<int>& ranks : places_.ranks) {
    for (const int rank : ranks) {
      const MutableBytes part = PartOf(all.data(), bounds, rank);
      std::copy_n(from, part.size(), part.data());
      from += part.size();
    }
  }
  return outcome;
}

Outcome Tiered::Broadcast(const CallTag& tag, MutableBytes bytes, int root) {
  const CallTag marked =
      Marked(tag, WireCall::kBroadcast, {bytes.size(), static_cast<uint64_t>(root)});
  LMDBIO_TRY(const CallOutcome outcome, Agree(marked));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(root >= 0 && root < size());
  const int root_host = places_.host_of[static_cast<size_t>(root)];
  // On the host of the root the first stage serves all its ranks, the host root among them. On the
  // other hosts only the host root takes part before the last stage, in the stage between the
  // roots. No rank can decline here any more.
  const bool is_root_host = my_host_ == root_host;
  const int place = places_.place_of[static_cast<size_t>(root)];
  return Stages(
      marked,
      [&](const CallTag& stage) {
        return is_root_host ? host_->Broadcast(stage, bytes, place) : CallOutcome::kDone;
      },
      [&](const CallTag& stage) { return roots_->Broadcast(stage, bytes, root_host); },
      [&](const CallTag& stage) {
        return is_root_host ? CallOutcome::kDone : host_->Broadcast(stage, bytes, 0);
      });
}

Outcome Tiered::AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                         MutableBytes receive, std::span<const uint64_t> receive_bytes) {
  const auto count = static_cast<size_t>(size());
  LMDBIO_CHECK(send_bytes.size() == count && receive_bytes.size() == count);
  // The bytes from each rank to each rank, as rows in the order of hosts.
  std::vector<uint64_t> rows(count * count);
  const std::vector<uint64_t> row_bytes(count, count * sizeof(uint64_t));
  CallTag marked = Marked(tag, WireCall::kAllToAll, {});
  LMDBIO_TRY(CallOutcome outcome, GatherByHost(marked, std::as_bytes(send_bytes),
                                               std::as_writable_bytes(std::span(rows)), row_bytes));
  if (outcome == CallOutcome::kDeclined) return outcome;
  // scratch_ gets one row of bytes from each rank, in the order of hosts; `order` names the ranks.
  std::vector<int> order;
  for (const auto& ranks : places_.ranks) order.insert(order.end(), ranks.begin(), ranks.end());
  std::vector<uint64_t> sent_bytes(count);
  bool fits = true;
  for (size_t i = 0; i < count; ++i) {
    const std::span<const uint64_t> row(&rows[i * count], count);
    const auto from = static_cast<size_t>(order[i]);
    sent_bytes[from] = std::accumulate(row.begin(), row.end(), uint64_t{0});
    fits = fits && row[static_cast<size_t>(rank_)] == receive_bytes[from];
  }
  scratch_.resize(std::accumulate(sent_bytes.begin(), sent_bytes.end(), uint64_t{0}));
  // A size that differs on one rank makes all ranks decline in the next gathering.
  marked.is_declined = !fits;
  LMDBIO_TRY(outcome, GatherByHost(marked, send, scratch_, sent_bytes));
  if (outcome == CallOutcome::kDeclined) return outcome;
  const Bounds received = BoundsOf(receive_bytes);
  LMDBIO_CHECK(received.back() == receive.size());
  const std::byte* from = scratch_.data();
  for (size_t i = 0; i < count; ++i) {
    const Bounds parts = BoundsOf(std::span<const uint64_t>(&rows[i * count], count));
    const MutableBytes part = PartOf(receive.data(), received, order[i]);
    std::copy_n(from + parts[static_cast<size_t>(rank_)], part.size(), part.data());
    from += parts.back();
  }
  return outcome;
}

std::string Tiered::Description() const {
  const std::string on_host = host_->Description();
  std::string text = fmt::format("on each host: {}", on_host.empty() ? "one rank" : on_host);
  if (roots_ != nullptr) {
    const std::string roots =
        options_.host_roots == 1 ? "" : fmt::format(", with {} roots each", options_.host_roots);
    text += fmt::format("\nbetween {} hosts{}:\n{}", places_.host_count(), roots,
                        roots_->Description());
  }
  return text;
}

}  // namespace

std::unique_ptr<Collectives> TieredCollectives(ranks::HostTopology places, int rank,
                                               std::unique_ptr<Collectives> host,
                                               std::unique_ptr<Collectives> roots,
                                               const TieredOptions& options) {
  return std::make_unique<Tiered>(std::move(places), rank, std::move(host), std::move(roots),
                                  options);
}

}  // namespace lmdbio::sync
