#include "lmdbio/load/slots/record_checker.h"

#include <fmt/format.h>

namespace lmdbio::load {

using file::LeafEntry;
using file::LeafPage;
using file::RunKind;
using File = file::JoinedPages::File;

namespace {

// The number of a page in its own file.
PageNo OwnNumber(const File& file, PageNo page_no) { return {page_no.value - file.first.value}; }

}  // namespace

Result<LeafPage> RecordChecker::OpenRun(const PlannedRun& run, Bytes pages) const {
  const File& file = pages_.Of(run.leaf);
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  LMDBIO_TRY(LeafPage leaf, OpenLeaf(file, run, pages.subspan(run.leaf_at, page_bytes)));
  if (run.home != run.leaf) {
    LMDBIO_TRY_VOID(CheckHome(file, run, pages.subspan(run.home_at, page_bytes)));
  }
  return leaf;
}

Result<LeafPage> RecordChecker::OpenLeaf(const File& file, const PlannedRun& run, Bytes bytes) {
  const file::PageReader& pages = file.pages;
  const PageNo leaf_no = OwnNumber(file, run.leaf);
  LMDBIO_TRY(const file::TreePage page, pages.CheckTreePage(leaf_no, bytes));
  if (page.header.kind != file::PageKind::kLeaf) {
    return pages.Corrupt(leaf_no, "is not a leaf page, but the layout has records on it");
  }
  Result<LeafPage> leaf = LeafPage::Parse(pages.page_format(), page.bytes, page.header);
  if (!leaf) return pages.InFile(std::move(leaf).error());
  const uint64_t nodes = run.kind == RunKind::kNodes ? run.record_count : 1;
  if (run.first_node + nodes > leaf->entry_count()) {
    return pages.Corrupt(leaf_no,
                         fmt::format("holds {} nodes, but the layout expects {} from node {} on",
                                     leaf->entry_count(), nodes, run.first_node));
  }
  return leaf;
}

// Duplicates are the keys of their private tree, so no node names their extent. Number, kind and
// transaction of the page are all that can be checked.
Status RecordChecker::CheckHome(const File& file, const PlannedRun& run, Bytes bytes) {
  const PageNo home_no = OwnNumber(file, run.home);
  LMDBIO_TRY(const file::TreePage page, file.pages.CheckTreePage(home_no, bytes));
  if (page.header.kind == file::PageKind::kBranch) {
    return file.pages.Corrupt(home_no, "is not a leaf page, but the layout has records on it");
  }
  return {};
}

Result<LeafEntry> RecordChecker::EntryOf(const PlannedRun& run, const LeafPage& leaf,
                                         uint64_t into_run, Extent value) const {
  const uint64_t node = run.kind == RunKind::kNodes ? into_run : 0;
  const LeafEntry entry = leaf.Entry(run.first_node + static_cast<uint32_t>(node));
  const File& file = pages_.Of(run.leaf);
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  value.offset -= file.first.value * page_bytes;
  LMDBIO_TRY_VOID(CheckEntry(file, run, leaf, entry, value));
  return entry;
}

// The flags of the node tell how its values are stored, and so which comparison applies. Values
// among duplicates are only compared by the kind of the run; their page was checked as a whole.
// `value` is an extent of the file itself.
Status RecordChecker::CheckEntry(const File& file, const PlannedRun& run, const LeafPage& leaf,
                                 const LeafEntry& entry, Extent value) {
  const file::PageReader& pages = file.pages;
  const PageNo leaf_no = OwnNumber(file, run.leaf);
  const auto other = [&](std::string_view what) {
    return pages.Corrupt(leaf_no, fmt::format("{}; the layout expects {} bytes at offset {}", what,
                                              value.length_bytes, value.offset));
  };
  switch (entry.flags) {
    case file::kSubPageNode:
    case file::kSubTreeNode:
      if (run.kind == RunKind::kDuplicates) return {};
      return other("a node holds duplicates instead of one value");
    case file::kOverflowNode: {
      if (run.kind != RunKind::kNodes) return other("a node holds one value instead of duplicates");
      LMDBIO_TRY(const Extent found, pages.OverflowExtent(leaf_no, leaf, entry));
      if (found == value) return {};
      return other("a node refers to another value");
    }
    default: {
      if (run.kind != RunKind::kNodes) return other("a node holds one value instead of duplicates");
      const uint64_t page_bytes = pages.page_format().page_size_bytes();
      const Extent found{leaf_no.value * page_bytes + entry.data_offset, entry.value_bytes};
      if (found == value) return {};
      return other("a node holds another value");
    }
  }
}

Status RecordChecker::CheckHead(const PlannedValue& value, Bytes pages) const {
  const file::PageFormat format = pages_.page_format();
  // The plan covers whole pages, so the head of the run lies right before the value.
  const PageNo first{format.PagesBefore(value.file.offset)};
  const File& file = pages_.Of(first);
  const Bytes head = pages.subspan(value.at - format.header_bytes(), format.header_bytes());
  return file.pages.CheckOverflowHead(OwnNumber(file, first), head, value.file.length_bytes);
}

}  // namespace lmdbio::load
