#include "lmdbio/sync/over_device_wire/device_wire.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "lmdbio/sync/over_wire/wire_trial.h"

namespace lmdbio::sync {

using device::DeviceStream;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kUsualSlots = 64;

// The same on every rank, because they share the table.
Status CheckSources(const WireTable& table, int rank_count) {
  const bool has_direct = std::ranges::any_of(
      table, [](const WireChoice& row) { return row.algorithm == WireAlgorithm::kDirect; });
  if (!has_direct || rank_count <= static_cast<int>(kernels::kReduceSourcesMax)) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("algorithm 'direct' on GPUs: there are {} ranks, and a kernel takes the "
                          "values of {}",
                          rank_count, kernels::kReduceSourcesMax));
}

}  // namespace

Result<std::unique_ptr<DeviceWire>> DeviceWire::Make(ranks::Group& group,
                                                     std::unique_ptr<Wire> wire,
                                                     DeviceWireSetup setup,
                                                     const DeviceWireOptions& options) {
  LMDBIO_CHECK(wire->size() > 1 && options.pinned_bytes >= kDoublingBytesMax);
  WireScratch scratch;
  const WireJob job{*wire, scratch, kUsualChunkBytes, kUsualChunkDepth};
  LMDBIO_TRY(WireTable table, ShareWireTable(job, options.table));
  LMDBIO_TRY_VOID(CheckSources(table, wire->size()));
  // Each lane of the direct algorithm has one slot at least.
  const size_t slots_max = std::max(kUsualSlots, 2 * static_cast<size_t>(wire->size()));
  LMDBIO_TRY(auto slots,
             ForAllOrNone(group, WireSlots::Make(setup.gpu, options.pinned_bytes, slots_max)));
  std::unique_ptr<DeviceWire> made(
      new DeviceWire(std::move(wire), std::move(setup), std::move(slots)));
  made->table_ = std::move(table);
  return made;
}

DeviceWire::DeviceWire(std::unique_ptr<Wire> wire, DeviceWireSetup setup,
                       std::unique_ptr<WireSlots> slots)
    : wire_(std::move(wire)),
      setup_(std::move(setup)),
      slots_(std::move(slots)),
      agreement_(std::make_unique<WireAgreement>(*wire_)) {}

DeviceWire::~DeviceWire() {
  if (!wire_->writes_after_failure()) return;
  KeepForever(std::move(slots_));
  KeepForever(std::move(agreement_));
}

Status DeviceWire::AllReduce(const DeviceArray& values, const Reduction& reduction,
                             DeviceStream& stream) {
  if (values.count == 0) return {};
  Status done = Reduce(values, reduction, stream);
  if (done) return done;
  wire_->Stop(NamedFailure(setup_.known_as, done.error()));  // the others may wait for this rank
  // Copies out may be under way. When `stream` is done, they are, unless the driver fails.
  Status ended = slots_->out().Record(slots_->begin());
  if (ended) static_cast<void>(stream.Await(slots_->begin()));
  return done;
}

DeviceWireValues::WireLanes DeviceWire::LanesFor(const WireChoice& choice) const {
  const auto size = static_cast<uint64_t>(wire_->size());
  uint64_t peer_count = 1;
  if (choice.algorithm == WireAlgorithm::kDirect) peer_count = size - 1;
  // A worker has a peer for each step, and one that folds into it.
  if (choice.algorithm == WireAlgorithm::kHalving || choice.algorithm == WireAlgorithm::kDoubling) {
    peer_count = static_cast<uint64_t>(std::bit_width(size));
  }
  const uint64_t depth_max = slots_->slots_max() / (2 * peer_count);
  return {peer_count, std::min<uint64_t>(choice.chunk_depth, depth_max)};
}

Status DeviceWire::Reduce(const DeviceArray& values, const Reduction& reduction,
                          DeviceStream& stream) {
  const WireChoice& choice = ChoiceFor(table_, values.size_bytes());
  if (choice.algorithm == WireAlgorithm::kDoubling) {
    return ReduceByDoubling(values, reduction, stream);
  }
  const DeviceWireValues::WireLanes lanes = LanesFor(choice);
  const uint64_t chunk_bytes =
      std::min(choice.chunk_bytes, slots_->ChunkBytesMax(lanes.slot_count()));
  DeviceWireValues on_device(
      {*wire_, *slots_, setup_.kernels, setup_.check}, values,
      PiecesOf(values.count, values.type, chunk_bytes, static_cast<uint32_t>(lanes.depth)), lanes,
      stream);
  LMDBIO_TRY_VOID(on_device.Begin());
  switch (choice.algorithm) {
    case WireAlgorithm::kRing:
      return RingAllReduce(on_device, reduction);
    case WireAlgorithm::kDirect:
      return DirectAllReduce(on_device, reduction);
    case WireAlgorithm::kHalving:
    case WireAlgorithm::kDoubling:
      break;
  }
  return HalvingAllReduce(on_device, reduction);
}

// All copies are on one stream, so the memory is free again for the next call.
Status DeviceWire::ReduceByDoubling(const DeviceArray& values, const Reduction& reduction,
                                    DeviceStream& stream) {
  const uint64_t size_bytes = values.size_bytes();
  const MutableBytes bytes = slots_->pinned().bytes().first(size_bytes);
  device::DeviceEvent& is_out = slots_->event(0);
  LMDBIO_TRY_VOID(stream.CopyOut(slots_->pinned(), 0, values.begin, size_bytes));
  LMDBIO_TRY_VOID(stream.Record(is_out));
  LMDBIO_TRY_VOID(AwaitEvent(is_out, Clock::time_point::max(), setup_.check));
  const CallShape shape{.kind = WireCall::kAllReduce,
                        .type = static_cast<uint8_t>(values.type),
                        .op = static_cast<uint8_t>(reduction.op),
                        .bytes = size_bytes,
                        .details_digest = std::bit_cast<uint64_t>(reduction.scale)};
  LMDBIO_TRY(const CallOutcome outcome,
             agreement_->AgreeAndReduce(
                 {}, shape, {.data = bytes.data(), .count = values.count, .type = values.type},
                 reduction));
  if (outcome == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kInternal, "the ranks make different calls between hosts");
  }
  return stream.CopyIn(values.begin, slots_->pinned(), 0, size_bytes);
}

std::string DeviceWire::Description() const {
  return fmt::format("between hosts, reduced by GPUs:\n{}", TextOf(table_));
}

}  // namespace lmdbio::sync
