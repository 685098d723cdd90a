#include "lmdbio/format/node_table.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

namespace lmdbio::format {
namespace {

// One bit for each even offset of the largest page.
class OffsetSet {
 public:
  explicit OffsetSet(size_t page_bytes) {
    std::memset(words_.data(), 0, (page_bytes / 2 / 64 + 1) * sizeof(uint64_t));
  }
  void Insert(uint32_t offset) { words_[offset >> 7] |= Bit(offset); }
  bool Contains(uint32_t offset) const { return (words_[offset >> 7] & Bit(offset)) != 0; }

 private:
  static uint64_t Bit(uint32_t offset) { return uint64_t{1} << ((offset >> 1) & 63); }
  std::array<uint64_t, kPageBytesMax / 2 / 64 + 1> words_;  // only the page's share is initialised
};

tl::unexpected<Error> Corrupt(const PageHeader& header, std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("page {} ({}): {}", header.page_no.value,
                                                  PageKindName(header.kind), what));
}

bool IsLeafNodeFlags(uint16_t flags) {
  return flags == kInlineNode || flags == kOverflowNode || flags == kDatabaseNode ||
         flags == kSubPageNode || flags == kSubTreeNode;
}

// Bytes of node area that a node takes; 0 if its flags are of no node.
uint64_t NodeBytes(PageFormat format, PageKind kind, const NodeHeader& node) {
  if (kind == PageKind::kBranch) return format.BranchNodeBytes(node.key_bytes);
  const uint64_t data_bytes =
      node.flags == kOverflowNode ? format.overflow_reference_bytes() : uint64_t{node.data_bytes()};
  return IsLeafNodeFlags(node.flags) ? format.LeafNodeBytes(node.key_bytes, data_bytes) : 0;
}

// Walks the node area from its start: each node must begin where the one before it ended, and be in
// the slot table once.
Status CheckTiling(PageFormat format, Bytes page, const PageHeader& header, uint32_t count,
                   const OffsetSet& starts) {
  uint64_t at = header.upper_bytes;
  for (uint32_t seen = 0; seen < count; ++seen) {
    if (at + kNodeHeaderBytes > page.size() || !starts.Contains(static_cast<uint32_t>(at))) {
      return Corrupt(header, fmt::format("no slot for the node at offset {}", at));
    }
    const uint64_t node_bytes = NodeBytes(format, header.kind, NodeTable::HeaderAt(page, at));
    if (node_bytes == 0) {
      return Corrupt(header, fmt::format("the node at offset {} has impossible flags", at));
    }
    if (node_bytes > page.size() - at) {
      return Corrupt(header,
                     fmt::format("the node at offset {} runs past the end of the page", at));
    }
    at += node_bytes;
  }
  // A sub-page of an odd-sized node may end in a byte of padding.
  if (PageFormat::Even(at) != PageFormat::Even(page.size())) {
    return Corrupt(header, fmt::format("{} bytes at its end belong to no node", page.size() - at));
  }
  return {};
}

}  // namespace

Result<NodeTable> NodeTable::Parse(PageFormat format, Bytes page, const PageHeader& header) {
  if (header.lower_bytes < format.header_bytes() || header.lower_bytes > header.upper_bytes ||
      header.upper_bytes > page.size() || (header.lower_bytes & 1) != 0 ||
      (header.upper_bytes & 1) != 0) {
    return Corrupt(header, fmt::format("bounds {} and {} do not fit {} bytes", header.lower_bytes,
                                       header.upper_bytes, page.size()));
  }
  NodeTable table;
  table.page_ = page;
  table.slots_at_ = format.header_bytes();
  table.pointer_base_ = format.pointer_base();
  table.count_ = (header.lower_bytes - format.header_bytes()) / kSlotBytes;
  if (table.count_ == 0) return Corrupt(header, "holds no node");

  OffsetSet starts(page.size());
  for (uint32_t i = 0; i < table.count_; ++i) {
    const uint32_t at = table.node_offset(i);
    if (at < header.upper_bytes || at >= page.size() || (at & 1) != 0) {
      return Corrupt(header, fmt::format("node {} at offset {} lies outside [{}, {})", i, at,
                                         header.upper_bytes, page.size()));
    }
    starts.Insert(at);
  }
  LMDBIO_TRY_VOID(CheckTiling(format, page, header, table.count_, starts));
  return table;
}

}  // namespace lmdbio::format
