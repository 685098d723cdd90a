// lmdbio/file/layout/tree_cursor.h - a position in one B+ tree: a stack of (page, index).
//
// The items of the tree are leaf nodes, or the packed items of fixed-size duplicates. This class
// does not interpret them; file/layout/cursor.h does.
//
// Source: dissertation 2.4.2 and 4.2 (cursor hand-off).
#ifndef LMDBIO_FILE_LAYOUT_TREE_CURSOR_H_
#define LMDBIO_FILE_LAYOUT_TREE_CURSOR_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/format/fixed_leaf_page.h"
#include "lmdbio/file/format/key_order.h"
#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/layout/page_claims.h"
#include "lmdbio/file/layout/page_reader.h"

namespace lmdbio::file {

// One level of a position: entry `index` of page `page`.
struct PathStep {
  uint64_t page = 0;
  uint32_t index = 0;
  friend bool operator==(const PathStep&, const PathStep&) = default;
};

enum class Direction : int8_t { kForward = 1, kBackward = -1 };

// The content of a tree's leaf pages: nodes, or packed items of one size (fixed-size duplicates).
enum class LeafShape : uint8_t { kNodes, kPacked };

// Errors, of every move: kIo, kCorruption; prefixed with the source's name
// Threads:  one at a time
// Lifetime: `pages` must outlive the cursor; returned spans are valid until the cursor moves
class TreeCursor {
 public:
  explicit TreeCursor(const PageReader& pages) : pages_(&pages) {}

  // Binds the cursor to a tree. It has no position until a seek.
  // Requires: `record` passed file::CheckRoot and is not empty
  void Bind(const DatabaseRecord& record, LeafShape shape);

  // Binds the cursor to the sub-page inside a leaf node, a tree of one page, and moves to its first
  // item.
  // leaf      the page that contains it
  // sub_page  the node's data, borrowed until the next Bind; starts at `data_offset` of the page
  Status BindSubPage(PageNo leaf, Bytes sub_page, uint32_t data_offset, LeafShape shape);

  // From now on the cursor claims every page that it reads; a page that is reached twice is an
  // error. claims  borrowed, or null
  void set_claims(PageClaims* claims) { claims_ = claims; }

  // Moves to the first item (kForward) or to the last (kBackward).
  Status SeekEnd(Direction from);

  // Moves to the first item with a key of at least `key`; false if there is none.
  Result<bool> SeekKey(KeyOrder order, Bytes key);

  // Moves to the position `path`.
  // Errors: kInvalidArgument  the path is not one of this tree
  Status SeekPath(std::span<const PathStep> path);

  // Moves to the neighbouring item of the same leaf page; returns false and does not move if there
  // is none. The same holds for Step and StepLeaf.
  bool StepWithinLeaf(Direction direction) {
    Level& leaf = levels_[depth_ - 1];
    const uint32_t next = leaf.index + static_cast<uint32_t>(direction);  // wraps below 0
    if (next >= leaf.count) return false;
    leaf.index = next;
    return true;
  }

  // Moves to the neighbouring item.
  Result<bool> Step(Direction direction) {
    if (StepWithinLeaf(direction)) [[likely]]
      return true;
    return StepLeaf(direction);
  }

  // Moves to the nearest item of the neighbouring leaf page.
  Result<bool> StepLeaf(Direction direction);

  bool standing() const { return standing_; }
  uint32_t depth() const { return depth_; }
  PathStep step(uint32_t level) const {
    return {levels_[level].page_no.value, levels_[level].index};
  }

  // The leaf page under the cursor. Requires (here and below): standing()
  PageNo leaf_page_no() const { return levels_[depth_ - 1].page_no; }
  uint32_t index() const { return levels_[depth_ - 1].index; }
  uint32_t item_count() const { return levels_[depth_ - 1].count; }
  void set_index(uint32_t index) { levels_[depth_ - 1].index = index; }  // < item_count()
  bool is_packed() const { return shape_ == LeafShape::kPacked; }
  const LeafPage& leaf() const { return leaf_; }           // requires !is_packed()
  const FixedLeafPage& packed() const { return packed_; }  // requires is_packed()
  // The leaf pages that follow this one in key order, as far as the branch page above names them:
  // their number, and the page of one of them. Reads nothing. The page may lie outside of the file.
  uint32_t following_leaf_count() const {
    return depth_ < 2 ? 0 : levels_[depth_ - 2].count - 1 - levels_[depth_ - 2].index;
  }
  PageNo following_leaf(uint32_t i) const {
    const Level& parent = levels_[depth_ - 2];
    return parent.branch.child(parent.index + 1 + i);
  }
  // File offset of the leaf page or sub-page.
  uint64_t leaf_file_offset() const { return leaf_file_offset_; }

  // The key of the item: a node's key, or a packed item.
  Bytes item_key() const { return is_packed() ? packed_.item(index()) : leaf_.key(index()); }
  // The extent of that key in the file.
  Extent item_key_extent() const;
  // Checks an item of a duplicate tree: a key without data.
  // Errors: kCorruption  the node has data, or is not an inline node
  Status CheckPlainItem() const;

 private:
  struct Level {
    PageNo page_no;
    uint32_t index = 0;
    uint32_t count = 0;  // children or items
    BranchPage branch;
    std::vector<std::byte> buffer;  // [page size] once the source has needed it
  };

  Status Load(uint32_t level, PageNo page_no);
  Status AcceptLeaf(const TreePage& page, Level& level);
  Status Descend(uint32_t level, PageNo page_no, Direction from);
  void PrefetchNextLeaf(Direction direction) const;
  Status CountVisit(PageNo page_no, Direction direction);

  const PageReader* pages_;
  PageClaims* claims_ = nullptr;
  DatabaseRecord record_;
  // Spans point into the heap buffers of the levels. They stay valid when the vector grows, because
  // moving a level moves its buffer without copying it.
  std::vector<Level> levels_;
  uint32_t depth_ = 0;
  bool standing_ = false;
  LeafShape shape_ = LeafShape::kNodes;
  LeafPage leaf_;
  FixedLeafPage packed_;
  uint64_t leaf_file_offset_ = 0;
  // Pages read since the last seek or change of direction. More than the file has means a cycle.
  Direction visiting_ = Direction::kForward;
  uint64_t visited_pages_ = 0;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_TREE_CURSOR_H_
