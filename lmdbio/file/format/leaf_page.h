// lmdbio/file/format/leaf_page.h - read-only view of one leaf page or sub-page: keys and their
// data.
//
// Bytes in:   one page, or the sub-page inside a node, already in memory
// Values out: keys, inline values, references to overflow runs, to trees and to sub-pages;
//             all spans point into those bytes
// Does no I/O and allocates nothing. Parse checks all sizes and offsets, so Entry cannot fail.
//
// Source: docs/format.md section 3; dissertation 2.4.2.
#ifndef LMDBIO_FILE_FORMAT_LEAF_PAGE_H_
#define LMDBIO_FILE_FORMAT_LEAF_PAGE_H_

#include "lmdbio/file/format/node_table.h"

namespace lmdbio::file {

struct LeafEntry {
  Bytes key;   // [key_bytes]
  Bytes data;  // content of the node: inline value, reference, database record or sub-page
  LeafNodeFlags flags = kInlineNode;
  uint32_t value_bytes = 0;  // length of the value, inline or in an overflow run
  uint32_t data_offset = 0;  // of `data`, from the start of the page
};

// The reference of a leaf node to the overflow run of its value.
struct OverflowReference {
  PageNo first_page;
  uint64_t transaction_id = 0;  // version 3 only
  uint64_t page_count = 0;      // version 3 only
};

class LeafPage {
 public:
  LeafPage() = default;

  // page    [page size, or size of the sub-page] borrowed; must outlive the view
  // Errors, cost: as NodeTable::Parse
  static Result<LeafPage> Parse(PageFormat format, Bytes page, const PageHeader& header) {
    LMDBIO_DCHECK(header.kind == PageKind::kLeaf);
    LMDBIO_TRY(const NodeTable nodes, NodeTable::Parse(format, page, header));
    return LeafPage(format, nodes);
  }
  static Result<LeafPage> Parse(PageFormat format, TemporaryContainer auto&& page,
                                const PageHeader& header) = delete;

  uint32_t entry_count() const { return nodes_.count(); }

  // Entry `index` in key order.
  // Requires: index < entry_count()
  LeafEntry Entry(uint32_t index) const {
    const uint32_t at = nodes_.node_offset(index);
    const NodeHeader node = NodeTable::HeaderAt(nodes_.page(), at);
    LeafEntry entry;
    entry.flags = static_cast<LeafNodeFlags>(node.flags);
    entry.value_bytes = node.data_bytes();
    entry.key = nodes_.page().subspan(at + kNodeHeaderBytes, node.key_bytes);
    entry.data_offset = at + static_cast<uint32_t>(format_.data_offset(node.key_bytes));
    entry.data = nodes_.page().subspan(entry.data_offset, entry.flags == kOverflowNode
                                                              ? format_.overflow_reference_bytes()
                                                              : entry.value_bytes);
    return entry;
  }

  // Single parts of Entry(index), without the cost of the others.
  Bytes key(uint32_t index) const { return nodes_.key(index); }
  LeafNodeFlags flags(uint32_t index) const {
    return static_cast<LeafNodeFlags>(nodes_.node_header(index).flags);
  }
  // Requires: flags(index) != kOverflowNode
  Bytes data(uint32_t index) const {
    const uint32_t at = nodes_.node_offset(index);
    const NodeHeader node = NodeTable::HeaderAt(nodes_.page(), at);
    return nodes_.page().subspan(at + format_.data_offset(node.key_bytes), node.data_bytes());
  }
  Bytes page() const { return nodes_.page(); }

  // Requires: entry.flags == kOverflowNode
  OverflowReference Reference(const LeafEntry& entry) const {
    OverflowReference reference;
    reference.first_page = PageNo{Load<uint64_t>(entry.data, 0)};
    if (format_.version() == DataVersion::k3) {
      reference.transaction_id = Load<uint64_t>(entry.data, 8);
      reference.page_count = Load<uint64_t>(entry.data, 16);
    }
    return reference;
  }

 private:
  LeafPage(PageFormat format, const NodeTable& nodes) : format_(format), nodes_(nodes) {}
  PageFormat format_{DataVersion::k1, kPageBytesMin};
  NodeTable nodes_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_LEAF_PAGE_H_
