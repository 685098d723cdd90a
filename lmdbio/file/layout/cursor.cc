// A cursor consists of two TreeCursors: `main_` stands on an item of the database's tree, and
// `duplicates_` on a duplicate of that item's key. Every move has two halves. The first moves
// `main_`; the second (Settle, Arrive) checks the item and enters its duplicates. The cursor has no
// position in between, so an error in either half leaves none.
#include "lmdbio/file/layout/cursor.h"

#include <fmt/format.h>

namespace lmdbio::file {

Cursor::Cursor(const Database& database, PageClaims* claims)
    : database_(database),
      claims_(claims),
      has_duplicates_(database.record().has_duplicates()),
      duplicate_shape_((database.record().flags & file::kDupFixed) != 0 ? LeafShape::kPacked
                                                                        : LeafShape::kNodes),
      main_(database_.pages()),
      duplicates_(database_.pages()) {
  main_.set_claims(claims);
  duplicates_.set_claims(claims);
  if (!database_.record().empty()) main_.Bind(database_.record(), LeafShape::kNodes);
}

// The second half of every move. `moved` is the result of the move of `main_`: true if it reached a
// new item. A failure leaves the cursor without a position; false leaves it where it was.
Result<bool> Cursor::Settle(Result<bool> moved, Direction from) {
  if (!moved) {
    standing_ = false;
    return moved;
  }
  if (!*moved) return false;
  standing_ = false;
  LMDBIO_TRY_VOID(Arrive(from));
  standing_ = true;
  return true;
}

// Checks the properties of the item that need more than its page. A bare cursor checks the extent
// of an overflow value only when the value is requested. A scan claims the run already here,
// because it arrives at each item exactly once.
Status Cursor::Arrive(Direction from) {
  in_duplicates_ = false;
  const LeafEntry found = entry();
  switch (found.flags) {
    case file::kInlineNode:
      return {};
    case file::kOverflowNode: {
      if (claims_ == nullptr) return {};
      LMDBIO_TRY(const Extent value, ValueExtent());
      const PageFormat& format = database_.pages().page_format();
      const PageNo first{format.PagesBefore(value.offset)};
      const uint64_t count = format.OverflowPageCount(value.length_bytes);
      if (claims_->Claim(first, count)) return {};
      return database_.pages().Corrupt(first, fmt::format("belongs to two values (one of them of "
                                                          "leaf page {})",
                                                          main_.leaf_page_no().value));
    }
    case file::kDatabaseNode:
      if (found.value_bytes == file::kDatabaseRecordBytes) return {};
      return database_.pages().Corrupt(main_.leaf_page_no(),
                                       "the record of a named database has the wrong size");
    case file::kSubPageNode:
    case file::kSubTreeNode:
      break;
  }
  if (!has_duplicates_) {
    return database_.pages().Corrupt(
        main_.leaf_page_no(),
        fmt::format("node {} holds duplicates, but the database has none", main_.index()));
  }
  return EnterDuplicates(found, from);
}

// Binds `duplicates_` to the sub-page or to the private tree of a key. Few duplicates are a
// sub-page inside the leaf node, which is already in memory. Many are a tree of their own, whose
// pages are read on the way down.
Status Cursor::EnterDuplicates(const LeafEntry& found, Direction from) {
  const PageReader& pages = database_.pages();
  if (found.flags == file::kSubPageNode) {
    LMDBIO_TRY_VOID(duplicates_.BindSubPage(main_.leaf_page_no(), found.data, found.data_offset,
                                            duplicate_shape_));
    if (from == Direction::kBackward) duplicates_.set_index(duplicates_.item_count() - 1);
  } else {
    LMDBIO_TRY(const DatabaseRecord tree,
               pages.DuplicateTree(main_.leaf_page_no(), main_.index(), found));
    duplicates_.Bind(tree, duplicate_shape_);
    LMDBIO_TRY_VOID(duplicates_.SeekEnd(from));
  }
  in_duplicates_ = true;
  return duplicates_.CheckPlainItem();
}

Result<bool> Cursor::First() {
  standing_ = false;
  if (database_.record().empty()) return false;
  LMDBIO_TRY_VOID(main_.SeekEnd(Direction::kForward));
  return Settle(true, Direction::kForward);
}

Result<bool> Cursor::Last() {
  standing_ = false;
  if (database_.record().empty()) return false;
  LMDBIO_TRY_VOID(main_.SeekEnd(Direction::kBackward));
  return Settle(true, Direction::kBackward);
}

// A move leaves the key only after the last of its duplicates in this direction. Reaching that end
// is no error, so the position is kept until `main_` has moved.
Result<bool> Cursor::Move(Direction direction) {
  if (!standing_) {
    return Fail(ErrorCode::kInvalidArgument, "the cursor has no position; seek a record first");
  }
  if (in_duplicates_) {
    Result<bool> moved = duplicates_.Step(direction);
    if (!moved) standing_ = false;
    if (!moved) return moved;
    if (*moved) {
      Status sound = duplicates_.CheckPlainItem();
      if (!sound) {
        standing_ = false;
        return Fail(std::move(sound).error());
      }
      return true;
    }
  }
  return Settle(main_.Step(direction), direction);
}

Result<bool> Cursor::NextKey() {
  if (!standing_) {
    return Fail(ErrorCode::kInvalidArgument, "the cursor has no position; seek a record first");
  }
  return Settle(main_.Step(Direction::kForward), Direction::kForward);
}

Result<bool> Cursor::SeekKey(Bytes key) {
  standing_ = false;
  if (database_.record().empty()) return false;
  return Settle(main_.SeekKey(database_.key_order(), key), Direction::kForward);
}

// The number of records of the item under main_: 1, or the number of its duplicates.
Result<uint64_t> Cursor::CountRecords() {
  LMDBIO_TRY_VOID(Arrive(Direction::kForward));
  if (!in_duplicates_) return 1;
  // The count in the record of a private tree is only a hint (docs/format.md section 4), so the
  // leaves of the tree are counted. A sub-page is one page and has no next leaf.
  uint64_t count = 0;
  for (bool more = true; more;) {
    count += duplicates_.item_count();
    if (entry().flags == file::kSubPageNode) break;
    LMDBIO_TRY(more, duplicates_.StepLeaf(Direction::kForward));
  }
  return count;
}

// Looks for record number `left` of the leaf under main_. If the leaf holds it, moves main_ to its
// item, sets `left` to its number among the duplicates of that item, and returns true. Otherwise
// subtracts the number of records of the leaf from `left` and returns false.
Result<bool> Cursor::SkipWithinLeaf(uint64_t& left) {
  const uint32_t items = main_.item_count();
  if (!has_duplicates_) {
    if (left >= items) {
      left -= items;
      return false;
    }
    main_.set_index(static_cast<uint32_t>(left));
    left = 0;
    return true;
  }
  for (uint32_t i = 0; i < items; ++i) {
    main_.set_index(i);
    LMDBIO_TRY(const uint64_t here, CountRecords());
    if (left < here) return true;
    left -= here;
  }
  return false;
}

// Moves `duplicates_` forward by `left` items, leaf by leaf.
Status Cursor::SkipDuplicates(uint64_t left) {
  while (left >= duplicates_.item_count()) {
    left -= duplicates_.item_count();
    LMDBIO_TRY(const bool moved, duplicates_.StepLeaf(Direction::kForward));
    if (!moved) {
      return database_.pages().Corrupt(
          main_.leaf_page_no(),
          fmt::format("node {} has fewer duplicates than were counted", main_.index()));
    }
  }
  duplicates_.set_index(static_cast<uint32_t>(left));
  return duplicates_.CheckPlainItem();
}

// Walks over the leaves and subtracts the records of each from the number until the leaf that holds
// the record. Branch pages hold no counts, so there is no shorter way in the tree.
Result<bool> Cursor::SeekOrdinal(RecordIndex record) {
  standing_ = false;
  if (database_.record().empty()) return false;
  if (database_.counts_exactly() && record.value >= database_.entry_count()) return false;
  LMDBIO_TRY_VOID(main_.SeekEnd(Direction::kForward));
  uint64_t left = record.value;
  for (;;) {
    LMDBIO_TRY(const bool here, SkipWithinLeaf(left));
    if (here) break;
    LMDBIO_TRY(const bool moved, main_.StepLeaf(Direction::kForward));
    if (!moved) return false;
  }
  LMDBIO_TRY_VOID(Arrive(Direction::kForward));
  if (in_duplicates_) LMDBIO_TRY_VOID(SkipDuplicates(left));
  standing_ = true;
  return true;
}

// The position may come from another process, so nothing in it is trusted. SeekPath follows the
// children that the pages name and compares them with the position. So a position of another
// snapshot is refused, and no page outside the tree is read.
Status Cursor::SeekPosition(const CursorPosition& position) {
  standing_ = false;
  const auto refuse = [&](std::string_view why) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: position: {}", database_.pages().source().name(), why));
  };
  if (position.depth > position.path.size() ||
      position.duplicate_depth > position.duplicate_path.size() || database_.record().empty()) {
    return refuse("impossible depth");
  }
  LMDBIO_TRY_VOID(main_.SeekPath({position.path.data(), position.depth}));
  LMDBIO_TRY_VOID(Arrive(Direction::kForward));
  if (in_duplicates_ != (position.duplicate_depth != 0)) {
    return refuse(
        "has a duplicate for a key without duplicates, or lacks one for a key with duplicates");
  }
  if (in_duplicates_) {
    const PathStep& last = position.duplicate_path[position.duplicate_depth - 1];
    if (entry().flags == file::kSubPageNode) {
      // A sub-page has no page number of its own, so only the index is compared.
      if (position.duplicate_depth != 1 || last.index >= duplicates_.item_count()) {
        return refuse("no such duplicate");
      }
      duplicates_.set_index(last.index);
    } else {
      LMDBIO_TRY_VOID(
          duplicates_.SeekPath({position.duplicate_path.data(), position.duplicate_depth}));
    }
    LMDBIO_TRY_VOID(duplicates_.CheckPlainItem());
  }
  standing_ = true;
  return {};
}

CursorPosition Cursor::position() const {
  LMDBIO_CHECK(standing_);
  CursorPosition position;
  position.depth = main_.depth();
  for (uint32_t i = 0; i < position.depth; ++i) position.path[i] = main_.step(i);
  if (in_duplicates_) {
    position.duplicate_depth = duplicates_.depth();
    for (uint32_t i = 0; i < position.duplicate_depth; ++i) {
      position.duplicate_path[i] = duplicates_.step(i);
    }
  }
  return position;
}

Result<RecordLocation> Cursor::Place() const {
  LMDBIO_TRY(const Extent value, ValueExtent());
  const PageNo leaf = main_.leaf_page_no();
  const RunKind kind = in_duplicates_ ? RunKind::kDuplicates : RunKind::kNodes;
  const PageNo home = in_duplicates_ ? duplicates_.leaf_page_no() : leaf;
  return RecordLocation{leaf, main_.index(), kind, home, value};
}

bool Cursor::is_named_database() const {
  LMDBIO_CHECK(standing_);
  return !in_duplicates_ && entry().flags == file::kDatabaseNode;
}

Result<Extent> Cursor::ValueExtent() const {
  if (in_duplicates_) return duplicates_.item_key_extent();
  const LeafEntry found = entry();
  if (found.flags == file::kOverflowNode) {
    return database_.pages().OverflowExtent(main_.leaf_page_no(), main_.leaf(), found);
  }
  return Extent{main_.leaf_file_offset() + found.data_offset, found.value_bytes};
}

Result<Bytes> Cursor::OverflowValue() {
  LMDBIO_TRY(const Extent value, ValueExtent());
  // The hint comes before the read, so the next value travels while this one is read and used.
  PrefetchNextValue();
  return database_.pages().ReadOverflow(value, value_buffer_);
}

// Most callers read values in key order, so the next value is fetched ahead.
void Cursor::PrefetchNextValue() const {
  const uint32_t next = main_.index() + 1;
  if (next >= main_.item_count()) return;
  const LeafEntry found = main_.leaf().Entry(next);
  if (found.flags != file::kOverflowNode) return;
  database_.pages().PrefetchOverflow(main_.leaf(), found);
}

}  // namespace lmdbio::file
