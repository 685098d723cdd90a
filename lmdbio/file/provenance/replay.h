// lmdbio/file/provenance/replay.h - computes the location of every record of an ordered load.
//
// LMDB's page allocator is deterministic. So a load "put records in key order, commit every n" can
// be replayed from the sizes of the records alone. The replay models the rightmost path of the
// tree, the pages that each transaction copies and frees, and the reuse of freed pages two
// transactions later. For this reason the dissertation's provenance information (5.2.2) is
// sufficient to locate a record.
//
// Numbers in:  page format, sizes, commit interval
// Numbers out: one RecordRun per leaf page, and the counters of the meta page
//
// Does no I/O. The replay does not model updates, deletes, random insertion order, named databases,
// duplicates, or a reader that was open during the load. Such a file differs from the replay; the
// caller must compare (file/provenance/explain.h and provenance.h do).
//
// Source: dissertation 5.2.2 and Figure 5.4; docs/replay.md.
#ifndef LMDBIO_FILE_PROVENANCE_REPLAY_H_
#define LMDBIO_FILE_PROVENANCE_REPLAY_H_

#include <cstdint>
#include <span>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/layout/record_run.h"

namespace lmdbio::file {

// The key or value sizes of all records, in bytes: one constant, or one number for each record.
class SizeColumn {
 public:
  static SizeColumn Constant(uint32_t size_bytes) { return {SizeKind::kConstant, size_bytes, {}}; }
  // sizes  [record count] bytes; borrowed for the life of the column
  static SizeColumn Each(std::span<const uint32_t> sizes) { return {SizeKind::kEach, 0, sizes}; }
  static SizeColumn Each(TemporaryContainer auto&& sizes) = delete;

  bool is_constant() const { return kind_ == SizeKind::kConstant; }
  // Empty if the column is constant.
  std::span<const uint32_t> each() const { return each_; }
  // Requires: the column is constant, or record < each().size()
  uint32_t operator[](uint64_t record) const { return is_constant() ? constant_ : each_[record]; }

 private:
  // Stored explicitly, because an empty list of sizes must not count as the constant 0.
  enum class SizeKind : uint8_t { kConstant, kEach };

  SizeColumn(SizeKind kind, uint32_t constant, std::span<const uint32_t> each)
      : each_(each), constant_(constant), kind_(kind) {}

  std::span<const uint32_t> each_;
  uint32_t constant_;
  SizeKind kind_;
};

// The flags of mdb_put. The records come in ascending key order with both.
enum class PutMode : uint8_t {
  kDefault = 0,  // mdb_put without flags: a full leaf moves its last node to its new sibling
  kAppend = 1,   // MDB_APPEND: a full leaf keeps all its nodes
};

// The description of an ordered load into the main database of a fresh file.
struct OrderedLoad {
  uint64_t record_count = 0;
  uint64_t commit_interval_records = 0;  // >= 1; the last transaction may hold fewer
  SizeColumn key_bytes = SizeColumn::Constant(0);
  SizeColumn value_bytes = SizeColumn::Constant(0);
  PutMode put_mode = PutMode::kDefault;
};

// The expected fields of the meta page after the load, and the two fan-outs that the dissertation
// lists.
struct ReplayTotals {
  PageNo root;  // file::kNoRoot if there are no records
  PageNo last_page;
  uint64_t transaction_count = 0;
  uint32_t depth = 0;
  uint64_t branch_pages = 0;
  uint64_t leaf_pages = 0;
  uint64_t overflow_pages = 0;
  uint32_t leaf_records_max = 0;     // most records that any leaf page holds
  uint32_t branch_children_max = 0;  // most children that any branch page has
};

// Replays `load` and hands each leaf page's records to `sink`, in key order, as soon as the leaf
// can no longer change.
//
// Errors:  kInvalidArgument  commit interval 0; a key that is empty or longer than LMDB accepts on
//                            such pages; columns of the wrong length; a file past 2^63 bytes
//          kUnsupported      a load that the replay does not model: a free list larger than one
//                            page, a tree deeper than file::kTreeDepthMax
//          those of `sink`
//          Invalid arguments are reported before the first call of `sink`; a file past 2^63 bytes
//          is found during the replay.
// Cost:    O(record_count), about 25 ns a record and 150 ns a transaction, a third of that if all
//          records have one size; memory O(records of a leaf + pages freed in two transactions),
//          none of it allocated per record
Result<ReplayTotals> Replay(PageFormat page_format, const OrderedLoad& load, RecordRunSink& sink);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_REPLAY_H_
