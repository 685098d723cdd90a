#include "tools/inspect/layout_statistics.h"

#include <algorithm>
#include <bit>

namespace lmdbio::tools {

// A value that does not lie on the page of its node lies on overflow pages. A step leads from the
// last page of a record to the first page of the next, so consecutive overflow values are adjacent.
void LayoutStatistics::AddValue(const Extent& value, PageNo home) {
  const uint64_t page_bytes = page_format_.page_size_bytes();
  // An empty value may start right after the last byte of its page.
  const uint64_t first_page =
      std::min(value.offset, value.offset + value.length_bytes - 1) / page_bytes;
  const bool is_overflow = value.length_bytes > 0 && first_page != home.value;
  const uint64_t page = is_overflow ? first_page : home.value;
  if (record_count_ > 0) {
    if (page < previous_page_) {
      ++backward_count_;
    } else if (page <= previous_page_ + 1) {
      ++adjacent_count_;
    } else if ((page - previous_page_) * page_bytes <= kNearBytes) {
      ++near_count_;
    } else {
      ++far_count_;
    }
  }
  previous_page_ =
      is_overflow ? page + page_format_.OverflowPageCount(value.length_bytes) - 1 : page;
  overflow_record_count_ += is_overflow ? 1 : 0;
  ++record_count_;
  value_bytes_total_ += value.length_bytes;
  value_bytes_min_ = std::min(value_bytes_min_, value.length_bytes);
  value_bytes_max_ = std::max(value_bytes_max_, value.length_bytes);
  ++buckets_[static_cast<size_t>(std::bit_width(value.length_bytes))];
}

Status LayoutStatistics::Add(const file::RecordRun& run) {
  for (const Extent& value : run.values) AddValue(value, run.home);
  // Empty if the producer of the run does not know the sizes.
  for (const uint32_t key_bytes : run.key_bytes) {
    key_bytes_min_ = std::min<uint64_t>(key_bytes_min_, key_bytes);
    key_bytes_max_ = std::max<uint64_t>(key_bytes_max_, key_bytes);
  }
  return {};
}

}  // namespace lmdbio::tools
