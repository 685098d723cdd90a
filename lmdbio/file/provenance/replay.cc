#include "lmdbio/file/provenance/replay.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/file/format/meta_page.h"
#include "lmdbio/file/provenance/page_allocator.h"

namespace lmdbio::file {
namespace {

using file::kSlotBytes;

// A file offset is a signed 64-bit number.
constexpr uint64_t kFileBytesMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// The fill state of a page. Slots grow up from the header to `lower_bytes`, and nodes grow down
// from the end of the page to `upper_bytes`, both in key order.
struct GrowingPage {
  PageNo page;
  uint32_t lower_bytes = 0;
  uint32_t upper_bytes = 0;
  uint32_t last_key_bytes = 0;

  uint32_t free_bytes() const { return upper_bytes - lower_bytes; }
  void AddNode(uint64_t node_bytes, uint32_t key_bytes) { AddNodes(node_bytes, key_bytes, 1); }
  // The same for `count` > 0 nodes of these sizes.
  void AddNodes(uint64_t node_bytes, uint32_t key_bytes, uint64_t count) {
    lower_bytes += static_cast<uint32_t>(kSlotBytes * count);
    upper_bytes -= static_cast<uint32_t>(node_bytes * count);
    last_key_bytes = key_bytes;
  }
};

// The rightmost path of a tree under puts in key order. Each put goes to the last leaf, so no page
// outside this path changes again. The replay therefore keeps one page per level and the records of
// one leaf, and takes the page numbers from PageAllocator in the same order as LMDB does:
//
//   BeginTransaction  copies the path, root first
//   Put               splits full pages, then allocates the overflow run
//   Commit            writes the free list
class GrowingTree {
 public:
  GrowingTree(PageFormat page_format, PutMode put_mode, RecordRunSink& sink);

  void BeginTransaction();
  Status Put(uint32_t key_bytes, uint32_t value_bytes);
  // The same for `count` records of these sizes. Much faster, because most of them go to the same
  // leaf and to the end of the file.
  Status PutEqual(uint32_t key_bytes, uint32_t value_bytes, uint64_t count);
  Status Commit();
  // Hands over the last leaf.
  Result<ReplayTotals> Finish();

 private:
  GrowingPage NewPage();
  GrowingPage NewBranch();
  uint32_t NodeCount(const GrowingPage& page) const;

  uint64_t ChargeBytes(uint32_t key_bytes, uint32_t value_bytes) const;
  uint64_t FillLeaf(uint32_t key_bytes, uint32_t value_bytes, uint64_t count_max);
  void AddRecord(uint32_t key_bytes, Extent value);
  Extent AllocateRun(uint32_t value_bytes);
  Status SplitLeaf(uint32_t new_key_bytes);
  void AddChild(size_t level, uint32_t key_bytes);
  Status SealLeaf();

  // A value inside the leaf has an offset from the start of the leaf, because a later transaction
  // may copy the leaf to another page. A value outside has its file offset. The two ranges do not
  // overlap, because the two meta pages at the start of the file are larger than a page.
  bool IsInLeaf(Extent value) const { return value.offset <= format_.page_size_bytes(); }

  const PageFormat format_;
  const PutMode put_mode_;
  RecordRunSink& sink_;
  PageAllocator allocator_;
  ReplayTotals totals_{};

  std::vector<GrowingPage> branches_;  // from the leaf's parent up to the root
  GrowingPage leaf_;                   // exists once a transaction has begun
  RecordIndex leaf_first_record_;
  std::vector<Extent> values_;       // of the leaf's records
  std::vector<uint32_t> key_bytes_;  // the same
};

GrowingTree::GrowingTree(PageFormat page_format, PutMode put_mode, RecordRunSink& sink)
    : format_(page_format), put_mode_(put_mode), sink_(sink), allocator_(page_format) {
  branches_.reserve(file::kTreeDepthMax);
  // The smallest record has a key of one byte and an empty value. With room for so many, the replay
  // allocates no memory for each record.
  const uint64_t records_max =
      format_.page_size_bytes() / (kSlotBytes + format_.LeafNodeBytes(1, 0));
  values_.reserve(records_max);
  key_bytes_.reserve(records_max);
}

GrowingPage GrowingTree::NewPage() {
  return {.page = allocator_.Allocate(1),
          .lower_bytes = format_.header_bytes(),
          .upper_bytes = format_.page_size_bytes()};
}

// A branch page with its first child. The node of a first child has no key.
GrowingPage GrowingTree::NewBranch() {
  GrowingPage branch = NewPage();
  branch.AddNode(format_.BranchNodeBytes(0), 0);
  ++totals_.branch_pages;
  return branch;
}

uint32_t GrowingTree::NodeCount(const GrowingPage& page) const {
  return (page.lower_bytes - format_.header_bytes()) / kSlotBytes;
}

// Copies the whole path, root first. LMDB does so at the first put of a transaction, and the copies
// stay writable until the commit.
void GrowingTree::BeginTransaction() {
  allocator_.BeginTransaction();
  if (totals_.leaf_pages == 0) {
    leaf_ = NewPage();
    ++totals_.leaf_pages;
    return;
  }
  for (auto branch = branches_.rbegin(); branch != branches_.rend(); ++branch) {
    branch->page = allocator_.Replace(branch->page);
  }
  leaf_.page = allocator_.Replace(leaf_.page);
}

// The free bytes that LMDB's fit test demands of a leaf for one more record.
uint64_t GrowingTree::ChargeBytes(uint32_t key_bytes, uint32_t value_bytes) const {
  const bool is_overflow = format_.IsOverflow(key_bytes, value_bytes);
  uint64_t charge_bytes =
      kSlotBytes + format_.LeafNodeBytes(
                       key_bytes, is_overflow ? format_.overflow_reference_bytes() : value_bytes);
  // LMDB 1.0 adds the rounded size of the value and later subtracts the unrounded size. So its fit
  // test takes the node of an overflow value of odd size as two bytes larger than it is.
  if (is_overflow && value_bytes % 2 != 0 && format_.version() == DataVersion::k3) {
    charge_bytes += 2;
  }
  return charge_bytes;
}

Status GrowingTree::Put(uint32_t key_bytes, uint32_t value_bytes) {
  const bool is_overflow = format_.IsOverflow(key_bytes, value_bytes);
  if (leaf_.free_bytes() < ChargeBytes(key_bytes, value_bytes)) {
    LMDBIO_TRY_VOID(SplitLeaf(key_bytes));
  }
  // The order matters: LMDB allocates the pages of a split before those of the value.
  AddRecord(key_bytes, is_overflow ? AllocateRun(value_bytes) : Extent{0, value_bytes});
  return {};
}

Status GrowingTree::PutEqual(uint32_t key_bytes, uint32_t value_bytes, uint64_t count) {
  while (count > 0) {
    LMDBIO_TRY_VOID(Put(key_bytes, value_bytes));
    --count;
    count -= FillLeaf(key_bytes, value_bytes, count);
  }
  return {};
}

// Puts records of one size into the last leaf while they fit. Returns their number; 0 if overflow
// runs may go to free pages.
uint64_t GrowingTree::FillLeaf(uint32_t key_bytes, uint32_t value_bytes, uint64_t count_max) {
  const uint64_t charge_bytes = ChargeBytes(key_bytes, value_bytes);
  if (leaf_.free_bytes() < charge_bytes) return 0;
  const bool is_overflow = format_.IsOverflow(key_bytes, value_bytes);
  const uint64_t node_bytes = format_.LeafNodeBytes(
      key_bytes, is_overflow ? format_.overflow_reference_bytes() : value_bytes);
  const uint64_t room = 1 + (leaf_.free_bytes() - charge_bytes) / (kSlotBytes + node_bytes);
  const uint64_t count = std::min(room, count_max);
  Extent value{0, value_bytes};
  uint64_t stride_bytes = 0;
  if (is_overflow) {
    const uint64_t page_count = format_.OverflowPageCount(value_bytes);
    const std::optional<PageNo> first = allocator_.AllocateAtEnd(page_count, count);
    if (!first) return 0;
    totals_.overflow_pages += page_count * count;
    value.offset = first->value * format_.page_size_bytes() + format_.header_bytes();
    stride_bytes = page_count * format_.page_size_bytes();
  }
  if (!is_overflow) {
    for (uint64_t i = 0; i < count; ++i) AddRecord(key_bytes, value);
    return count;
  }
  leaf_.AddNodes(node_bytes, key_bytes, count);
  key_bytes_.insert(key_bytes_.end(), count, key_bytes);
  for (uint64_t i = 0; i < count; ++i, value.offset += stride_bytes) values_.push_back(value);
  return count;
}

void GrowingTree::AddRecord(uint32_t key_bytes, Extent value) {
  if (IsInLeaf(value)) {
    leaf_.AddNode(format_.LeafNodeBytes(key_bytes, value.length_bytes), key_bytes);
    value.offset = leaf_.upper_bytes + format_.data_offset(key_bytes);
  } else {
    leaf_.AddNode(format_.LeafNodeBytes(key_bytes, format_.overflow_reference_bytes()), key_bytes);
  }
  values_.push_back(value);
  key_bytes_.push_back(key_bytes);
}

Extent GrowingTree::AllocateRun(uint32_t value_bytes) {
  const uint64_t page_count = format_.OverflowPageCount(value_bytes);
  const PageNo first = allocator_.Allocate(page_count);
  totals_.overflow_pages += page_count;
  return {first.value * format_.page_size_bytes() + format_.header_bytes(), value_bytes};
}

// Starts a new last leaf. LMDB searches the split point from the left and finds it at the last
// node. So the last node moves to the new leaf, and its key goes to the parent. With MDB_APPEND no
// node moves, and the key of the new record goes to the parent.
Status GrowingTree::SplitLeaf(uint32_t new_key_bytes) {
  // The new leaf takes its page before AddChild takes pages for the levels above, because LMDB
  // allocates them in this order.
  const GrowingPage right = NewPage();
  ++totals_.leaf_pages;
  const bool is_last_moved = put_mode_ == PutMode::kDefault;
  const uint32_t last_key_bytes = leaf_.last_key_bytes;
  AddChild(0, is_last_moved ? last_key_bytes : new_key_bytes);

  const Extent last_value = values_.back();
  if (is_last_moved) {
    values_.pop_back();
    key_bytes_.pop_back();
  }
  LMDBIO_TRY_VOID(SealLeaf());
  leaf_ = right;
  if (is_last_moved) AddRecord(last_key_bytes, last_value);
  return {};
}

// Adds a node for the new last child to the last branch page of a level; level 0 is the parent of
// the leaf. A full branch page splits as a leaf in default mode: its last child moves to the new
// page. This holds for both put modes.
void GrowingTree::AddChild(size_t level, uint32_t key_bytes) {
  if (level == branches_.size()) branches_.push_back(NewBranch());  // the page below was the root
  const uint64_t node_bytes = format_.BranchNodeBytes(key_bytes);
  if (branches_[level].free_bytes() < kSlotBytes + node_bytes) {
    const GrowingPage right = NewBranch();
    // The moved child becomes the first of the new page and loses its key there. That key is the
    // separator of the two pages one level up.
    AddChild(level + 1, branches_[level].last_key_bytes);
    totals_.branch_children_max =
        std::max(totals_.branch_children_max, NodeCount(branches_[level]) - 1);
    branches_[level] = right;
  }
  branches_[level].AddNode(node_bytes, key_bytes);
}

// Reports the leaf, whose page is now final.
Status GrowingTree::SealLeaf() {
  LMDBIO_CHECK(!values_.empty());
  // One check in a leaf is enough: the values of one leaf have far less than 2^63 bytes, so no
  // offset wraps before the next check.
  if (allocator_.last_page().value >= kFileBytesMax / format_.page_size_bytes()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("replay: by record {} the file is larger than 2^63 bytes",
                            leaf_first_record_.value));
  }
  const uint64_t leaf_offset = leaf_.page.value * format_.page_size_bytes();
  for (Extent& value : values_) {
    if (IsInLeaf(value)) value.offset += leaf_offset;
  }
  LMDBIO_TRY_VOID(sink_.Add({.first_record = leaf_first_record_,
                             .leaf = leaf_.page,
                             .home = leaf_.page,
                             .values = values_,
                             .key_bytes = key_bytes_}));
  leaf_first_record_.value += values_.size();
  totals_.leaf_records_max =
      std::max(totals_.leaf_records_max, static_cast<uint32_t>(values_.size()));
  values_.clear();
  key_bytes_.clear();
  return {};
}

Status GrowingTree::Commit() {
  if (branches_.size() >= file::kTreeDepthMax) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("replay: the tree would be deeper than the {} levels of LMDB's cursor",
                            file::kTreeDepthMax));
  }
  return allocator_.Commit();
}

Result<ReplayTotals> GrowingTree::Finish() {
  totals_.root = file::kNoRoot;
  if (totals_.leaf_pages > 0) {
    LMDBIO_TRY_VOID(SealLeaf());
    totals_.root = branches_.empty() ? leaf_.page : branches_.back().page;
    totals_.depth = static_cast<uint32_t>(branches_.size()) + 1;
  }
  for (const GrowingPage& branch : branches_) {
    totals_.branch_children_max = std::max(totals_.branch_children_max, NodeCount(branch));
  }
  totals_.last_page = allocator_.last_page();
  totals_.transaction_count = allocator_.transaction_count();
  return totals_;
}

// The longest key that LMDB accepts if the page size sets the limit. (The usual build of 0.9 has a
// limit of 511 bytes.) With this limit, any two nodes fit on one page.
uint32_t KeyBytesMax(PageFormat page_format) {
  return page_format.node_bytes_max() - file::kNodeHeaderBytes - file::kDatabaseRecordBytes;
}

Status CheckKey(PageFormat page_format, uint64_t record, uint32_t key_bytes) {
  if (key_bytes >= 1 && key_bytes <= KeyBytesMax(page_format)) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("replay: record {} has a key of {} bytes; LMDB takes 1 to {} on pages of {}",
                  record, key_bytes, KeyBytesMax(page_format), page_format.page_size_bytes()));
}

Status CheckColumn(const char* name, const SizeColumn& column, uint64_t record_count) {
  if (column.is_constant() || column.each().size() == record_count) return {};
  return Fail(ErrorCode::kInvalidArgument, fmt::format("replay: {} {} sizes for {} records",
                                                       column.each().size(), name, record_count));
}

Status CheckLoad(PageFormat page_format, const OrderedLoad& load) {
  if (load.commit_interval_records == 0) {
    return Fail(ErrorCode::kInvalidArgument, "replay: the commit interval is 0 records");
  }
  LMDBIO_TRY_VOID(CheckColumn("key", load.key_bytes, load.record_count));
  LMDBIO_TRY_VOID(CheckColumn("value", load.value_bytes, load.record_count));
  // A constant column needs one check, not one for each record.
  const uint64_t distinct_count =
      load.key_bytes.is_constant() ? std::min<uint64_t>(load.record_count, 1) : load.record_count;
  for (uint64_t record = 0; record < distinct_count; ++record) {
    LMDBIO_TRY_VOID(CheckKey(page_format, record, load.key_bytes[record]));
  }
  return {};
}

}  // namespace

Result<ReplayTotals> Replay(PageFormat page_format, const OrderedLoad& load, RecordRunSink& sink) {
  LMDBIO_TRY_VOID(CheckLoad(page_format, load));
  GrowingTree tree(page_format, load.put_mode, sink);
  const bool is_equal = load.key_bytes.is_constant() && load.value_bytes.is_constant();
  for (uint64_t first = 0; first < load.record_count;) {
    const uint64_t transaction_records =
        std::min(load.commit_interval_records, load.record_count - first);
    const uint64_t end = first + transaction_records;
    tree.BeginTransaction();
    if (is_equal) {
      LMDBIO_TRY_VOID(tree.PutEqual(load.key_bytes[0], load.value_bytes[0], end - first));
    } else {
      for (uint64_t record = first; record < end; ++record) {
        LMDBIO_TRY_VOID(tree.Put(load.key_bytes[record], load.value_bytes[record]));
      }
    }
    LMDBIO_TRY_VOID(tree.Commit());
    first = end;
  }
  return tree.Finish();
}

}  // namespace lmdbio::file
