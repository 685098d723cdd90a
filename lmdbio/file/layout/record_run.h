// lmdbio/file/layout/record_run.h - the record run: consecutive records with their nodes on one
// page.
//
// Three producers yield runs in key order: the page walk (reads the tree), the replay of an ordered
// load (computes them) and the provenance decoder (expands them). Consumers are the layout builder,
// comparisons and counters. See docs/architecture.md, "Layouts".
#ifndef LMDBIO_FILE_LAYOUT_RECORD_RUN_H_
#define LMDBIO_FILE_LAYOUT_RECORD_RUN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

// How the records of a run relate to the nodes of their leaf page.
enum class RunKind : uint8_t {
  kNodes = 0,       // record j of the run is node `first_node + j` of `leaf`
  kDuplicates = 1,  // every record of the run belongs to node `first_node` of `leaf`
};

// Consecutive records with their nodes or items on one page. Never empty.
struct RecordRun {
  RecordIndex first_record;
  PageNo leaf;              // the leaf page of the database's tree that holds the key(s)
  uint32_t first_node = 0;  // the node of `leaf` that holds the first record's key
  RunKind kind = RunKind::kNodes;
  // The page that holds the nodes or items themselves: `leaf`, or a leaf page of a key's private
  // tree of duplicates.
  PageNo home;
  std::span<const Extent> values;       // [record count of the run] borrowed for the call
  std::span<const uint32_t> key_bytes;  // [the same] or empty if the producer has no key sizes
};

// The location of one record: a run of one.
struct RecordLocation {
  PageNo leaf;
  uint32_t node = 0;
  RunKind kind = RunKind::kNodes;
  PageNo home;
  Extent value;
};

// Receives runs in key order, without gaps: run k+1 starts where run k ended.
class RecordRunSink {
 public:
  virtual ~RecordRunSink() = default;
  // Errors: those of the sink; the producer stops at the first one and returns it unchanged
  virtual Status Add(const RecordRun& run) = 0;
};

// Renumbers the records and moves the pages of runs, on their way to another sink: those of one
// file become those of a list of files (docs/many_files.md), or the reverse.
// Threads: one at a time.
class ShiftedRuns final : public RecordRunSink {
 public:
  struct By {
    uint64_t records = 0;  // modulo 2^64, all of them
    uint64_t pages = 0;
    uint64_t bytes = 0;  // of these pages
    // The reverse of this shift.
    By Back() const { return {0 - records, 0 - pages, 0 - bytes}; }
  };

  // to  borrowed
  ShiftedRuns(RecordRunSink& to, const By& by) : to_(to), by_(by) {}

  // Errors: of the other sink
  Status Add(const RecordRun& run) override {
    RecordRun shifted = run;
    shifted.first_record.value += by_.records;
    if (by_.pages == 0) return to_.Add(shifted);
    shifted.leaf.value += by_.pages;
    shifted.home.value += by_.pages;
    values_.assign(run.values.begin(), run.values.end());
    for (Extent& value : values_) value.offset += by_.bytes;
    shifted.values = values_;
    return to_.Add(shifted);
  }

 private:
  RecordRunSink& to_;
  By by_;
  std::vector<Extent> values_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_RECORD_RUN_H_
