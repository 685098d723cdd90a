#include "lmdbio/sync/on_device/arena_mover.h"

#include <utility>

namespace lmdbio::sync {

using device::DeviceEvent;
using device::DeviceSpan;
using device::DeviceStream;

Result<std::unique_ptr<ArenaMover>> ArenaMover::Make(const ArenaMoverParts& parts,
                                                     DeviceSpan arena) {
  LMDBIO_TRY(DeviceStream stream, parts.gpu.MakeStream());
  return std::unique_ptr<ArenaMover>(new ArenaMover(parts, arena, std::move(stream)));
}

Result<StagedResult> ArenaMover::Run(const StagedWork& work, ArenaUse use, const ArenaCall& call,
                                     const ArenaResult& result_of) {
  for (const StagedTensor& tensor : work.tensors) {
    if (tensor.ready != nullptr) LMDBIO_TRY_VOID(stream_.Await(*tensor.ready));
  }
  for (uint64_t chunk = 0; chunk < work.chunks.count(); ++chunk) {
    if (use == ArenaUse::kPacked) LMDBIO_TRY_VOID(Pack(work, chunk));
    const uint64_t bytes = work.chunks.BytesOf(chunk);
    LMDBIO_TRY(const CallOutcome outcome, call(bytes, chunk, stream_));
    if (outcome == CallOutcome::kDeclined) return StagedResult{CallOutcome::kDeclined, nullptr};
    counters_.bytes += bytes;
    if (use == ArenaUse::kInPlace) continue;
    const device::DeviceAddress result = result_of ? result_of(bytes) : arena_.begin;
    LMDBIO_TRY_VOID(Move(CopyWay::kIn, work, chunk, result));
  }
  counters_.tensor_count += TensorCountOf(work);
  LMDBIO_TRY(const std::shared_ptr<DeviceEvent> is_in, parts_.events.Take());
  LMDBIO_TRY_VOID(stream_.Record(*is_in));
  return StagedResult{CallOutcome::kDone, is_in};
}

Status ArenaMover::Pack(const StagedWork& work, uint64_t chunk) {
  if (work.needs_zeros) LMDBIO_TRY_VOID(FillZeros(work, chunk));
  return Move(CopyWay::kOut, work, chunk, arena_.begin);
}

// Gaps between tensors keep values of earlier chunks, which are reduced along and never unpacked.
Status ArenaMover::FillZeros(const StagedWork& work, uint64_t chunk) {
  for (const StagedPart& part : work.chunks.PartsOf(chunk)) {
    if (work.tensors[part.tensor].input.size_bytes > 0) continue;
    ++counters_.copy_count;
    LMDBIO_TRY_VOID(stream_.Fill(arena_.begin + part.chunk_offset, std::byte{0}, part.size_bytes));
  }
  return {};
}

// A part alone is moved by the copy engine, which leaves the multiprocessors to the program.
Status ArenaMover::Move(CopyWay way, const StagedWork& work, uint64_t chunk,
                        device::DeviceAddress buffer) {
  const StagedSpans spans = SpansOf(work, way, chunk);
  if (spans.tensors.empty()) return {};
  ++counters_.copy_count;
  const bool is_out = way == CopyWay::kOut;
  const double scale = is_out ? work.prescale : 1;
  if (spans.tensors.size() == 1 && scale == 1) {
    const DeviceSpan& tensor = spans.tensors.front();
    const device::DeviceAddress place = buffer + spans.offsets.front();
    return is_out ? stream_.Copy(place, tensor.begin, tensor.size_bytes)
                  : stream_.Copy(tensor.begin, place, tensor.size_bytes);
  }
  return parts_.packer.Launch(
      stream_, kernels::PackWork{.direction = is_out ? kernels::PackDirection::kPack
                                                     : kernels::PackDirection::kUnpack,
                                 .tensors = spans.tensors,
                                 .offsets = spans.offsets,
                                 .buffer = {buffer, work.chunks.BytesOf(chunk)},
                                 .type = work.type,
                                 .scale = scale});
}

}  // namespace lmdbio::sync
