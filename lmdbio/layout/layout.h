// lmdbio/layout/layout.h - the map from record to place, in memory.
//
// Built from record runs by LayoutBuilder, whoever produces them: the page walk, a replay, a
// decoded provenance file. All give the same layout for the same file, and tests hold them to it.
//
// Source: docs/architecture.md "Layouts"; dissertation 5.2.2.
#ifndef LMDBIO_LAYOUT_LAYOUT_H_
#define LMDBIO_LAYOUT_LAYOUT_H_

#include <array>
#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/layout/packed_column.h"
#include "lmdbio/layout/record_run.h"

namespace lmdbio::layout {

// Where the key of a record stands.
struct KeyPlace {
  PageNo leaf;
  uint32_t node = 0;
  friend bool operator==(const KeyPlace&, const KeyPlace&) = default;
};

// A record run without its values.
struct RunPlace {
  RecordIndex first_record;
  uint64_t record_count = 0;
  PageNo leaf;
  uint32_t first_node = 0;
  RunKind kind = RunKind::kNodes;
  PageNo home;
};

// Threads: const; any number of readers.
class Layout {
 public:
  uint64_t record_count() const { return lengths_.size(); }
  uint64_t run_count() const { return first_records_.size(); }

  // Where the value of a record lies in the file.
  // Requires: record < record_count()
  // Cost: O(1), a few nanoseconds
  Extent Value(RecordIndex record) const {
    return {offsets_[record.value], lengths_[record.value]};
  }

  // Where its key stands: keys are in leaf pages, apart from large values.
  // Cost: O(log run_count())
  KeyPlace Key(RecordIndex record) const;

  // Requires: run < run_count()
  RunPlace Run(uint64_t run) const;

  // Hands all records to `sink`, run by run, as they were added.
  // Errors: whatever `sink` returns
  Status Expand(RecordRunSink& sink) const;

  // The same for records [first, first + count) alone; the runs at both ends are cut to fit.
  // number_from  what the first of all records is called: the runs handed out count from there
  // Requires: first + count <= record_count()
  // Errors: whatever `sink` returns
  Status ExpandRange(RecordIndex first, uint64_t count, RecordIndex number_from,
                     RecordRunSink& sink) const;

  uint64_t memory_bytes() const;

  // The layout as bytes, for other processes of this machine and this program.
  uint64_t image_bytes() const;
  // memory  [image_bytes()] 8-aligned
  void WriteImage(MutableBytes memory) const;
  // A layout that looks into `image`, which must outlive it and its copies.
  // image  [...] 8-aligned, written by WriteImage; may go on behind it
  static Layout OfImage(Bytes image);

 private:
  friend class LayoutBuilder;
  std::array<PackedColumn*, 7> Columns();
  std::array<const PackedColumn*, 7> Columns() const;
  uint64_t RunOf(RecordIndex record) const;

  // One number for each record.
  PackedColumn offsets_, lengths_;
  // One number for each run.
  PackedColumn first_records_, leaves_, first_nodes_, homes_, kinds_;
};

// Threads: one at a time.
class LayoutBuilder final : public RecordRunSink {
 public:
  // Errors: kInvalidArgument  a gap: the run does not start where the last one ended
  Status Add(const RecordRun& run) override;

  uint64_t record_count() const { return lengths_.size(); }

  // The layout of what was added; the builder is empty afterwards.
  Layout Finish();

 private:
  PackedColumnBuilder offsets_, lengths_;
  PackedColumnBuilder first_records_, leaves_, first_nodes_, homes_, kinds_;
};

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_LAYOUT_H_
