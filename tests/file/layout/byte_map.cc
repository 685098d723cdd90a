#include "tests/file/layout/byte_map.h"

#include <algorithm>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/format/fixed_leaf_page.h"
#include "lmdbio/file/format/load.h"
#include "tests/file/layout/open_database.h"

namespace lmdbio::test {

using file::DatabaseRecord;
using file::LeafEntry;
using file::LeafPage;
using file::PageHeader;
using file::PageKind;

namespace {

// Sizes of fields inside a page header, counted back from its end; see lmdbio/docs/format.md.
constexpr uint64_t kPadBack = 8;
constexpr uint64_t kFlagsBack = 6;
constexpr uint64_t kBoundsBack = 4;

// Fields of a meta page, counted from the end of its header.
constexpr uint64_t kFreeListAt = 24;
constexpr uint64_t kMainAt = 72;
constexpr uint64_t kMetaFieldsEnd = 136;
constexpr uint64_t kRootInRecord = 40;

}  // namespace

std::string_view ByteRoleName(ByteRole role) {
  constexpr std::string_view kNames[kByteRoleCount] = {
      "unused",           "payload",    "branch key",      "meta page",
      "tree page header", "run header", "sub-page header", "slot",
      "branch node",      "node sizes", "node flags",      "overflow reference",
      "tree record"};
  return kNames[static_cast<size_t>(role)];
}

ByteMap::ByteMap(const file::Environment& environment)
    : format_(environment.snapshot().page_format), file_(environment.snapshot().file_size_bytes) {
  Value(environment.pages().source().Read({0, file_.size()}, file_));
  roles_.assign(file_.size(), ByteRole::kUnused);
  owners_.assign(environment.snapshot().page_count(), kNobody);
  MarkMetas();
  const uint64_t fields = environment.snapshot().meta.page_no.value * format_.page_size_bytes() +
                          format_.header_bytes();
  MarkDatabase(fields + kFreeListAt);
  MarkDatabase(fields + kMainAt);
  for (uint64_t at = 0; at < roles_.size(); ++at) {
    offsets_[static_cast<size_t>(roles_[at])].push_back(at);
  }
  std::ranges::sort(nodes_, {}, &NodePlace::offset);
  std::ranges::sort(page_fields_, {}, &PageField::offset);
}

const NodePlace& ByteMap::NodeAt(uint64_t offset) const {
  const auto after = std::ranges::upper_bound(nodes_, offset, {}, &NodePlace::offset);
  return *(after - 1);
}

void ByteMap::Mark(uint64_t offset, uint64_t length_bytes, ByteRole role) {
  std::fill_n(roles_.begin() + static_cast<std::ptrdiff_t>(offset), length_bytes, role);
}

Bytes ByteMap::Read(uint64_t offset, uint64_t length_bytes) {
  return Bytes(file_).subspan(offset, length_bytes);
}

void ByteMap::MarkMetas() {
  for (uint64_t page = 0; page < file::kMetaPageCount; ++page) {
    const uint64_t at = page * format_.page_size_bytes();
    const uint64_t fields = at + format_.header_bytes();
    owners_[page] = kMetas;
    Mark(at, format_.header_bytes(), ByteRole::kMeta);
    Mark(fields, kMetaFieldsEnd, ByteRole::kMeta);
  }
  if (format_.version() == file::DataVersion::k3) {
    Mark(format_.page_size_bytes() - 2, 2, ByteRole::kMeta);  // size of the checksums
  }
}

// A database is a tree with its own owner number.
void ByteMap::MarkDatabase(uint64_t record_at) {
  const DatabaseRecord record =
      file::LoadDatabaseRecord(Read(record_at, file::kDatabaseRecordBytes));
  const uint32_t outer = owner_;
  owner_ = static_cast<uint32_t>(loose_counts_.size());
  loose_counts_.push_back(!record.counts_exactly());
  MarkTree(record_at);
  owner_ = outer;
}

// Marks the tree of the database record at `record_at`.
void ByteMap::MarkTree(uint64_t record_at) {
  const DatabaseRecord record =
      file::LoadDatabaseRecord(Read(record_at, file::kDatabaseRecordBytes));
  page_fields_.push_back({record_at + kRootInRecord, PageField::Names::kRoot, owner_});
  if (!record.empty()) MarkTreePage(record.root, record.item_bytes);
}

void ByteMap::MarkHeader(uint64_t at, ByteRole role) {
  Mark(at, format_.header_bytes(), role);
  Mark(at + format_.header_bytes() - kPadBack, 2, ByteRole::kUnused);
}

void ByteMap::MarkTreePage(PageNo page_no, uint32_t item_bytes) {
  const uint64_t at = page_no.value * format_.page_size_bytes();
  const Bytes page = Read(at, format_.page_size_bytes());
  const PageHeader header = Value(file::ParsePageHeader(format_, page, page_no));
  owners_[page_no.value] = owner_;
  MarkHeader(at, ByteRole::kTreeHeader);
  MarkNodes(at, page, header, item_bytes);
  if (header.kind != PageKind::kBranch) return;
  const auto branch = Value(file::BranchPage::Parse(format_, page, header));
  for (uint32_t i = 0; i < branch.child_count(); ++i) MarkTreePage(branch.child(i), item_bytes);
}

// Marks a page or sub-page behind its header.
void ByteMap::MarkNodes(uint64_t base, Bytes page, const PageHeader& header, uint32_t item_bytes) {
  if (header.kind == PageKind::kFixedLeaf) {
    const auto items = Value(file::FixedLeafPage::Parse(format_, page, header, item_bytes));
    Mark(base + items.item_offset(0), uint64_t{items.item_count()} * items.item_bytes(),
         ByteRole::kPayload);
    return;
  }
  Mark(base + format_.header_bytes(), header.lower_bytes - format_.header_bytes(), ByteRole::kSlot);
  if (header.kind == PageKind::kLeaf) {
    const LeafPage leaf = Value(LeafPage::Parse(format_, page, header));
    for (uint32_t i = 0; i < leaf.entry_count(); ++i) MarkLeafNode(base, leaf, i);
    return;
  }
  const auto branch = Value(file::BranchPage::Parse(format_, page, header));
  for (uint32_t i = 0; i < branch.child_count(); ++i) {
    const Bytes key = branch.key(i);
    const uint64_t at =
        base + static_cast<uint64_t>(key.data() - page.data()) - file::kNodeHeaderBytes;
    nodes_.push_back({at});
    page_fields_.push_back({at, PageField::Names::kChild, owner_});
    Mark(at, file::kNodeHeaderBytes, ByteRole::kBranchNode);
    Mark(at + file::kNodeHeaderBytes, key.size(), ByteRole::kLookup);
  }
}

void ByteMap::MarkLeafNode(uint64_t base, const LeafPage& leaf, uint32_t index) {
  const LeafEntry entry = leaf.Entry(index);
  const auto key_in_page = static_cast<uint64_t>(entry.key.data() - leaf.page().data());
  const uint64_t at = base + key_in_page - file::kNodeHeaderBytes;
  const uint64_t data_at = base + entry.data_offset;
  nodes_.push_back({at});
  Mark(at, file::kNodeHeaderBytes, ByteRole::kNodeSizes);
  Mark(at + 4, 2, ByteRole::kNodeFlags);
  Mark(at + file::kNodeHeaderBytes, entry.key.size(), ByteRole::kPayload);
  switch (entry.flags) {
    case file::kInlineNode:
      return Mark(data_at, entry.data.size(), ByteRole::kPayload);
    case file::kOverflowNode:
      Mark(data_at, entry.data.size(), ByteRole::kReference);
      page_fields_.push_back({data_at, PageField::Names::kRun, owner_});
      return MarkRun(at, leaf, entry);
    case file::kDatabaseNode:
      Mark(data_at, entry.data.size(), ByteRole::kTreeRecord);
      return MarkDatabase(data_at);
    case file::kSubTreeNode:
      Mark(data_at, entry.data.size(), ByteRole::kTreeRecord);
      return MarkTree(data_at);
    case file::kSubPageNode:
      return MarkSubPage(data_at, entry.data, PageNo{base / format_.page_size_bytes()});
  }
}

void ByteMap::MarkRun(uint64_t node_offset, const LeafPage& leaf, const LeafEntry& entry) {
  const PageNo first = leaf.Reference(entry).first_page;
  const uint64_t at = first.value * format_.page_size_bytes();
  const Bytes head = Read(at, format_.header_bytes());
  const PageHeader header = Value(file::ParseOverflowHead(format_, head, first, entry.value_bytes));
  for (uint64_t i = 0; i < format_.OverflowPageCount(entry.value_bytes); ++i) {
    owners_[first.value + i] = owner_;
  }
  nodes_.back() = {node_offset, header.run_page_count};
  runs_.push_back(first);
  MarkHeader(at, ByteRole::kRunHeader);
  Mark(at + format_.header_bytes(), entry.value_bytes, ByteRole::kPayload);
}

void ByteMap::MarkSubPage(uint64_t at, Bytes sub_page, PageNo around) {
  const PageHeader header = Value(file::ParseSubPageHeader(format_, sub_page, around));
  // The page number of a sub-page is stale, and in version 3 its transaction too.
  Mark(at + format_.header_bytes() - kFlagsBack, 2 + kBoundsBack, ByteRole::kSubPageHeader);
  if (header.kind == PageKind::kFixedLeaf) {
    Mark(at + format_.header_bytes() - kPadBack, 2, ByteRole::kSubPageHeader);
  }
  MarkNodes(at, sub_page, header, header.item_bytes);
}

}  // namespace lmdbio::test
