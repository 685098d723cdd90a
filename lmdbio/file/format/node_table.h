// lmdbio/file/format/node_table.h - the slotted part that branch pages, leaf pages and sub-pages
// share.
//
//   | header | slot 0 | slot 1 | ... lower      free      upper | node | node | ... | end |
//
// Slots are u16 offsets in key order. Nodes are packed from the end of the page downwards, in the
// order of insertion. Each takes an even number of bytes, and there are no gaps, except on branch
// pages of LMDB up to 0.9.10. Parse checks this node by node. So reading a node needs no further
// check, and every damaged byte of the slots and of a leaf node's sizes is detected.
//
// Source: docs/format.md section 3.
#ifndef LMDBIO_FILE_FORMAT_NODE_TABLE_H_
#define LMDBIO_FILE_FORMAT_NODE_TABLE_H_

#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/format/load.h"
#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/format/page_header.h"

namespace lmdbio::file {

// The 8 bytes that start a node. In a leaf, `lo` and `hi` are the two halves of the data size; in a
// branch, `lo`, `hi` and `flags` are the child's page number.
struct NodeHeader {
  uint16_t lo, hi, flags, key_bytes;

  // Big-endian writers swap the halves, so that the pair reads as one native number either way.
  uint32_t data_bytes() const {
    if constexpr (std::endian::native == std::endian::little) {
      return lo | uint32_t{hi} << 16;
    } else {
      return hi | uint32_t{lo} << 16;
    }
  }
  PageNo child() const { return PageNo{data_bytes() | uint64_t{flags} << 32}; }
};

// `flags` of a leaf node: the kind of data that follows the key. No other values exist.
enum LeafNodeFlags : uint16_t {
  kInlineNode = 0x00,    // the value itself
  kOverflowNode = 0x01,  // a reference to the overflow run that holds the value
  kDatabaseNode = 0x02,  // the record of a named database, the key being its name
  kSubPageNode = 0x04,   // a sub-page with the key's duplicates
  kSubTreeNode = 0x06,   // the record of a private tree with the key's duplicates
};

class NodeTable {
 public:
  NodeTable() = default;

  // Checks the slot table and the node area of `page`.
  //
  // page    [page size, or size of the sub-page] borrowed; must outlive the table
  // header  of that page, from ParsePageHeader or ParseSubPageHeader: kind kBranch or kLeaf
  //
  // Errors: kCorruption  names the page and the first node that does not fit
  // Cost:   O(count()), touches every node's header
  static Result<NodeTable> Parse(PageFormat format, Bytes page, const PageHeader& header);
  static Result<NodeTable> Parse(PageFormat format, TemporaryContainer auto&& page,
                                 const PageHeader& header) = delete;

  uint32_t count() const { return count_; }  // >= 1 after Parse

  // Requires (here and below): index < count()
  uint32_t node_offset(uint32_t index) const {
    LMDBIO_DCHECK(index < count_);
    return Load<uint16_t>(page_, slots_at_ + index * size_t{kSlotBytes}) + pointer_base_;
  }
  NodeHeader node_header(uint32_t index) const { return HeaderAt(page_, node_offset(index)); }
  Bytes key(uint32_t index) const {
    const uint32_t at = node_offset(index);
    return page_.subspan(at + kNodeHeaderBytes, HeaderAt(page_, at).key_bytes);
  }
  Bytes page() const { return page_; }

  static NodeHeader HeaderAt(Bytes page, size_t offset) {
    LMDBIO_DCHECK(offset + kNodeHeaderBytes <= page.size());
    NodeHeader header;
    std::memcpy(&header, page.data() + offset, sizeof(header));
    return header;
  }

 private:
  Bytes page_;
  uint32_t slots_at_ = 0;
  uint32_t pointer_base_ = 0;
  uint32_t count_ = 0;
};

static_assert(sizeof(NodeHeader) == kNodeHeaderBytes);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_NODE_TABLE_H_
