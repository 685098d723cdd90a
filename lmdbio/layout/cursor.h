// lmdbio/layout/cursor.h - a place among the records of one database, in plain numbers.
//
//   LMDBIO_TRY(bool found, cursor.First());
//   while (found) {
//     LMDBIO_TRY(const Bytes value, cursor.Value());
//     Use(cursor.key(), value);
//     LMDBIO_TRY(found, cursor.Next());
//   }
//
// A key with duplicates is as many records as it has duplicates. The position is a stack of (page
// number, index): it means the same in every process that opened the same snapshot, so it can be
// sent as it is. (The dissertation, 4.2.1, needed a map at one address everywhere, because LMDB's
// own cursor holds pointers.)
//
// Source: dissertation 2.4.2 and 4.2; docs/architecture.md "Cursor".
#ifndef LMDBIO_LAYOUT_CURSOR_H_
#define LMDBIO_LAYOUT_CURSOR_H_

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lmdbio/layout/database.h"
#include "lmdbio/layout/record_run.h"
#include "lmdbio/layout/tree_cursor.h"

namespace lmdbio::layout {

// Trivially copyable, no pointers. Valid for the snapshot it was taken in.
struct CursorPosition {
  uint32_t depth = 0;            // levels used of `path`, root first
  uint32_t duplicate_depth = 0;  // levels used of `duplicate_path`; 0 if the key has one value
  std::array<PathStep, format::kTreeDepthMax> path{};
  std::array<PathStep, format::kTreeDepthMax> duplicate_path{};
};
static_assert(std::is_trivially_copyable_v<CursorPosition>);

// Threads: one at a time.
// Lifetime: copies what it needs of `database`; the byte source must outlive it. Spans it returns
//           live until it moves.
// Errors, of every move: kIo, kCorruption. After an error the cursor stands nowhere and can be
//           sought anew.
class Cursor {
 public:
  // claims  if not null, every page that a forward pass from First() meets is claimed there, and a
  //         page met twice is an error (borrowed). For one pass only.
  explicit Cursor(const Database& database, PageClaims* claims = nullptr);

  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // Move, and say whether there is such a record. Next and Prev stay put when there is none.
  Result<bool> First();
  Result<bool> Last();
  Result<bool> Next() {
    // Most records are the neighbour in the leaf, and all there is to know of them stands there.
    if (standing_ && !in_duplicates_ && main_.StepWithinLeaf(Direction::kForward)) [[likely]] {
      if (main_.leaf().flags(main_.index()) == format::kInlineNode) [[likely]]
        return true;
      return Settle(true, Direction::kForward);
    }
    return Move(Direction::kForward);
  }
  Result<bool> Prev() { return Move(Direction::kBackward); }

  // Moves to the first record of the next key.
  Result<bool> NextKey();

  // Moves to the first record whose key is not less than `key`, in the order that the database's
  // flags name. (An order of the writing program's own is not recorded in the file.)
  Result<bool> SeekKey(Bytes key);

  // Moves to record `record`; false if it is past the last.
  // Cost: branch pages carry no counts, so every leaf before it is read, those of the duplicates
  //       too. A Layout needs no walk.
  Result<bool> SeekOrdinal(RecordIndex record);

  // Moves to a position taken in this snapshot, by this or another process.
  // Errors: kInvalidArgument  the position is not one of this tree
  Status SeekPosition(const CursorPosition& position);

  bool standing() const { return standing_; }

  // Of the record under the cursor. Requires (here and below): standing()
  CursorPosition position() const;
  Bytes key() const { return main_.item_key(); }
  // True if the record is the root of a named database rather than the user's data.
  bool is_named_database() const;

  // Where the value lies in the file. Reads nothing.
  // Errors: kCorruption
  Result<Extent> ValueExtent() const;

  // Where the record lies in the file, key and value. Reads nothing.
  // Errors: kCorruption
  Result<RecordPlace> Place() const;

  // The value. Reads the overflow run, if it lies in one, into a buffer of the cursor's.
  // Errors: kIo, kCorruption
  Result<Bytes> Value() {
    if (in_duplicates_) return duplicates_.item_key();
    const format::LeafPage& leaf = main_.leaf();
    if (leaf.flags(main_.index()) == format::kOverflowNode) return OverflowValue();
    return leaf.data(main_.index());
  }

 private:
  // Settles on the item under `main_`; `from` says at which end of its duplicates.
  Status Arrive(Direction from);
  Status EnterDuplicates(const format::LeafEntry& entry, Direction from);
  Result<bool> Settle(Result<bool> moved, Direction from);
  Result<bool> Move(Direction direction);
  Result<bool> SkipWithinLeaf(uint64_t& left);
  Status SkipDuplicates(uint64_t left);
  Result<uint64_t> CountRecords();
  Result<Bytes> OverflowValue();
  void PrefetchNextValue() const;
  format::LeafEntry entry() const { return main_.leaf().Entry(main_.index()); }

  Database database_;
  PageClaims* claims_;
  bool has_duplicates_;
  LeafShape duplicate_shape_;
  bool standing_ = false;
  bool in_duplicates_ = false;  // the record is one of several of its key; `duplicates_` stands
  TreeCursor main_;
  TreeCursor duplicates_;
  std::vector<std::byte> value_buffer_;
};

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_CURSOR_H_
