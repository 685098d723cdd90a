#include "lmdbio/sync/on_device/staging_ring.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceSpan;
using device::DeviceStream;
using device::PinnedBytes;
using Clock = std::chrono::steady_clock;

StagingRing::StagingRing(const StagingParts& parts, PinnedBytes pinned, DeviceStream out,
                         DeviceStream in, uint64_t chunk_bytes)
    : parts_(parts),
      chunk_bytes_(chunk_bytes),
      pinned_(std::move(pinned)),
      out_(std::move(out)),
      in_(std::move(in)) {}

Result<std::unique_ptr<StagingRing>> StagingRing::Make(const StagingParts& parts,
                                                       MutableBytes memory, uint64_t chunk_bytes) {
  const uint64_t slot_count = std::min(kSlotsMax, memory.size() / chunk_bytes);
  LMDBIO_TRY(PinnedBytes pinned, parts.gpu.Pin(memory.first(slot_count * chunk_bytes)));
  LMDBIO_TRY(DeviceStream out, parts.gpu.MakeStream());
  LMDBIO_TRY(DeviceStream in, parts.gpu.MakeStream());
  std::unique_ptr<StagingRing> ring(
      new StagingRing(parts, std::move(pinned), std::move(out), std::move(in), chunk_bytes));
  for (uint64_t i = 0; i < slot_count; ++i) {
    LMDBIO_TRY(DeviceEvent is_out, parts.gpu.MakeEvent(DeviceEventKind::kLocal));
    LMDBIO_TRY(DeviceEvent is_in, parts.gpu.MakeEvent(DeviceEventKind::kLocal));
    ring->slots_.push_back({i * chunk_bytes, std::move(is_out), std::move(is_in)});
  }
  return ring;
}

// Chunks are started as far ahead as there are slots. The copies in have a stream of their own, or
// they would wait for those that are started ahead.
Result<StagedResult> StagingRing::Run(const StagedWork& work, const ChunkCall& call) {
  for (const StagedTensor& tensor : work.tensors) {
    if (tensor.ready != nullptr) LMDBIO_TRY_VOID(out_.Await(*tensor.ready));
  }
  const uint64_t count = work.chunks.count();
  const uint64_t ahead = slots_.size();
  const auto slot_of = [&](uint64_t chunk) -> StagingSlot& {
    return slots_[(next_slot_ + chunk) % slots_.size()];
  };
  for (uint64_t i = 0; i < std::min(count, ahead); ++i) {
    LMDBIO_TRY_VOID(StartOut(work, i, slot_of(i)));
  }
  for (uint64_t i = 0; i < count; ++i) {
    StagingSlot& slot = slot_of(i);
    LMDBIO_TRY_VOID(FinishOut(work, i, slot));
    LMDBIO_TRY(const CallOutcome outcome, call(BytesOf(slot, 0, work.chunks.BytesOf(i)), i));
    if (outcome == CallOutcome::kDeclined) {
      Restart();
      return StagedResult{CallOutcome::kDeclined, nullptr};
    }
    LMDBIO_TRY_VOID(StartIn(work, i, slot));
    if (i + ahead < count) LMDBIO_TRY_VOID(StartOut(work, i + ahead, slot));
  }
  next_slot_ = (next_slot_ + count) % slots_.size();
  counters_.tensor_count += TensorCountOf(work);
  LMDBIO_TRY(const std::shared_ptr<DeviceEvent> is_in, parts_.events.Take());
  LMDBIO_TRY_VOID(in_.Record(*is_in));
  return StagedResult{CallOutcome::kDone, is_in};
}

Status StagingRing::StartOut(const StagedWork& work, uint64_t chunk, StagingSlot& slot) {
  if (slot.is_in.is_recorded()) LMDBIO_TRY_VOID(out_.Await(slot.is_in));
  LMDBIO_TRY_VOID(Move(CopyWay::kOut, work, chunk, slot));
  return out_.Record(slot.is_out);
}

// The host completes what the device did not copy. The slot is free for the host then, because the
// event is behind the copy that read it.
Status StagingRing::FinishOut(const StagedWork& work, uint64_t chunk, const StagingSlot& slot) {
  const Clock::time_point began = Clock::now();
  LMDBIO_TRY_VOID(parts_.waits.AwaitDone(slot.is_out));
  const std::chrono::nanoseconds waited = Clock::now() - began;
  counters_.wait_ns += static_cast<uint64_t>(waited.count());
  for (const StagedPart& part : work.chunks.PartsOf(chunk)) {
    const MutableBytes place = BytesOf(slot, part.chunk_offset, part.size_bytes);
    if (work.tensors[part.tensor].input.size_bytes == 0) {
      if (work.needs_zeros) std::memset(place.data(), 0, place.size());
    } else if (parts_.packer == nullptr) {
      Scale(work.type, work.prescale, place.data(), place.data(),
            place.size() / ElementBytes(work.type));
    }
  }
  return {};
}

Status StagingRing::StartIn(const StagedWork& work, uint64_t chunk, StagingSlot& slot) {
  LMDBIO_TRY_VOID(Move(CopyWay::kIn, work, chunk, slot));
  return in_.Record(slot.is_in);
}

// One launch moves all parts, straight between the tensors and pinned memory. A part alone is moved
// by the copy engine, which leaves the multiprocessors to the program.
Status StagingRing::Move(CopyWay way, const StagedWork& work, uint64_t chunk,
                         const StagingSlot& slot) {
  DeviceStream& stream = way == CopyWay::kOut ? out_ : in_;
  uint64_t& bytes = way == CopyWay::kOut ? counters_.out_bytes : counters_.in_bytes;
  const double scale = way == CopyWay::kOut ? work.prescale : 1;
  const StagedSpans spans = SpansOf(work, way, chunk);
  const size_t count = spans.tensors.size();
  bytes += spans.size_bytes;
  if (parts_.packer != nullptr && (count > 1 || (scale != 1 && count > 0))) {
    ++counters_.copy_count;
    return parts_.packer->Launch(
        stream, kernels::PackWork{
                    .direction = way == CopyWay::kOut ? kernels::PackDirection::kPack
                                                      : kernels::PackDirection::kUnpack,
                    .tensors = spans.tensors,
                    .offsets = spans.offsets,
                    .buffer = {pinned_.span().begin + slot.offset, work.chunks.BytesOf(chunk)},
                    .type = work.type,
                    .scale = scale});
  }
  counters_.copy_count += count;
  for (size_t i = 0; i < count; ++i) {
    const DeviceSpan& tensor = spans.tensors[i];
    const uint64_t offset = slot.offset + spans.offsets[i];
    LMDBIO_TRY_VOID(way == CopyWay::kOut
                        ? stream.CopyOut(pinned_, offset, tensor.begin, tensor.size_bytes)
                        : stream.CopyIn(tensor.begin, pinned_, offset, tensor.size_bytes));
  }
  return {};
}

MutableBytes StagingRing::BytesOf(const StagingSlot& slot, uint64_t offset,
                                  uint64_t size_bytes) const {
  return pinned_.bytes().subspan(slot.offset + offset, size_bytes);
}

Result<bool> StagingRing::IsIdle() const {
  LMDBIO_TRY(const bool is_out, out_.IsDone());
  if (!is_out) return false;
  return in_.IsDone();
}

}  // namespace lmdbio::sync
