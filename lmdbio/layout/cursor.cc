#include "lmdbio/layout/cursor.h"

#include <fmt/format.h>

namespace lmdbio::layout {

using format::DatabaseRecord;
using format::LeafEntry;

Cursor::Cursor(const Database& database, PageClaims* claims)
    : database_(database),
      claims_(claims),
      has_duplicates_(database.record().has_duplicates()),
      duplicate_shape_((database.record().flags & format::kDupFixed) != 0 ? LeafShape::kPacked
                                                                          : LeafShape::kNodes),
      main_(database_.pages()),
      duplicates_(database_.pages()) {
  main_.set_claims(claims);
  duplicates_.set_claims(claims);
  if (!database_.record().empty()) main_.Bind(database_.record(), LeafShape::kNodes);
}

// The second half of every move: `moved` tells whether main_ stands on a new item.
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

Status Cursor::Arrive(Direction from) {
  in_duplicates_ = false;
  const LeafEntry found = entry();
  switch (found.flags) {
    case format::kInlineNode:
      return {};
    case format::kOverflowNode: {
      if (claims_ == nullptr) return {};
      LMDBIO_TRY(const Extent value, ValueExtent());
      const uint64_t page_bytes = database_.pages().page_format().page_size_bytes();
      const PageNo first{value.offset / page_bytes};
      const uint64_t count = database_.pages().page_format().OverflowPageCount(value.length_bytes);
      if (claims_->Claim(first, count)) return {};
      return database_.pages().Corrupt(first, fmt::format("belongs to two values (one of them of "
                                                          "leaf page {})",
                                                          main_.leaf_page_no().value));
    }
    case format::kDatabaseNode:
      if (found.value_bytes == format::kDatabaseRecordBytes) return {};
      return database_.pages().Corrupt(main_.leaf_page_no(),
                                       "the record of a named database has the wrong size");
    case format::kSubPageNode:
    case format::kSubTreeNode:
      break;
  }
  if (!has_duplicates_) {
    return database_.pages().Corrupt(
        main_.leaf_page_no(),
        fmt::format("node {} holds duplicates in a database without", main_.index()));
  }
  return EnterDuplicates(found, from);
}

Status Cursor::EnterDuplicates(const LeafEntry& found, Direction from) {
  const PageReader& pages = database_.pages();
  if (found.flags == format::kSubPageNode) {
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

Result<bool> Cursor::Move(Direction direction) {
  if (!standing_) {
    return Fail(ErrorCode::kInvalidArgument, "the cursor stands nowhere: seek first");
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
    return Fail(ErrorCode::kInvalidArgument, "the cursor stands nowhere: seek first");
  }
  return Settle(main_.Step(Direction::kForward), Direction::kForward);
}

Result<bool> Cursor::SeekKey(Bytes key) {
  standing_ = false;
  if (database_.record().empty()) return false;
  return Settle(main_.SeekKey(database_.key_order(), key), Direction::kForward);
}

// How many records the item under main_ is.
Result<uint64_t> Cursor::CountRecords() {
  LMDBIO_TRY_VOID(Arrive(Direction::kForward));
  if (!in_duplicates_) return 1;
  uint64_t count = 0;
  for (bool more = true; more;) {
    count += duplicates_.item_count();
    if (entry().flags == format::kSubPageNode) break;
    LMDBIO_TRY(more, duplicates_.StepLeaf(Direction::kForward));
  }
  return count;
}

// Stands on the item of the leaf under main_ that holds the leaf's record number `left`, and leaves
// in `left` its number among the item's duplicates; or takes the leaf's records off `left`.
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

Status Cursor::SkipDuplicates(uint64_t left) {
  while (left >= duplicates_.item_count()) {
    left -= duplicates_.item_count();
    LMDBIO_TRY(const bool moved, duplicates_.StepLeaf(Direction::kForward));
    if (!moved) {
      return database_.pages().Corrupt(
          main_.leaf_page_no(),
          fmt::format("node {} has fewer duplicates than it says", main_.index()));
    }
  }
  duplicates_.set_index(static_cast<uint32_t>(left));
  return duplicates_.CheckPlainItem();
}

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
    return refuse("names duplicates where there are none, or the reverse");
  }
  if (in_duplicates_) {
    const PathStep& last = position.duplicate_path[position.duplicate_depth - 1];
    if (entry().flags == format::kSubPageNode) {
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

Result<RecordPlace> Cursor::Place() const {
  LMDBIO_TRY(const Extent value, ValueExtent());
  const PageNo leaf = main_.leaf_page_no();
  const RunKind kind = in_duplicates_ ? RunKind::kDuplicates : RunKind::kNodes;
  const PageNo home = in_duplicates_ ? duplicates_.leaf_page_no() : leaf;
  return RecordPlace{leaf, main_.index(), kind, home, value};
}

bool Cursor::is_named_database() const {
  LMDBIO_CHECK(standing_);
  return !in_duplicates_ && entry().flags == format::kDatabaseNode;
}

Result<Extent> Cursor::ValueExtent() const {
  if (in_duplicates_) return duplicates_.item_key_extent();
  const LeafEntry found = entry();
  if (found.flags == format::kOverflowNode) {
    return database_.pages().OverflowExtent(main_.leaf_page_no(), main_.leaf(), found);
  }
  return Extent{main_.leaf_file_offset() + found.data_offset, found.value_bytes};
}

Result<Bytes> Cursor::OverflowValue() {
  LMDBIO_TRY(const Extent value, ValueExtent());
  PrefetchNextValue();
  return database_.pages().ReadOverflow(value, value_buffer_);
}

// Who reads a value in key order most often reads the next one too.
void Cursor::PrefetchNextValue() const {
  const uint32_t next = main_.index() + 1;
  if (next >= main_.item_count()) return;
  const LeafEntry found = main_.leaf().Entry(next);
  if (found.flags != format::kOverflowNode) return;
  database_.pages().PrefetchOverflow(main_.leaf(), found);
}

}  // namespace lmdbio::layout
