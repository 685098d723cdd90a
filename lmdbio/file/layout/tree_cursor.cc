#include "lmdbio/file/layout/tree_cursor.h"

#include <fmt/format.h>

namespace lmdbio::file {

namespace {

// The largest sound number of free items in a sub-page. LMDB adds room for four items when a
// sub-page of packed items is full. It removes room when an item is deleted, or at the deletion
// after that if the size of the node would become odd. For items of two bytes, which is also the
// size of the slots that count them, no other check detects a wrong item count.
constexpr uint32_t kSpareItemsMax = 8;

// The child that may hold `key`: the last i with i == 0 or key(i) <= key. The search never
// reads key 0, because the first key of a branch page has no meaning (docs/format.md section 3).
uint32_t ChildFor(const BranchPage& branch, KeyOrder order, Bytes key) {
  uint32_t low = 0;
  uint32_t high = branch.child_count();
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (CompareKeys(order, branch.key(middle), key) <= 0 ? low : high) = middle;
  }
  return low;
}

}  // namespace

void TreeCursor::Bind(const DatabaseRecord& record, LeafShape shape) {
  record_ = record;
  shape_ = shape;
  depth_ = record.depth;
  if (levels_.size() < depth_) levels_.resize(depth_);
  standing_ = false;
  visited_pages_ = 0;
}

// A sub-page becomes a tree of one page, with the surrounding leaf as its root. No page is read,
// because its bytes are part of that leaf. `item_bytes` comes from its own header, as a sub-page
// has no database record.
Status TreeCursor::BindSubPage(PageNo leaf, Bytes sub_page, uint32_t data_offset, LeafShape shape) {
  Result<PageHeader> header = ParseSubPageHeader(pages_->page_format(), sub_page, leaf);
  if (!header) return pages_->InFile(std::move(header).error());
  DatabaseRecord one_page;
  one_page.item_bytes = header->item_bytes;
  one_page.depth = 1;
  one_page.root = leaf;
  Bind(one_page, shape);
  levels_[0].page_no = leaf;
  LMDBIO_TRY_VOID(AcceptLeaf(TreePage{sub_page, *header}, levels_[0]));
  if (is_packed() && packed_.spare_item_count() > kSpareItemsMax) {
    return pages_->Corrupt(leaf, fmt::format("a sub-page of {} items has room for {} more",
                                             packed_.item_count(), packed_.spare_item_count()));
  }
  leaf_file_offset_ = leaf.value * pages_->page_format().page_size_bytes() + data_offset;
  levels_[0].index = 0;
  standing_ = true;
  return {};
}

Extent TreeCursor::item_key_extent() const {
  if (is_packed()) {
    return {leaf_file_offset_ + packed_.item_offset(index()), packed_.item_bytes()};
  }
  // The source may have put the page anywhere in memory, so the file offset comes from the distance
  // between key and page start.
  const Bytes key = leaf_.key(index());
  const auto in_page = static_cast<uint64_t>(key.data() - leaf_.page().data());
  return {leaf_file_offset_ + in_page, key.size()};
}

Status TreeCursor::CheckPlainItem() const {
  if (is_packed()) return {};
  const LeafEntry entry = leaf_.Entry(index());
  if (entry.flags == file::kInlineNode && entry.value_bytes == 0) return {};
  return pages_->Corrupt(
      leaf_page_no(),
      fmt::format("node {} is not a plain duplicate: it has data or flags", index()));
}

// A walk in one direction reads no page of a sound tree twice. So more reads than the file has
// pages prove a cycle. This bounds the time on a damaged file; PageClaims, if set, finds the exact
// page.
Status TreeCursor::CountVisit(PageNo page_no, Direction direction) {
  if (direction != visiting_) visited_pages_ = 0;
  visiting_ = direction;
  if (++visited_pages_ > pages_->snapshot().page_count()) {
    return pages_->Corrupt(page_no, "is reached repeatedly: the tree has a cycle");
  }
  return {};
}

Status TreeCursor::AcceptLeaf(const TreePage& page, Level& level) {
  if (is_packed() != (page.header.kind == PageKind::kFixedLeaf)) {
    return pages_->Corrupt(
        page.header.page_no,
        fmt::format("a {} page does not belong in this tree", PageKindName(page.header.kind)));
  }
  if (is_packed()) {
    Result<FixedLeafPage> packed =
        FixedLeafPage::Parse(pages_->page_format(), page.bytes, page.header, record_.item_bytes);
    if (!packed) return pages_->InFile(std::move(packed).error());
    packed_ = *packed;
    level.count = packed_.item_count();
    return {};
  }
  Result<LeafPage> leaf = LeafPage::Parse(pages_->page_format(), page.bytes, page.header);
  if (!leaf) return pages_->InFile(std::move(leaf).error());
  leaf_ = *leaf;
  level.count = leaf_.entry_count();
  return {};
}

// Each level has a buffer of its own. So the branch pages of the path stay readable, and a step to
// the next leaf reads only the pages below the lowest level that moves.
Status TreeCursor::Load(uint32_t level_no, PageNo page_no) {
  Level& level = levels_[level_no];
  const uint32_t page_bytes = pages_->page_format().page_size_bytes();
  if (level.buffer.size() < page_bytes) level.buffer.resize(page_bytes);
  LMDBIO_TRY(const TreePage page, pages_->ReadTreePage(page_no, level.buffer));
  if (claims_ != nullptr && !claims_->Claim(page_no)) {
    return pages_->Corrupt(page_no, "stands in two places of the file's trees");
  }
  level.page_no = page_no;
  // All leaves of a B+ tree have one depth, which the database record states. So the kind of a page
  // follows from its level, and `depth_` bounds every descent.
  const bool is_leaf_level = level_no + 1 == depth_;
  if (is_leaf_level != (page.header.kind != PageKind::kBranch)) {
    return pages_->Corrupt(page_no,
                           fmt::format("a {} page on level {} of a tree of depth {}",
                                       PageKindName(page.header.kind), level_no + 1, depth_));
  }
  if (is_leaf_level) {
    leaf_file_offset_ = page_no.value * page_bytes;
    return AcceptLeaf(page, level);
  }
  Result<BranchPage> branch = BranchPage::Parse(pages_->page_format(), page.bytes, page.header);
  if (!branch) return pages_->InFile(std::move(branch).error());
  level.branch = *branch;
  level.count = level.branch.child_count();
  return {};
}

Status TreeCursor::Descend(uint32_t level_no, PageNo page_no, Direction from) {
  for (;; ++level_no) {
    LMDBIO_TRY_VOID(CountVisit(page_no, from));
    LMDBIO_TRY_VOID(Load(level_no, page_no));
    Level& level = levels_[level_no];
    level.index = from == Direction::kForward ? 0 : level.count - 1;
    if (level_no + 1 == depth_) break;
    page_no = level.branch.child(level.index);
  }
  PrefetchNextLeaf(from);
  standing_ = true;
  return {};
}

// Prefetches the leaf that a walk reads after this one, if the parent branch page refers to it.
void TreeCursor::PrefetchNextLeaf(Direction direction) const {
  if (depth_ < 2) return;
  const Level& parent = levels_[depth_ - 2];
  const uint32_t next = parent.index + static_cast<uint32_t>(direction);  // wraps below 0
  if (next < parent.count) pages_->PrefetchTreePage(parent.branch.child(next));
}

Status TreeCursor::SeekEnd(Direction from) {
  standing_ = false;
  visited_pages_ = 0;
  return Descend(0, record_.root, from);
}

// Goes up to the lowest level that has a neighbour in `direction`, steps there, and descends along
// the near edge of that subtree. The state is changed only after such a level was found.
Result<bool> TreeCursor::StepLeaf(Direction direction) {
  for (uint32_t level_no = depth_ - 1; level_no-- > 0;) {
    Level& level = levels_[level_no];
    const uint32_t next = level.index + static_cast<uint32_t>(direction);  // wraps below 0
    if (next >= level.count) continue;
    // If Descend fails, the levels belong to two subtrees; then the cursor has no position.
    standing_ = false;
    level.index = next;
    LMDBIO_TRY_VOID(Descend(level_no + 1, level.branch.child(next), direction));
    return true;
  }
  return false;
}

// Descends to the leaf that may hold `key`, then searches it. If all its items are less than `key`,
// the first item of the next leaf is the answer.
Result<bool> TreeCursor::SeekKey(KeyOrder order, Bytes key) {
  standing_ = false;
  visited_pages_ = 0;
  PageNo page_no = record_.root;
  for (uint32_t level_no = 0; level_no + 1 < depth_; ++level_no) {
    LMDBIO_TRY_VOID(Load(level_no, page_no));
    Level& level = levels_[level_no];
    level.index = ChildFor(level.branch, order, key);
    page_no = level.branch.child(level.index);
  }
  LMDBIO_TRY_VOID(Load(depth_ - 1, page_no));
  Level& leaf = levels_[depth_ - 1];
  uint32_t low = 0;
  uint32_t high = leaf.count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    leaf.index = middle;
    if (CompareKeys(order, item_key(), key) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  standing_ = true;
  leaf.index = low < leaf.count ? low : leaf.count - 1;
  if (low < leaf.count) return true;
  return StepLeaf(Direction::kForward);
}

// Goes down by the path, and requires that each page is the child that its parent names. So a path
// from another process leads to no other page. A seek reads one page for each level; CountVisit is
// not needed to bound it.
Status TreeCursor::SeekPath(std::span<const PathStep> path) {
  const auto refuse = [&](std::string_view why) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: position: {}", pages_->source().name(), why));
  };
  standing_ = false;
  visited_pages_ = 0;
  if (path.size() != depth_) {
    return refuse(fmt::format("has {} levels, but the tree has {}", path.size(), depth_));
  }
  PageNo expected = record_.root;
  for (uint32_t level_no = 0; level_no < depth_; ++level_no) {
    const PathStep& step = path[level_no];
    if (step.page != expected.value) {
      return refuse(fmt::format("page {} on level {} is page {} in this tree", step.page,
                                level_no + 1, expected.value));
    }
    LMDBIO_TRY_VOID(Load(level_no, expected));
    Level& level = levels_[level_no];
    if (step.index >= level.count) {
      return refuse(fmt::format("entry {} of page {} is out of range; the page has {}", step.index,
                                step.page, level.count));
    }
    level.index = step.index;
    if (level_no + 1 < depth_) expected = level.branch.child(step.index);
  }
  standing_ = true;
  return {};
}

}  // namespace lmdbio::file
