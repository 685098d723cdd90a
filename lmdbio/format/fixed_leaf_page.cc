#include "lmdbio/format/fixed_leaf_page.h"

#include <fmt/format.h>

namespace lmdbio::format {

Result<FixedLeafPage> FixedLeafPage::Parse(PageFormat format, Bytes page,
                                           const PageHeader& header) {
  const auto corrupt = [&](std::string_view what) {
    return Fail(ErrorCode::kCorruption, fmt::format("page {} ({}): {}", header.page_no.value,
                                                    PageKindName(header.kind), what));
  };
  // `lower` only counts the items here, two bytes each as if there were slots; `upper` means
  // nothing.
  if (header.lower_bytes < format.header_bytes() || (header.lower_bytes & 1) != 0) {
    return corrupt(fmt::format("item counter {} lies inside the header", header.lower_bytes));
  }
  FixedLeafPage view;
  view.page_ = page;
  view.header_bytes_ = format.header_bytes();
  view.item_bytes_ = header.item_bytes;
  view.item_count_ = (header.lower_bytes - format.header_bytes()) / kSlotBytes;
  if (view.item_bytes_ == 0) return corrupt("items of 0 bytes");
  if (view.item_count_ == 0) return corrupt("holds no item");
  const uint64_t end = format.header_bytes() + uint64_t{view.item_count_} * view.item_bytes_;
  if (end > page.size()) {
    return corrupt(fmt::format("{} items of {} bytes do not fit {} bytes", view.item_count_,
                               view.item_bytes_, page.size()));
  }
  return view;
}

}  // namespace lmdbio::format
