#include "lmdbio/load/slots/in_place_view.h"

#include <utility>

#include "lmdbio/load/slots/record_checker.h"

namespace lmdbio::load {

Result<InPlaceView> InPlaceView::Open(const std::string& data_path, const file::Snapshot& snapshot,
                                      OnError on_error) {
  LMDBIO_TRY(std::unique_ptr<file::MapSource> map, file::MapSource::Open(data_path));
  map->Advise(AccessPattern::kSequential);
  LMDBIO_TRY_VOID(map->CheckNotShrunk(snapshot.file_size_bytes));
  return InPlaceView(std::move(map), snapshot, on_error);
}

Status InPlaceView::CheckHead(const RecordEntry& entry) const {
  if (!entry.has_unchecked_head) return {};
  const uint64_t header_bytes = pages_.page_format().header_bytes();
  return pages_.CheckOverflowHead(PageNo{pages_.page_format().PagesBefore(entry.value_at)},
                                  map_->map().subspan(entry.value_at - header_bytes, header_bytes),
                                  entry.value_bytes);
}

Result<size_t> InPlaceView::Ready(std::span<RecordEntry> entries, size_t field_count) const {
  LMDBIO_TRY_VOID(map_->CheckNotShrunk(pages_.snapshot().file_size_bytes));
  Result<size_t> kept = CheckHeads(entries, field_count);
  LMDBIO_TRY_VOID(map_->CheckWhole());  // a lost head looks like a damaged one
  return kept;
}

Result<size_t> InPlaceView::CheckHeads(std::span<RecordEntry> entries, size_t field_count) const {
  size_t kept = 0;
  size_t field = 0;     // of the record within its sample
  bool is_bad = false;  // an earlier record of the sample
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kHeadsAhead < entries.size()) {
      const RecordEntry& ahead = entries[i + kHeadsAhead];
      if (ahead.has_unchecked_head) __builtin_prefetch(map_->map().data() + ahead.value_at);
    }
    Status sound = CheckHead(entries[i]);
    if (!sound && on_error_ == OnError::kRaise) return Fail(std::move(sound).error());
    // Removed in place: this rank alone uses these entries.
    is_bad = is_bad || !sound;
    if (kept + field < i) entries[kept + field] = entries[i];
    if (++field < field_count) continue;
    if (!is_bad) kept += field_count;
    field = 0;
    is_bad = false;
  }
  return kept;
}

}  // namespace lmdbio::load
