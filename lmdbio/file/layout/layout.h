// lmdbio/file/layout/layout.h - the map from record to location, in memory.
//
// LayoutBuilder builds it from record runs. The producer of the runs may be the page walk, a replay
// or a decoded provenance file. All give the same layout for the same file; tests check this.
//
// Source: docs/architecture.md "Layouts"; dissertation 5.2.2.
#ifndef LMDBIO_FILE_LAYOUT_LAYOUT_H_
#define LMDBIO_FILE_LAYOUT_LAYOUT_H_

#include <array>
#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/layout/packed_column.h"
#include "lmdbio/file/layout/record_run.h"

namespace lmdbio::file {

// The leaf page and node of a record's key.
struct KeyLocation {
  PageNo leaf;
  uint32_t node = 0;
  friend bool operator==(const KeyLocation&, const KeyLocation&) = default;
};

// A record run without its values.
struct RunLocation {
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

  // The extent of a record's value in the file.
  // Requires: record < record_count()
  // Cost: O(1), a few nanoseconds
  Extent Value(RecordIndex record) const {
    return {offsets_[record.value], lengths_[record.value]};
  }

  // The location of a record's key. A key is in a leaf page, its value possibly elsewhere.
  // Cost: O(log run_count())
  KeyLocation Key(RecordIndex record) const;

  // Requires: run < run_count()
  RunLocation Run(uint64_t run) const;

  // Hands all records to `sink`, in the runs in which they were added.
  // Errors: those of `sink`
  Status Expand(RecordRunSink& sink) const;

  // The same for records [first, first + count) alone; the runs at both ends are cut to fit.
  // number_from  the number that record 0 of this layout gets in the runs handed out
  // Requires: first + count <= record_count()
  // Errors:   those of `sink`
  Status ExpandRange(RecordIndex first, uint64_t count, RecordIndex number_from,
                     RecordRunSink& sink) const;

  uint64_t memory_bytes() const;

  // The size of the layout as bytes, for other processes of this host that run the same program.
  uint64_t image_bytes() const;
  // memory  [image_bytes()] 8-aligned
  void WriteImage(MutableBytes memory) const;
  // A view of the layout in `image`.
  // image     [>= image_bytes()] 8-aligned, written by WriteImage; bytes behind it are ignored
  // Lifetime: `image` must outlive the layout and its copies
  static Layout OfImage(Bytes image);
  static Layout OfImage(TemporaryContainer auto&& image) = delete;

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

  // The layout of the added runs; the builder is empty afterwards.
  Layout Finish();

 private:
  PackedColumnBuilder offsets_, lengths_;
  PackedColumnBuilder first_records_, leaves_, first_nodes_, homes_, kinds_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_LAYOUT_H_
