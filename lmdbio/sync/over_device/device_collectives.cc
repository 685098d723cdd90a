#include "lmdbio/sync/over_device/device_collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/ranks/group/host_topology.h"
#include "lmdbio/sync/over_device/leader_parts.h"
#include "lmdbio/sync/over_device/rank_agreement.h"

namespace lmdbio::sync {
namespace {

using device::DeviceSpan;
using device::DeviceStream;

// Plain data that every rank gets of all others.
struct RankFacts {
  std::array<char, 63> uuid = {};  // of its GPU; ends with 0
  bool has_kernels = false;
};

RankFacts FactsOf(const DeviceCollectiveParts& parts) {
  RankFacts facts;
  const std::string& uuid = parts.gpu.facts().uuid;
  std::copy_n(uuid.begin(), std::min(uuid.size(), facts.uuid.size() - 1), facts.uuid.begin());
  facts.has_kernels = parts.kernels != nullptr;
  return facts;
}

// Why these ranks cannot reduce on GPUs, the same on every rank; "" if nothing is known yet.
std::string ObstacleOf(const ranks::HostTopology& hosts, const std::vector<RankFacts>& all) {
  if (hosts.host_count() > 1) {
    return fmt::format("ranks 0 and {} are on different hosts", hosts.ranks[1].front());
  }
  if (all.size() > kernels::kReduceSourcesMax) {
    return fmt::format("there are {} ranks, and a kernel takes the values of {}", all.size(),
                       kernels::kReduceSourcesMax);
  }
  const auto lacking =
      std::ranges::find_if(all, [](const RankFacts& rank) { return !rank.has_kernels; });
  if (lacking == all.end()) return "";
  return fmt::format("rank {} has no kernels for its GPU", std::distance(all.begin(), lacking));
}

std::vector<int> LeadersOf(const std::vector<RankFacts>& all) {
  std::vector<int> leaders;
  std::map<std::string_view, int> leader_of;
  for (int rank = 0; const RankFacts& facts : all) {
    if (leader_of.emplace(facts.uuid.data(), rank).second) leaders.push_back(rank);
    ++rank;
  }
  return leaders;
}

// Ranks that make another call, or the same one with other values, have another digest.
uint64_t DigestOf(const CallTag& tag, const DeviceValues& values, const Reduction& reduction) {
  const uint64_t call[] = {tag.digest, values.count, static_cast<uint64_t>(values.type),
                           static_cast<uint64_t>(reduction.op),
                           std::bit_cast<uint64_t>(reduction.scale)};
  return TextDigest({reinterpret_cast<const char*>(call), sizeof(call)});
}

uint64_t DigestOfBroadcast(const CallTag& tag, const DeviceValues& values, int root) {
  const uint64_t size_bytes = values.count * ElementBytes(values.type);
  const uint64_t call[] = {static_cast<uint64_t>(root), tag.digest, size_bytes};
  return TextDigest({reinterpret_cast<const char*>(call), sizeof(call)});
}

std::vector<int> AllRanks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Result<std::unique_ptr<DeviceCollectives>> DeviceCollectives::Make(
    ranks::Group& group, const DeviceCollectiveParts& parts, const DeviceCollectiveOptions& options,
    std::vector<std::string>& notes) {
  LMDBIO_TRY_VOID(ranks::AgreeOnWords(
      group, "the options of reductions on GPUs",
      fmt::format("{} bytes, order {}", options.arena_bytes, NameOf(options.order))));
  LMDBIO_TRY(const std::unique_ptr<ranks::Group> host, group.SplitByHost());
  LMDBIO_TRY(const ranks::HostTopology hosts, ranks::FindHostPlaces(group, *host));
  LMDBIO_TRY(const std::vector<RankFacts> all, GatherFacts(group, FactsOf(parts)));
  const auto refuse = [&notes](std::string_view obstacle) {
    notes.push_back(fmt::format("the ranks do not reduce on their GPUs: {}", obstacle));
    return std::unique_ptr<DeviceCollectives>();
  };
  if (const std::string obstacle = ObstacleOf(hosts, all); !obstacle.empty()) {
    return refuse(obstacle);
  }
  LMDBIO_TRY(ValuePlaces places, ValuePlaces::Make(*host));
  auto arena = DeviceArena::Exchange(*host, parts.gpu, options.arena_bytes);
  if (!arena) {
    if (arena.error().code() != ErrorCode::kUnsupported) return Fail(std::move(arena).error());
    return refuse(arena.error().message());
  }
  auto chosen = MakeStreamOrder(*host, parts.gpu, options.order, parts.check);
  if (!chosen) {
    DeviceArena::FreeTogether(*std::move(arena), *host);
    return Fail(std::move(chosen).error());
  }
  if (!chosen->note.empty()) notes.push_back(std::move(chosen->note));
  return std::unique_ptr<DeviceCollectives>(new DeviceCollectives(
      parts, std::move(places), *std::move(arena), std::move(chosen->order), LeadersOf(all)));
}

DeviceCollectives::DeviceCollectives(const DeviceCollectiveParts& parts, ValuePlaces places,
                                     DeviceArena arena, std::unique_ptr<StreamOrder> order,
                                     std::vector<int> leaders)
    : parts_(parts),
      places_(std::move(places)),
      arena_(std::move(arena)),
      order_(std::move(order)),
      leaders_(std::move(leaders)),
      ranks_(AllRanks(parts.meetings.size())) {}

// Work of this rank may still use the arenas of others, and theirs may use this one.
DeviceCollectives::~DeviceCollectives() {
  if (has_left_ || parts_.meetings.size() == 1) return;
  KeepShared(order_);
  KeepForever(std::move(arena_));
}

Status DeviceCollectives::CheckValues(const DeviceValues& values) const {
  const uint64_t element_bytes = ElementBytes(values.type);
  if (values.count <= arena().size_bytes / element_bytes &&
      arena().Holds(values.offset, values.count * element_bytes)) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} values of {} at offset {} are not inside an arena of {} bytes",
                          values.count, NameOf(values.type), values.offset, arena().size_bytes));
}

Result<CallOutcome> DeviceCollectives::AllReduce(const CallTag& tag, const DeviceValues& values,
                                                 const Reduction& reduction, DeviceStream& stream) {
  LMDBIO_TRY_VOID(kernels::PlanScale(values.type, reduction.scale));
  LMDBIO_TRY_VOID(CheckValues(values));
  return Run({.tag = {DigestOf(tag, values, reduction), tag.is_declined},
              .offset = values.offset,
              .workers = leaders_,
              .enqueue = [&] { return ReducePart(values, reduction, stream); }},
             stream);
}

Result<CallOutcome> DeviceCollectives::Broadcast(const CallTag& tag, const DeviceValues& values,
                                                 int root, DeviceStream& stream) {
  LMDBIO_TRY_VOID(CheckValues(values));
  return Run({.tag = {DigestOfBroadcast(tag, values, root), tag.is_declined},
              .offset = values.offset,
              .workers = {&root, 1},
              .enqueue = [&] { return SendValues(values, root, stream); }},
             stream);
}

Result<CallOutcome> DeviceCollectives::Run(const DeviceCall& call, DeviceStream& stream) {
  Result<CallOutcome> outcome = RunSteps(call, stream);
  if (outcome) return outcome;
  // The others may wait for this rank, on the host and on their streams.
  Poison();
  parts_.meetings.Stop(outcome.error());
  return outcome;
}

Result<CallOutcome> DeviceCollectives::RunSteps(const DeviceCall& call, DeviceStream& stream) {
  places_.Publish(call.offset);
  LMDBIO_TRY_VOID(order_->Announce(OrderPoint::kReady, stream));
  LMDBIO_TRY(const CallOutcome agreed, parts_.meetings.Barrier(call.tag));
  if (agreed == CallOutcome::kDeclined) return agreed;
  LMDBIO_TRY_VOID(call.enqueue());
  LMDBIO_TRY(const CallOutcome enqueued, parts_.meetings.Barrier({call.tag.digest, false}));
  if (enqueued == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kInternal, "another rank has left a call that it had begun");
  }
  LMDBIO_TRY_VOID(order_->Await(OrderPoint::kDone, call.workers, stream));
  return CallOutcome::kDone;
}

Status DeviceCollectives::AwaitAllReady(DeviceStream& stream) {
  return order_->Await(OrderPoint::kReady, ranks_, stream);
}

// A leader without a part waits for nobody, but others wait for all leaders.
Status DeviceCollectives::ReducePart(const DeviceValues& values, const Reduction& reduction,
                                     DeviceStream& stream) {
  const auto place = std::ranges::find(leaders_, parts_.meetings.rank());
  if (place == leaders_.end()) return {};
  const uint64_t element_bytes = ElementBytes(values.type);
  const LeaderPart part =
      PartOfLeader(values.count * element_bytes,
                   static_cast<uint64_t>(std::distance(leaders_.begin(), place)), leaders_.size());
  if (part.size_bytes > 0) {
    LMDBIO_TRY_VOID(AwaitAllReady(stream));
    std::vector<DeviceSpan> spans;
    spans.reserve(ranks_.size());
    for (const int rank : ranks_) {
      spans.push_back({PlaceOf(rank) + part.offset, part.size_bytes});
    }
    LMDBIO_TRY_VOID(parts_.kernels->Launch(stream, {.sources = spans,
                                                    .targets = spans,
                                                    .count = part.size_bytes / element_bytes,
                                                    .type = values.type,
                                                    .reduction = reduction}));
  }
  return order_->Announce(OrderPoint::kDone, stream);
}

// The root copies to one rank after the other. The others do nothing.
Status DeviceCollectives::SendValues(const DeviceValues& values, int root, DeviceStream& stream) {
  if (parts_.meetings.rank() != root) return {};
  const uint64_t size_bytes = values.count * ElementBytes(values.type);
  if (size_bytes > 0) LMDBIO_TRY_VOID(AwaitAllReady(stream));
  for (const int rank : ranks_) {
    if (rank == root) continue;
    LMDBIO_TRY_VOID(stream.Copy(PlaceOf(rank), PlaceOf(root), size_bytes));
  }
  return order_->Announce(OrderPoint::kDone, stream);
}

Status DeviceCollectives::LeaveInPeace() {
  arena_.CloseOthers();
  order_->CloseOthers();
  LMDBIO_TRY(const CallOutcome met, parts_.meetings.Barrier({TextDigest("leave in peace"), false}));
  if (met == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kPeerFailed, "another rank makes another call, and does not leave");
  }
  has_left_ = true;
  return {};
}

std::string DeviceCollectives::Description() const {
  return fmt::format("reductions on GPUs: {} ranks; leaders: {}; order '{}'; arenas of {} bytes",
                     parts_.meetings.size(), fmt::join(leaders_, ", "), NameOf(order_->kind()),
                     arena().size_bytes);
}

}  // namespace lmdbio::sync
