#include "bench/device_jobs/host_reduced_wire.h"

#include <algorithm>
#include <chrono>

#include "lmdbio/base/align.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/over_wire/wire_values.h"

namespace lmdbio::figures {
namespace {

using device::DeviceEvent;
using device::DeviceStream;
using sync::ValueRange;

// The size of a copy out.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// Values of the host that come from a GPU, and go back to it.
class CopiedValues final : public sync::WireValues {
 public:
  CopiedValues(const sync::WireJob& job, const sync::DeviceArray& values, const PinnedSpace& space,
               std::vector<DeviceEvent>& events, DeviceStream& in)
      : values_(values),
        space_(space),
        events_(events),
        in_(in),
        host_(job, {.data = space.bytes().data(), .count = values.count, .type = values.type}, 1),
        is_out_(sync::ChunkCount(values.size_bytes(), kPieceBytes)) {}

  // Enqueues the copies out, in the order in which the algorithms need the values: those that this
  // rank sends at first, and then the others before them.
  Status StartOut(DeviceStream& out, uint64_t first_byte) {
    const uint64_t count = is_out_.size();
    const uint64_t first = std::min(first_byte / kPieceBytes, count - 1);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t piece = (first + i) % count;
      const ValueRange range = PieceAt(piece);
      LMDBIO_TRY_VOID(
          out.CopyOut(space_.pinned(), range.begin, values_.begin + range.begin, range.size_bytes));
      LMDBIO_TRY_VOID(out.Record(events_[piece]));
    }
    return {};
  }
  // Copies those back that were not stored.
  Status FinishIn() {
    std::ranges::sort(stored_, {}, &ValueRange::begin);
    uint64_t done = 0;
    stored_.push_back({values_.size_bytes(), 0});
    for (const ValueRange& range : std::vector<ValueRange>(stored_)) {
      if (range.begin > done) LMDBIO_TRY_VOID(StartIn({done, range.begin - done}));
      done = std::max(done, range.begin + range.size_bytes);
    }
    return {};
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const sync::WirePieces& pieces() const override { return host_.pieces(); }
  Status StartSend(int to, const ValueRange& chunk) override {
    LMDBIO_TRY_VOID(AwaitOut(chunk));
    return host_.StartSend(to, chunk);
  }
  Status AwaitSend(int to) override { return host_.AwaitSend(to); }
  Status StartStore(int from, const ValueRange& chunk) override {
    LMDBIO_TRY_VOID(AwaitOut(chunk));
    return host_.StartStore(from, chunk);
  }
  Status FinishStore(int from, const ValueRange& chunk, int forward_to) override {
    LMDBIO_TRY_VOID(host_.FinishStore(from, chunk, forward_to));
    stored_.push_back(chunk);
    return StartIn(chunk);
  }
  Status StartReduce(int from, uint64_t turn, const ValueRange& chunk) override {
    return host_.StartReduce(from, turn, chunk);
  }
  Status FinishReduce(int from, uint64_t turn, const ValueRange& chunk,
                      const sync::Reduction& reduction, int forward_to) override {
    LMDBIO_TRY_VOID(AwaitOut(chunk));
    return host_.FinishReduce(from, turn, chunk, reduction, forward_to);
  }
  Status FinishReduceOfAll(uint64_t turn, const ValueRange& chunk,
                           const sync::Reduction& reduction) override {
    LMDBIO_TRY_VOID(AwaitOut(chunk));
    return host_.FinishReduceOfAll(turn, chunk, reduction);
  }

 private:
  ValueRange PieceAt(uint64_t piece) const {
    return sync::ChunkOf(ValueRange{0, values_.size_bytes()}, piece, kPieceBytes);
  }
  Status AwaitOut(const ValueRange& range) {
    const uint64_t end = AlignUp(range.begin + range.size_bytes, kPieceBytes) / kPieceBytes;
    for (uint64_t piece = range.begin / kPieceBytes; piece < end && range.size_bytes > 0; ++piece) {
      if (is_out_[piece]) continue;
      LMDBIO_TRY_VOID(
          sync::AwaitEvent(events_[piece], std::chrono::steady_clock::time_point::max()));
      is_out_[piece] = true;
    }
    return {};
  }
  Status StartIn(const ValueRange& range) {
    return in_.CopyIn(values_.begin + range.begin, space_.pinned(), range.begin, range.size_bytes);
  }

  const sync::DeviceArray values_;
  const PinnedSpace& space_;
  std::vector<DeviceEvent>& events_;
  DeviceStream& in_;
  sync::HostValues host_;
  std::vector<bool> is_out_;  // of each piece
  std::vector<ValueRange> stored_;
};

}  // namespace

Result<std::unique_ptr<HostReducedWire>> HostReducedWire::Make(device::Device& gpu,
                                                               std::unique_ptr<sync::Wire> wire,
                                                               const sync::WireChoice& choice,
                                                               uint64_t size_bytes_max) {
  LMDBIO_TRY(PinnedSpace space, PinnedSpace::Make(gpu, AlignUp(size_bytes_max, MemoryPageBytes())));
  LMDBIO_TRY(DeviceStream out, gpu.MakeStream());
  LMDBIO_TRY(DeviceEvent begin, gpu.MakeEvent(device::DeviceEventKind::kLocal));
  std::unique_ptr<HostReducedWire> made(new HostReducedWire(
      std::move(wire), choice, std::move(space), std::move(out), std::move(begin)));
  for (uint64_t i = 0; i < sync::ChunkCount(size_bytes_max, kPieceBytes); ++i) {
    LMDBIO_TRY(DeviceEvent event, gpu.MakeEvent(device::DeviceEventKind::kLocal));
    made->events_.push_back(std::move(event));
  }
  return made;
}

// The ring sends the part of this rank at first. Halving sends the half in which this rank is not.
Status HostReducedWire::AllReduce(const sync::DeviceArray& values, const sync::Reduction& reduction,
                                  DeviceStream& stream) {
  if (values.count == 0) return {};
  const sync::WireJob job{*wire_, scratch_, choice_.chunk_bytes, choice_.chunk_depth};
  CopiedValues copied(job, values, space_, events_, stream);
  // Behind the copies in of the call before, which read the same memory.
  LMDBIO_TRY_VOID(stream.Record(begin_));
  LMDBIO_TRY_VOID(out_.Await(begin_));
  const uint64_t size_bytes = values.size_bytes();
  const auto rank = static_cast<uint64_t>(wire_->rank());
  const auto rank_count = static_cast<uint64_t>(wire_->size());
  if (choice_.algorithm == sync::WireAlgorithm::kRing) {
    LMDBIO_TRY_VOID(copied.StartOut(out_, size_bytes / rank_count * rank));
    LMDBIO_TRY_VOID(sync::RingAllReduce(copied, reduction));
  } else {
    LMDBIO_TRY_VOID(copied.StartOut(out_, 2 * rank < rank_count ? size_bytes / 2 : 0));
    LMDBIO_TRY_VOID(sync::HalvingAllReduce(copied, reduction));
  }
  return copied.FinishIn();
}

std::string HostReducedWire::Description() const {
  return "between hosts, reduced by the host:\n" + sync::TextOf({choice_});
}

}  // namespace lmdbio::figures
