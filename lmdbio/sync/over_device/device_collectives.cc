#include "lmdbio/sync/over_device/device_collectives.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/base/align.h"
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

// Why these ranks cannot reduce on GPUs, the same on every rank; "" if nothing is known yet.
std::string ObstacleOf(const ranks::HostTopology& hosts, const std::vector<GpuFacts>& all,
                       bool has_between) {
  if (hosts.host_count() > 1 && !has_between) {
    return fmt::format("ranks 0 and {} are on different hosts", hosts.ranks[1].front());
  }
  for (const std::vector<int>& ranks : hosts.ranks) {
    if (ranks.size() <= kernels::kReduceSourcesMax) continue;
    return fmt::format("there are {} ranks, and a kernel takes the values of {}", ranks.size(),
                       kernels::kReduceSourcesMax);
  }
  return LackOfKernels(all);
}

// host  the ranks of a host; the results are places among them
std::vector<int> LeadersOf(const std::vector<GpuFacts>& all, const std::vector<int>& host) {
  std::vector<int> leaders;
  std::map<std::string_view, int> leader_of;
  for (int place = 0; const int rank : host) {
    const GpuFacts& facts = all[static_cast<size_t>(rank)];
    if (leader_of.emplace(facts.uuid.data(), place).second) leaders.push_back(place);
    ++place;
  }
  return leaders;
}

// rank  whose GPU it is; the rest as LeadersOf
std::vector<int> RanksOfGpu(const std::vector<GpuFacts>& all, const std::vector<int>& host,
                            int rank) {
  std::vector<int> ranks;
  const GpuFacts& own = all[static_cast<size_t>(rank)];
  for (size_t place = 0; place < host.size(); ++place) {
    const GpuFacts& facts = all[static_cast<size_t>(host[place])];
    if (facts.uuid == own.uuid) ranks.push_back(static_cast<int>(place));
  }
  return ranks;
}

// Collective over `group`. The ranks of a host have agreed already. With several hosts, an error of
// one of them becomes one of all.
template <typename T>
Status AgreeBetween(ranks::Group& group, const ranks::HostTopology& hosts, const Result<T>& mine) {
  Status had = mine ? Status() : Fail(mine.error().Copy());
  return hosts.host_count() == 1 ? std::move(had) : AgreeOnSupport(group, std::move(had));
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
  LMDBIO_TRY_VOID(
      ranks::AgreeOnWords(group, "the options of reductions on GPUs",
                          fmt::format("{} bytes, {} in one shot, order {}", options.arena_bytes,
                                      options.one_shot_bytes, NameOf(options.order))));
  LMDBIO_TRY(const std::unique_ptr<ranks::Group> host, group.SplitByHost());
  LMDBIO_TRY(const ranks::HostTopology hosts, ranks::FindHostPlaces(group, *host));
  LMDBIO_TRY(const std::vector<GpuFacts> all,
             GatherFacts(group, FactsOf(parts.gpu, parts.kernels)));
  const auto refuse = [&notes](std::string_view obstacle) {
    notes.push_back(fmt::format("the ranks do not reduce on their GPUs: {}", obstacle));
    return std::unique_ptr<DeviceCollectives>();
  };
  const bool has_between = static_cast<bool>(parts.make_between);
  if (const std::string obstacle = ObstacleOf(hosts, all, has_between); !obstacle.empty()) {
    return refuse(obstacle);
  }
  auto places = ValuePlaces::Make(*host);
  LMDBIO_TRY_VOID(AgreeBetween(group, hosts, places));
  const std::vector<int>& host_ranks =
      hosts.ranks[static_cast<size_t>(hosts.host_of[static_cast<size_t>(group.rank())])];
  GpuRanks gpus = {LeadersOf(all, host_ranks), RanksOfGpu(all, host_ranks, group.rank())};
  OneShot one_shot;
  if (hosts.host_count() == 1 && gpus.leaders.size() > 1 && options.one_shot_bytes > 0) {
    one_shot.bytes_max = std::min(options.one_shot_bytes, options.arena_bytes);
    one_shot.offset = AlignUp(options.arena_bytes, kPartUnitBytes);
  }
  auto arena = DeviceArena::Exchange(
      *host, parts.gpu, std::max(options.arena_bytes, one_shot.offset + one_shot.bytes_max));
  if (Status had = AgreeBetween(group, hosts, arena); !had) {
    if (arena) DeviceArena::FreeTogether(*std::move(arena), *host);
    if (had.error().code() != ErrorCode::kUnsupported) return Fail(std::move(had).error());
    return refuse(had.error().message());
  }
  auto chosen = MakeStreamOrder(*host, parts.gpu, options.order, parts.check);
  if (Status had = AgreeBetween(group, hosts, chosen); !had) {
    if (chosen) chosen->order->CloseOthers();
    DeviceArena::FreeTogether(*std::move(arena), *host);
    return Fail(std::move(had).error());
  }
  const PlaceOnHost place{host->rank(), host->size(), hosts.host_count()};
  std::unique_ptr<DeviceCollectives> made(
      new DeviceCollectives(parts, place, *std::move(places), *std::move(arena),
                            std::move(chosen->order), std::move(gpus)));
  made->arena_bytes_ = options.arena_bytes;
  made->one_shot_ = one_shot;
  if (!chosen->note.empty()) notes.push_back(std::move(chosen->note));
  if (place.host_count == 1) return made;
  LMDBIO_TRY(const auto roots, group.Split(place.rank == 0 ? 0 : 1));
  Result<std::unique_ptr<BetweenHosts>> between = nullptr;
  if (place.rank == 0) between = parts.make_between(*roots);
  if (Status had = AgreeBetween(group, hosts, between); !had) {
    // No rank has made a call, so nobody uses the arena of another one.
    made->CloseOthers();
    made->has_left_ = host->Barrier().has_value();
    return Fail(std::move(had).error());
  }
  made->between_ = *std::move(between);
  return made;
}

DeviceCollectives::DeviceCollectives(const DeviceCollectiveParts& parts, const PlaceOnHost& host,
                                     ValuePlaces places, DeviceArena arena,
                                     std::unique_ptr<StreamOrder> order, GpuRanks gpus)
    : parts_(parts),
      host_(host),
      places_(std::move(places)),
      arena_(std::move(arena)),
      order_(std::move(order)),
      gpus_(std::move(gpus)),
      ranks_(AllRanks(host.size)) {}

// Work of this rank may still use the arenas of others, and theirs may use this one.
DeviceCollectives::~DeviceCollectives() {
  if (has_left_ || host_.size == 1) return;
  KeepShared(order_);
  KeepForever(std::move(arena_));
}

Result<CallOutcome> DeviceCollectives::AllReduce(const CallTag& tag, const DeviceValues& values,
                                                 const Reduction& reduction, DeviceStream& stream) {
  LMDBIO_TRY_VOID(kernels::PlanScale(values.type, reduction.scale));
  LMDBIO_TRY_VOID(CheckInside(values, arena()));
  const bool is_one_shot = IsOneShot(values);
  std::function<Status()> copy_back;
  if (is_one_shot && values.result == ResultPlace::kInPlace) {
    copy_back = [&] {
      const device::DeviceAddress result = arena_.own().begin + one_shot_.offset;
      return stream.Copy(PlaceOf(host_.rank), result, values.size_bytes());
    };
  }
  // Only the step that completes a result scales it.
  const Reduction of_host = host_.host_count == 1 ? reduction : Reduction(reduction.op);
  return Run({.tag = {DigestOfReduction(tag, values, reduction), tag.is_declined},
              .offset = values.offset,
              .workers = gpus_.leaders,
              .enqueue =
                  [&] {
                    return is_one_shot ? ReduceForGpu(values, of_host, stream)
                                       : ReducePart(values, of_host, stream);
                  },
              .enqueue_between = [&] { return ReduceBetween(values, reduction, stream); },
              .enqueue_last = std::move(copy_back)},
             stream);
}

Result<CallOutcome> DeviceCollectives::Broadcast(const CallTag& tag, const DeviceValues& values,
                                                 int root, DeviceStream& stream) {
  LMDBIO_TRY_VOID(CheckInside(values, arena()));
  return Run({.tag = {DigestOfBroadcast(tag, values, root), tag.is_declined},
              .offset = values.offset,
              .workers = {&root, 1},
              .enqueue = [&] { return SendValues(values, root, stream); },
              .enqueue_between = {},
              .enqueue_last = {}},
             stream);
}

Result<CallOutcome> DeviceCollectives::Run(const DeviceCall& call, DeviceStream& stream) {
  Result<CallOutcome> outcome = RunSteps(call, stream);
  if (outcome) return outcome;
  // The others may wait for this rank, on the host and on their streams. Meetings of one host know
  // its name.
  const int rank = parts_.meetings.rank();
  const Error why =
      host_.host_count == 1 ? outcome.error().Copy() : NamedFailure(rank, outcome.error());
  Stop(why);
  parts_.meetings.Stop(why);
  return outcome;
}

Result<CallOutcome> DeviceCollectives::RunSteps(const DeviceCall& call, DeviceStream& stream) {
  places_.Publish(call.offset);
  LMDBIO_TRY_VOID(order_->Announce(OrderPoint::kReady, stream));
  LMDBIO_TRY(const CallOutcome agreed, parts_.meetings.Barrier(call.tag));
  if (agreed == CallOutcome::kDeclined) return agreed;
  LMDBIO_TRY_VOID(call.enqueue());
  LMDBIO_TRY_VOID(MeetEnqueued(call.tag.digest));
  if (host_.host_count == 1) {
    LMDBIO_TRY_VOID(order_->Await(OrderPoint::kDone, call.workers, stream));
    if (call.enqueue_last) LMDBIO_TRY_VOID(call.enqueue_last());
    return CallOutcome::kDone;
  }
  if (between_ != nullptr) LMDBIO_TRY_VOID(call.enqueue_between());
  LMDBIO_TRY_VOID(MeetEnqueued(call.tag.digest));
  constexpr int kRoot[] = {0};
  LMDBIO_TRY_VOID(order_->Await(OrderPoint::kDone, kRoot, stream));
  return CallOutcome::kDone;
}

Status DeviceCollectives::MeetEnqueued(uint64_t digest) {
  LMDBIO_TRY(const CallOutcome enqueued, parts_.meetings.Barrier({digest, false}));
  if (enqueued == CallOutcome::kDone) return {};
  return Fail(ErrorCode::kInternal, "another rank has left a call that it had begun");
}

// The other ranks of the host wait for the second "done" of the root alone. So the root may
// announce it again: nobody awaits its first one.
Status DeviceCollectives::ReduceBetween(const DeviceValues& values, const Reduction& reduction,
                                        DeviceStream& stream) {
  LMDBIO_TRY_VOID(order_->Await(OrderPoint::kDone, gpus_.leaders, stream));
  const DeviceArray sums = {PlaceOf(0), values.count, values.type};
  LMDBIO_TRY_VOID(between_->AllReduce(sums, reduction, stream));
  for (int rank = 1; rank < host_.size; ++rank) {
    LMDBIO_TRY_VOID(stream.Copy(PlaceOf(rank), sums.begin, sums.size_bytes()));
  }
  return order_->Announce(OrderPoint::kDone, stream);
}

Status DeviceCollectives::AwaitAllReady(DeviceStream& stream) {
  return order_->Await(OrderPoint::kReady, ranks_, stream);
}

// A leader without a part waits for nobody, but others wait for all leaders.
Status DeviceCollectives::ReducePart(const DeviceValues& values, const Reduction& reduction,
                                     DeviceStream& stream) {
  const auto place = std::ranges::find(gpus_.leaders, host_.rank);
  if (place == gpus_.leaders.end()) return {};
  const uint64_t element_bytes = ElementBytes(values.type);
  const LeaderPart part = PartOfLeader(
      values.count * element_bytes,
      static_cast<uint64_t>(std::distance(gpus_.leaders.begin(), place)), gpus_.leaders.size());
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

// The result of one shot is apart from the values, which other leaders may still read. Those of the
// last call are unpacked, or copied: that is ahead of "ready".
Status DeviceCollectives::ReduceForGpu(const DeviceValues& values, const Reduction& reduction,
                                       DeviceStream& stream) {
  if (gpus_.mine.front() != host_.rank) return {};
  LMDBIO_TRY_VOID(AwaitAllReady(stream));
  std::vector<DeviceSpan> sources;
  for (const int rank : ranks_) sources.push_back({PlaceOf(rank), values.size_bytes()});
  std::vector<DeviceSpan> results;
  for (const int rank : gpus_.mine) {
    results.push_back({arena_.of(rank).begin + one_shot_.offset, values.size_bytes()});
  }
  LMDBIO_TRY_VOID(parts_.kernels->Launch(stream, {.sources = sources,
                                                  .targets = results,
                                                  .count = values.count,
                                                  .type = values.type,
                                                  .reduction = reduction}));
  return order_->Announce(OrderPoint::kDone, stream);
}

device::DeviceAddress DeviceCollectives::ResultOf(const DeviceValues& values) const {
  const bool is_apart = values.result == ResultPlace::kAnywhere && IsOneShot(values);
  return arena_.own().begin + (is_apart ? one_shot_.offset : values.offset);
}

// The root copies to one rank after the other. The others do nothing.
Status DeviceCollectives::SendValues(const DeviceValues& values, int root, DeviceStream& stream) {
  if (host_.rank != root) return {};
  const uint64_t size_bytes = values.count * ElementBytes(values.type);
  if (size_bytes > 0) LMDBIO_TRY_VOID(AwaitAllReady(stream));
  for (const int rank : ranks_) {
    if (rank == root) continue;
    LMDBIO_TRY_VOID(stream.Copy(PlaceOf(rank), PlaceOf(root), size_bytes));
  }
  return order_->Announce(OrderPoint::kDone, stream);
}

void DeviceCollectives::CloseOthers() {
  arena_.CloseOthers();
  order_->CloseOthers();
}

Status DeviceCollectives::LeaveInPeace() {
  CloseOthers();
  LMDBIO_TRY(const CallOutcome met, parts_.meetings.Barrier({TextDigest("leave in peace"), false}));
  if (met == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kPeerFailed, "another rank makes another call, and does not leave");
  }
  has_left_ = true;
  return {};
}

std::string DeviceCollectives::Description() const {
  std::string text = fmt::format(
      "reductions on GPUs: {} ranks; leaders: {}; order '{}'; arenas of {} bytes", host_.size,
      fmt::join(gpus_.leaders, ", "), NameOf(order_->kind()), arena().size_bytes);
  if (one_shot_.bytes_max > 0) {
    text += fmt::format("; up to {} bytes in one shot", one_shot_.bytes_max);
  }
  if (host_.host_count > 1) text += fmt::format("; {} hosts", host_.host_count);
  if (between_ != nullptr) text += "\n" + between_->Description();
  return text;
}

}  // namespace lmdbio::sync
