#include "lmdbio/feed/batch_copier.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/kernels/kernel_plans.h"

namespace lmdbio::feed {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceSpan;
using device::DeviceStream;
using device::PinnedBytes;
using kernels::GatherValue;
using kernels::GatherWork;

// The part of a buffer that a field has.
DeviceSpan RowsOf(const RowBuffer& buffer, const FieldLayout& field) {
  return {buffer.span().begin + field.rows_at, field.size_bytes};
}

}  // namespace

Result<std::unique_ptr<BatchCopier>> BatchCopier::Make(
    std::shared_ptr<device::Device> gpu, std::unique_ptr<kernels::DeviceKernels> kernels) {
  LMDBIO_TRY(DeviceStream stream, gpu->MakeStream());
  std::unique_ptr<BatchCopier> copier(
      new BatchCopier(std::move(gpu), std::move(kernels), std::move(stream)));
  for (size_t i = 0; i < kSlots; ++i) {
    LMDBIO_TRY(DeviceEvent done, copier->gpu_->MakeEvent(DeviceEventKind::kLocal));
    copier->slots_.push_back({{}, std::move(done), {}, false});
  }
  return copier;
}

void BatchCopier::NoteStaged(const std::string& why) {
  if (std::exchange(has_noted_, true)) return;
  notes_.push_back(fmt::format("GPU {}: {}; the host copies each batch to pinned memory first",
                               gpu_->facts().ordinal, why));
}

Status BatchCopier::UseWindow(MutableBytes window) {
  if (kernels_ == nullptr) return {};
  if (window.empty()) {
    NoteStaged("the values lie in a map of the file, or in a kept copy of it");
    return {};
  }
  Result<PinnedBytes> pinned = gpu_->Pin(window);
  if (pinned) {
    window_.emplace(*std::move(pinned));
    return {};
  }
  LMDBIO_TRY_VOID(gpu_->context()->CheckUsable());
  NoteStaged(fmt::format("the window cannot be pinned ({})", pinned.error().message()));
  return {};
}

void BatchCopier::LeaveWindow() { window_.reset(); }

Result<bool> BatchCopier::Settle() {
  bool has_free = false;
  for (Slot& slot : slots_) {
    if (slot.is_busy) {
      LMDBIO_TRY(const bool is_done, slot.done.IsDone());
      if (is_done) {
        slot.held.Return();
        slot.is_busy = false;
      }
    }
    has_free = has_free || !slot.is_busy;
  }
  return has_free;
}

bool BatchCopier::HoldsBatches() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.held.is_held(); });
}

bool BatchCopier::IsInWindow(const load::Batch& batch) const {
  const Bytes window = window_->bytes();
  const std::less_equal<const std::byte*> is_not_after;
  for (size_t i = 0; i < batch.record_count(); ++i) {
    const Bytes value = batch.value(i);
    if (value.empty()) continue;
    const bool is_inside = is_not_after(window.data(), value.data()) &&
                           is_not_after(value.data() + value.size(), window.data() + window.size());
    if (!is_inside) return false;
  }
  return true;
}

Status BatchCopier::Copy(load::HeldBatch& batch, const RowLayout& layout, RowBuffer& to) {
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& each) { return !each.is_busy; });
  LMDBIO_CHECK(slot != slots_.end());
  const bool is_gathered = window_.has_value() && IsInWindow(*batch);
  if (window_.has_value() && !is_gathered) {
    NoteStaged("the values of some batches lie outside the pinned window");
  }
  LMDBIO_TRY_VOID(is_gathered ? Gather(*batch, layout, to, *slot)
                              : Stage(*batch, layout, to, *slot));
  slot->is_busy = true;
  slot->held = std::move(batch);
  Status recorded = stream_.Record(slot->done);
  if (recorded) recorded = stream_.Record(to.copied());
  if (!recorded) {
    is_broken_ = true;
    return recorded;
  }
  // The host has copied the values, so their memory may serve other batches.
  if (!is_gathered) slot->held.Return();
  ++(is_gathered ? counters_.gathered_count : counters_.staged_count);
  for (const FieldLayout& field : layout.fields) {
    counters_.device_bytes += field.size_bytes + field.offset_count * sizeof(uint64_t);
  }
  return {};
}

Status BatchCopier::Gather(const load::Batch& batch, const RowLayout& layout, RowBuffer& to,
                           Slot& slot) {
  struct FieldWork {
    std::vector<GatherValue> values;
    std::optional<uint64_t> row_bytes;
    uint64_t list_at = 0;
    uint64_t offsets_at = 0;
  };
  std::vector<FieldWork> works(layout.fields.size());
  const std::byte* const window = window_->bytes().data();
  uint64_t end = 0;
  for (size_t f = 0; f < works.size(); ++f) {
    FieldWork& work = works[f];
    const FieldLayout& field = layout.fields[f];
    for (size_t i = f; i < batch.record_count(); i += batch.field_count()) {
      const Bytes value = batch.value(i);
      const uint64_t offset = value.empty() ? 0 : static_cast<uint64_t>(value.data() - window);
      work.values.push_back({offset, value.size()});
    }
    if (field.offset_count == 0) work.row_bytes = field.row_bytes;
    work.list_at = end;
    work.offsets_at = end + kernels::GatherListBytes(work.values, work.row_bytes);
    end = work.offsets_at + field.offset_count * sizeof(uint64_t);
  }
  LMDBIO_TRY_VOID(slot.memory.Grow(*gpu_, std::max<uint64_t>(end, 1)));
  const PinnedBytes& memory = slot.memory.pinned();
  for (size_t f = 0; f < works.size(); ++f) {
    const FieldLayout& field = layout.fields[f];
    const GatherWork work = {.window = *window_,
                             .values = works[f].values,
                             .rows = RowsOf(to, field),
                             .row_bytes = works[f].row_bytes,
                             .list = memory,
                             .list_offset = works[f].list_at};
    is_broken_ = true;  // until the end of all work is recorded
    LMDBIO_TRY_VOID(kernels_->Launch(stream_, work));
    if (field.offset_count == 0) continue;
    const uint64_t size_bytes = field.offset_count * sizeof(uint64_t);
    WriteOffsets(batch, f, memory.bytes().subspan(works[f].offsets_at, size_bytes));
    LMDBIO_TRY_VOID(stream_.CopyIn(to.span().begin + field.offsets_at, memory, works[f].offsets_at,
                                   size_bytes));
  }
  is_broken_ = false;
  return {};
}

// The memory has the layout of the buffer, so one copy moves all of it.
Status BatchCopier::Stage(const load::Batch& batch, const RowLayout& layout, RowBuffer& to,
                          Slot& slot) {
  if (layout.size_bytes == 0) return {};
  LMDBIO_TRY_VOID(slot.memory.Grow(*gpu_, layout.size_bytes));
  const PinnedBytes& memory = slot.memory.pinned();
  for (size_t f = 0; f < layout.fields.size(); ++f) {
    const FieldLayout& field = layout.fields[f];
    WriteRows(batch, layout, f, memory.bytes().subspan(field.rows_at, field.size_bytes));
    if (field.offset_count == 0) continue;
    WriteOffsets(batch, f,
                 memory.bytes().subspan(field.offsets_at, field.offset_count * sizeof(uint64_t)));
  }
  Status copied = stream_.CopyIn(to.span().begin, memory, 0, layout.size_bytes);
  if (!copied) is_broken_ = true;
  return copied;
}

Status BatchCopier::AwaitAll() {
  LMDBIO_TRY_VOID(stream_.Synchronize());
  for (Slot& slot : slots_) {
    slot.held.Return();
    slot.is_busy = false;
  }
  return {};
}

void BatchCopier::AddTo(FeedCounters& counters) const {
  counters.gathered_count += counters_.gathered_count;
  counters.staged_count += counters_.staged_count;
  counters.device_bytes += counters_.device_bytes;
}

std::string BatchCopier::Describe() const {
  if (!window_) return "batches are staged";
  return fmt::format("batches are gathered out of {} pinned bytes", window_->bytes().size());
}

}  // namespace lmdbio::feed
