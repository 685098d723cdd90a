#include "lmdbio/load/slots/in_place_view.h"

#include <algorithm>

#include "lmdbio/file/io/map_advice.h"

namespace lmdbio::load {
namespace {

// Values lie together if they span at most this many bytes of the file for each byte of their own.
constexpr uint64_t kSpanPerByteMax = 2;

// Values of at least this many bytes are touched page by page. A fault maps sixteen pages anyway.
// The loop lets the processor load several address translations at a time; a program that streams
// through the value would wait for each of them.
constexpr uint64_t kTouchedBytesMin = 64 << 10;
constexpr uint64_t kTouchStepBytes = 4096;

}  // namespace

Result<InPlaceView> InPlaceView::Open(const std::string& data_path, const file::Snapshot& snapshot,
                                      OnError on_error) {
  LMDBIO_TRY(std::unique_ptr<file::MapSource> map, file::MapSource::Open(data_path));
  map->Advise(AccessPattern::kSequential);
  LMDBIO_TRY_VOID(map->CheckNotShrunk(snapshot.file_size_bytes));
  return InPlaceView(std::move(map), snapshot, on_error);
}

void InPlaceView::Touch(const RecordEntry& entry) const {
  for (uint64_t at = 0; at < entry.value_bytes; at += kTouchStepBytes) {
    file::TouchByte(map_->map(), entry.value_at + at);
  }
}

// Maps small values that lie together in one call, instead of with one fault for sixteen pages.
void InPlaceView::Populate(std::span<const RecordEntry> entries) const {
  uint64_t begin = pages_.snapshot().file_size_bytes;
  uint64_t end = 0;
  uint64_t value_bytes = 0;
  for (const RecordEntry& entry : entries) {
    if (entry.value_bytes >= kTouchedBytesMin) continue;
    begin = std::min(begin, entry.value_at);
    end = std::max(end, entry.value_at + entry.value_bytes);
    value_bytes += entry.value_bytes;
  }
  if (begin < end && end - begin <= kSpanPerByteMax * value_bytes) {
    map_->Populate({begin, end - begin});
  }
}

Status InPlaceView::CheckHead(const RecordEntry& entry) const {
  if (!entry.has_run) return {};
  const uint64_t header_bytes = pages_.page_format().header_bytes();
  return pages_.CheckOverflowHead(PageNo{entry.value_at / pages_.page_format().page_size_bytes()},
                                  map_->map().subspan(entry.value_at - header_bytes, header_bytes),
                                  entry.value_bytes);
}

// The size comes first, because a touch behind the end of the file would end the process.
Result<size_t> InPlaceView::Ready(std::span<RecordEntry> entries) const {
  LMDBIO_TRY_VOID(map_->CheckNotShrunk(pages_.snapshot().file_size_bytes));
  Populate(entries);
  size_t kept = 0;
  for (const RecordEntry& entry : entries) {
    Status sound = CheckHead(entry);
    if (!sound && on_error_ == OnError::kRaise) return Fail(std::move(sound).error());
    if (!sound) continue;
    // Removed in place: this rank alone uses these entries.
    entries[kept++] = entry;
    if (entry.value_bytes >= kTouchedBytesMin) Touch(entry);
  }
  return kept;
}

}  // namespace lmdbio::load
