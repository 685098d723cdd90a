#include "lmdbio/file/format/node_table.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

namespace lmdbio::file {
namespace {

// One bit for each even offset of the largest page.
class OffsetSet {
 public:
  explicit OffsetSet(size_t page_bytes) {
    std::memset(words_.data(), 0, (page_bytes / 2 / 64 + 1) * sizeof(uint64_t));
  }
  void Insert(uint32_t offset) { words_[offset >> 7] |= Bit(offset); }
  bool Contains(uint32_t offset) const { return (words_[offset >> 7] & Bit(offset)) != 0; }

  // The first member in [offset, end), or `end`.
  uint32_t NextFrom(uint32_t offset, uint32_t end) const {
    while (offset < end && !Contains(offset)) offset += 2;
    return offset < end ? offset : end;
  }

 private:
  static uint64_t Bit(uint32_t offset) { return uint64_t{1} << ((offset >> 1) & 63); }
  std::array<uint64_t, kPageBytesMax / 2 / 64 + 1> words_;  // only the page's share is initialised
};

tl::unexpected<Error> Corrupt(const PageHeader& header, std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("page {} ({}): {}", header.page_no.value,
                                                  PageKindName(header.kind), what));
}

bool IsLeafNodeFlags(uint16_t flags) {
  constexpr uint32_t kAll = 1U << kInlineNode | 1U << kOverflowNode | 1U << kDatabaseNode |
                            1U << kSubPageNode | 1U << kSubTreeNode;
  return flags <= kSubTreeNode && (kAll >> flags & 1) != 0;
}

// Bytes of the node area that a node takes; 0 if its flags are invalid.
uint64_t NodeBytes(PageFormat format, PageKind kind, const NodeHeader& node) {
  if (kind == PageKind::kBranch) return format.BranchNodeBytes(node.key_bytes);
  const uint64_t data_bytes =
      node.flags == kOverflowNode ? format.overflow_reference_bytes() : uint64_t{node.data_bytes()};
  return IsLeafNodeFlags(node.flags) ? format.LeafNodeBytes(node.key_bytes, data_bytes) : 0;
}

// Fast path for a page that was filled in key order, which most pages are: node i ends at the start
// of node i - 1. One pass over the slots then proves that the nodes tile the node area. All other
// pages, sound or damaged, go to CheckTiling.
bool IsFilledInOrder(PageFormat format, const NodeTable& nodes, const PageHeader& header) {
  uint64_t end = nodes.page().size();
  if ((end & 1) != 0) return false;
  for (uint32_t i = 0; i < nodes.count(); ++i) {
    const uint64_t at = nodes.node_offset(i);
    if (at + kNodeHeaderBytes > end) return false;
    const NodeHeader node = NodeTable::HeaderAt(nodes.page(), at);
    const uint64_t node_bytes = NodeBytes(format, header.kind, node);
    if (node_bytes == 0 || at + node_bytes != end) return false;
    end = at;
  }
  return end == header.upper_bytes;
}

// The start of the next node at or after `at`. LMDB up to 0.9.10 left a gap on a branch page when
// it shortened a key; the gap holds the rest of the old node and is skipped. If the bytes at `at`
// form a plausible node without a slot, the function returns `at`, so that the caller reports the
// lost slot instead of skipping the node.
uint32_t SkipGap(PageFormat format, Bytes page, const PageHeader& header, const OffsetSet& starts,
                 uint32_t at) {
  const auto end = static_cast<uint32_t>(page.size());
  if (header.kind != PageKind::kBranch || format.version() != DataVersion::k1 || at >= end) {
    return at;
  }
  const uint32_t next = starts.NextFrom(at, end);
  if (next - at >= kNodeHeaderBytes) {
    const NodeHeader node = NodeTable::HeaderAt(page, at);
    const bool is_node = node.flags == 0 && node.child().value >= kMetaPageCount &&
                         format.BranchNodeBytes(node.key_bytes) <= next - at;
    if (is_node) return at;
  }
  return next;
}

// Walks the node area from its start to its end. Each node must start at the end of the previous
// one and must have a slot. As the walk visits `count` nodes and all have slots, no two slots can
// name the same node, and no byte of the area is left over.
Status CheckTiling(PageFormat format, Bytes page, const PageHeader& header, uint32_t count,
                   const OffsetSet& starts) {
  uint64_t at = header.upper_bytes;
  for (uint32_t seen = 0; seen < count; ++seen) {
    at = SkipGap(format, page, header, starts, static_cast<uint32_t>(at));
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
  at = SkipGap(format, page, header, starts, static_cast<uint32_t>(at));
  // A sub-page inside a node of odd size may end in one byte of padding.
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
    return Corrupt(header, fmt::format("free-space bounds {} and {} do not fit {} bytes",
                                       header.lower_bytes, header.upper_bytes, page.size()));
  }
  NodeTable table;
  table.page_ = page;
  table.slots_at_ = format.header_bytes();
  table.pointer_base_ = format.pointer_base();
  table.count_ = (header.lower_bytes - format.header_bytes()) / kSlotBytes;
  if (table.count_ == 0) return Corrupt(header, "holds no node");

  // The bounds hold now, so each slot can be read. The nodes behind the slots are checked below;
  // after that no accessor checks anything.
  if (IsFilledInOrder(format, table, header)) return table;
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

}  // namespace lmdbio::file
