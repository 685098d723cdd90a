// lmdbio/layout/tree_cursor.h - a place in one B+ tree: a stack of (page, index).
//
// The items of the tree are leaf nodes, or the packed items of fixed-size duplicates. What an item
// means is the business of layout/cursor.h.
//
// Source: dissertation 2.4.2 and 4.2 (the cursor that is handed from reader to reader).
#ifndef LMDBIO_LAYOUT_TREE_CURSOR_H_
#define LMDBIO_LAYOUT_TREE_CURSOR_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/format/branch_page.h"
#include "lmdbio/format/fixed_leaf_page.h"
#include "lmdbio/format/key_order.h"
#include "lmdbio/format/leaf_page.h"
#include "lmdbio/layout/page_claims.h"
#include "lmdbio/layout/page_reader.h"

namespace lmdbio::layout {

// One level of a position: entry `index` of page `page`.
struct PathStep {
  uint64_t page = 0;
  uint32_t index = 0;
  friend bool operator==(const PathStep&, const PathStep&) = default;
};

enum class Direction : int8_t { kForward = 1, kBackward = -1 };

// What the leaf pages of a tree hold: nodes, or packed items of one size (fixed-size duplicates).
enum class LeafShape : uint8_t { kNodes, kPacked };

// Errors, of every move: kIo, kCorruption; prefixed with the source's name.
// Threads: one at a time. `pages` must outlive the cursor; spans it returns live until it moves.
class TreeCursor {
 public:
  explicit TreeCursor(const PageReader& pages) : pages_(&pages) {}

  // Binds the cursor to a tree; it then stands nowhere.
  // Requires: `record` passed format::CheckTree and is not empty
  void Bind(const format::DatabaseRecord& record, LeafShape shape);

  // Binds the cursor to the sub-page inside a leaf node, a tree of one page, and stands at its
  // first item.
  // leaf      the page around it
  // sub_page  the node's data, borrowed until the next Bind; starts at `data_offset` of the page
  Status BindSubPage(PageNo leaf, Bytes sub_page, uint32_t data_offset, LeafShape shape);

  // From now on a page may be reached once only, and is claimed in `claims` (borrowed, or null).
  void set_claims(PageClaims* claims) { claims_ = claims; }

  // Stands at the first or last item.
  Status SeekEnd(Direction from);  // kForward: the first item, kBackward: the last

  // Stands at the first item whose key is not less than `key`; false if there is none.
  Result<bool> SeekKey(format::KeyOrder order, Bytes key);

  // Stands where `path` says.
  // Errors: kInvalidArgument  the path is not one of this tree
  Status SeekPath(std::span<const PathStep> path);

  // Moves to the neighbouring item of the same leaf page; false, staying put, if there is none.
  bool StepWithinLeaf(Direction direction) {
    Level& leaf = levels_[depth_ - 1];
    const uint32_t next = leaf.index + static_cast<uint32_t>(direction);  // wraps below 0
    if (next >= leaf.count) return false;
    leaf.index = next;
    return true;
  }

  // Moves to the neighbouring item; false, staying put, if there is none.
  Result<bool> Step(Direction direction) {
    if (StepWithinLeaf(direction)) [[likely]]
      return true;
    return StepLeaf(direction);
  }

  // Moves to the nearest item of the neighbouring leaf page; false, staying put, if there is none.
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
  const format::LeafPage& leaf() const { return leaf_; }           // requires !is_packed()
  const format::FixedLeafPage& packed() const { return packed_; }  // requires is_packed()
  // Where the page bytes of the leaf start in the file.
  uint64_t leaf_file_offset() const { return leaf_file_offset_; }

  // The key of the item: a node's key, or a packed item.
  Bytes item_key() const { return is_packed() ? packed_.item(index()) : leaf_.key(index()); }
  // Where that key lies in the file.
  Extent item_key_extent() const;
  // In a tree of duplicates the items are keys without data.
  // Errors: kCorruption  the item has data, or more
  Status CheckPlainItem() const;

 private:
  struct Level {
    PageNo page_no;
    uint32_t index = 0;
    uint32_t count = 0;  // children or items
    format::BranchPage branch;
    std::vector<std::byte> buffer;  // [page size] once the source has needed it
  };

  Status Load(uint32_t level, PageNo page_no);
  Status AcceptLeaf(const TreePage& page, Level& level);
  Status Descend(uint32_t level, PageNo page_no, Direction from);
  void PrefetchNextLeaf(Direction direction) const;
  Status CountVisit(PageNo page_no, Direction direction);

  const PageReader* pages_;
  PageClaims* claims_ = nullptr;
  format::DatabaseRecord record_;
  // Heap-allocated levels stay where they are; spans into their buffers survive growth of the
  // stack.
  std::vector<Level> levels_;
  uint32_t depth_ = 0;
  bool standing_ = false;
  LeafShape shape_ = LeafShape::kNodes;
  format::LeafPage leaf_;
  format::FixedLeafPage packed_;
  uint64_t leaf_file_offset_ = 0;
  // Pages met since the walk last turned round or jumped; more than the file has means a cycle.
  Direction visiting_ = Direction::kForward;
  uint64_t visited_pages_ = 0;
};

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_TREE_CURSOR_H_
