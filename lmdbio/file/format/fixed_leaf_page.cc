#include "lmdbio/file/format/fixed_leaf_page.h"

#include <fmt/format.h>

namespace lmdbio::file {

Result<FixedLeafPage> FixedLeafPage::Parse(PageFormat format, Bytes page, const PageHeader& header,
                                           uint32_t item_bytes) {
  const auto corrupt = [&](std::string_view what) {
    return Fail(ErrorCode::kCorruption, fmt::format("page {} ({}): {}", header.page_no.value,
                                                    PageKindName(header.kind), what));
  };
  // The page has no slots, but LMDB keeps the bounds as if it had: `lower` grows by one slot for
  // each item, and `upper` - `lower` is the free space of the page. Both are checked, because the
  // item count comes from `lower` alone.
  if (header.lower_bytes < format.header_bytes() || (header.lower_bytes & 1) != 0) {
    return corrupt(fmt::format("item counter {} lies inside the header", header.lower_bytes));
  }
  FixedLeafPage view;
  view.page_ = page;
  view.header_bytes_ = format.header_bytes();
  view.item_bytes_ = item_bytes;
  view.item_count_ = (header.lower_bytes - format.header_bytes()) / kSlotBytes;
  if (view.item_bytes_ == 0) return corrupt("items of 0 bytes");
  if (view.item_count_ == 0) return corrupt("holds no item");
  const uint64_t end = format.header_bytes() + uint64_t{view.item_count_} * view.item_bytes_;
  if (end > page.size()) {
    return corrupt(fmt::format("{} items of {} bytes do not fit {} bytes", view.item_count_,
                               view.item_bytes_, page.size()));
  }
  // `upper` may lie beyond the end (items of one byte take less than a slot) and wraps at 16 bits.
  const uint64_t upper_bytes = page.size() + header.lower_bytes - end;
  if (static_cast<uint16_t>(upper_bytes) != static_cast<uint16_t>(header.upper_bytes)) {
    return corrupt(fmt::format("{} items of {} bytes do not match its free space field",
                               view.item_count_, view.item_bytes_));
  }
  return view;
}

}  // namespace lmdbio::file
