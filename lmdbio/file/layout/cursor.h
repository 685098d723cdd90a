// lmdbio/file/layout/cursor.h - a position among the records of one database, without pointers.
//
//   LMDBIO_TRY(bool found, cursor.First());
//   while (found) {
//     LMDBIO_TRY(const Bytes value, cursor.Value());
//     Use(cursor.key(), value);
//     LMDBIO_TRY(found, cursor.Next());
//   }
//
// Each duplicate of a key is a record. The position is a stack of (page number, index). It means
// the same in every process that opened the same snapshot, so it can be sent as it is. (The cursor
// of LMDB holds pointers; so the dissertation, 4.2.1, maps the file at the same address in all
// processes.)
//
// Source: dissertation 2.4.2 and 4.2; docs/architecture.md "Cursor".
#ifndef LMDBIO_FILE_LAYOUT_CURSOR_H_
#define LMDBIO_FILE_LAYOUT_CURSOR_H_

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/record_run.h"
#include "lmdbio/file/layout/tree_cursor.h"

namespace lmdbio::file {

// Trivially copyable, no pointers. Valid for the snapshot it was taken in.
struct CursorPosition {
  uint32_t depth = 0;            // levels used of `path`, root first
  uint32_t duplicate_depth = 0;  // levels used of `duplicate_path`; 0 if the key has one value
  std::array<PathStep, file::kTreeDepthMax> path{};
  std::array<PathStep, file::kTreeDepthMax> duplicate_path{};
};
static_assert(std::is_trivially_copyable_v<CursorPosition>);

// Errors, of every move: kIo, kCorruption. After an error the cursor has no position; a new seek
//           works.
// Threads:  one at a time
// Lifetime: copies `database`; the byte source must outlive the cursor. Returned spans are valid
//           until the cursor moves.
class Cursor {
 public:
  // claims  borrowed or null. A forward pass from First() claims every page that it reads; a page
  //         that is read twice is an error. For one pass only.
  explicit Cursor(const Database& database, PageClaims* claims = nullptr);

  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // Move to the named record. Return false if there is none; Next and Prev then do not move.
  Result<bool> First();
  Result<bool> Last();
  Result<bool> Next() {
    // Fast path: most next records are an inline node of the same leaf.
    if (standing_ && !in_duplicates_ && main_.StepWithinLeaf(Direction::kForward)) [[likely]] {
      if (main_.leaf().flags(main_.index()) == file::kInlineNode) [[likely]]
        return true;
      return Settle(true, Direction::kForward);
    }
    return Move(Direction::kForward);
  }
  Result<bool> Prev() { return Move(Direction::kBackward); }

  // Moves to the first record of the next key.
  Result<bool> NextKey();

  // Moves to the first record with a key of at least `key`, in the order of the database's flags.
  // (The file does not record a comparison function of the writing program.)
  Result<bool> SeekKey(Bytes key);

  // Moves to record `record`; false if it is past the last.
  // Cost: reads every leaf before it, also the leaves of duplicate trees, because branch pages hold
  //       no counts. A Layout answers in O(1).
  Result<bool> SeekOrdinal(RecordIndex record);

  // Moves to a position taken in this snapshot, by this or another process.
  // Errors: kInvalidArgument  the position is not one of this tree
  Status SeekPosition(const CursorPosition& position);

  bool standing() const { return standing_; }

  // Of the record under the cursor. Requires (here and below): standing()
  CursorPosition position() const;
  Bytes key() const { return main_.item_key(); }
  // The leaf page that names the record's key.
  PageNo leaf() const { return main_.leaf_page_no(); }
  // As TreeCursor: the leaf pages behind it, as far as they are known without a read.
  uint32_t following_leaf_count() const { return main_.following_leaf_count(); }
  PageNo following_leaf(uint32_t i) const { return main_.following_leaf(i); }
  // True if the record is the root of a named database rather than the user's data.
  bool is_named_database() const;

  // The extent of the value in the file. Reads nothing.
  // Errors: kCorruption
  Result<Extent> ValueExtent() const;

  // The location of the record in the file, key and value. Reads nothing.
  // Errors: kCorruption
  Result<RecordLocation> Place() const;

  // The value. A value in an overflow run is read into a buffer of the cursor.
  // Errors: kIo, kCorruption
  Result<Bytes> Value() {
    if (in_duplicates_) return duplicates_.item_key();
    const LeafPage& leaf = main_.leaf();
    if (leaf.flags(main_.index()) == file::kOverflowNode) return OverflowValue();
    return leaf.data(main_.index());
  }

 private:
  // Checks the item under `main_`. If it has duplicates, moves to the first of them (`from` is
  // kForward) or to the last (kBackward).
  Status Arrive(Direction from);
  Status EnterDuplicates(const LeafEntry& entry, Direction from);
  Result<bool> Settle(Result<bool> moved, Direction from);
  Result<bool> Move(Direction direction);
  Result<bool> SkipWithinLeaf(uint64_t& left);
  Status SkipDuplicates(uint64_t left);
  Result<uint64_t> CountRecords();
  Result<Bytes> OverflowValue();
  void PrefetchNextValue() const;
  LeafEntry entry() const { return main_.leaf().Entry(main_.index()); }

  Database database_;
  PageClaims* claims_;
  bool has_duplicates_;
  LeafShape duplicate_shape_;
  bool standing_ = false;
  bool in_duplicates_ = false;  // the record is a duplicate, and `duplicates_` points to it
  TreeCursor main_;
  TreeCursor duplicates_;
  std::vector<std::byte> value_buffer_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_CURSOR_H_
