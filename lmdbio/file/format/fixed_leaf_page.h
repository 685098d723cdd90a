// lmdbio/file/format/fixed_leaf_page.h - read-only view of packed fixed-size duplicates (LMDB's
// LEAF2).
//
// Items of one size follow the header without gaps. The page has no slots and no nodes.
//
// Source: docs/format.md section 4.
#ifndef LMDBIO_FILE_FORMAT_FIXED_LEAF_PAGE_H_
#define LMDBIO_FILE_FORMAT_FIXED_LEAF_PAGE_H_

#include "lmdbio/file/format/load.h"
#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/format/page_header.h"

namespace lmdbio::file {

class FixedLeafPage {
 public:
  FixedLeafPage() = default;

  // page        [page size, or size of the sub-page] borrowed; must outlive the view
  // header      of that page: kind kFixedLeaf
  // item_bytes  of one item, from the database record of the tree, or from the header of a
  //             sub-page. (LMDB up to 0.9.16 leaves this field undefined in the pages of a tree.)
  // Errors: kCorruption  item size 0, no item, more items than fit, or a free space in the header
  //                      that differs from the item size and count
  // Cost:   O(1)
  static Result<FixedLeafPage> Parse(PageFormat format, Bytes page, const PageHeader& header,
                                     uint32_t item_bytes);
  static Result<FixedLeafPage> Parse(PageFormat format, TemporaryContainer auto&& page,
                                     const PageHeader& header, uint32_t item_bytes) = delete;

  uint32_t item_count() const { return item_count_; }
  uint32_t item_bytes() const { return item_bytes_; }
  // Number of items that still fit behind the last one.
  uint32_t spare_item_count() const {
    const auto used = header_bytes_ + item_count_ * uint64_t{item_bytes_};
    return static_cast<uint32_t>((page_.size() - used) / item_bytes_);
  }

  // Offset of the item from the start of the page. Requires: index < item_count()
  uint32_t item_offset(uint32_t index) const {
    LMDBIO_DCHECK(index < item_count_);
    return header_bytes_ + index * item_bytes_;
  }
  Bytes item(uint32_t index) const { return page_.subspan(item_offset(index), item_bytes_); }

 private:
  Bytes page_;
  uint32_t header_bytes_ = 0;
  uint32_t item_bytes_ = 0;
  uint32_t item_count_ = 0;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_FIXED_LEAF_PAGE_H_
