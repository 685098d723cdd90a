// lmdbio/load/view/view.h - a resolved view: the record numbers of each sample, and their digest.
//
// Source: docs/views.md.
#ifndef LMDBIO_LOAD_VIEW_VIEW_H_
#define LMDBIO_LOAD_VIEW_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/packed_column.h"
#include "lmdbio/load/view/view_rows.h"
#include "lmdbio/load/view/view_spec.h"

namespace lmdbio::load {

// Copies share their memory. Threads: const; any number of readers.
class View {
 public:
  // Resolves `spec`.
  // files  [at least 1] of each the databases, as for ViewRows::Add; samples follow file by file
  // notes  gets a line for records that belong to no sample by mistake
  // Errors: kInvalidArgument, kNotFound, kUnsupported, kCorruption, kIo: docs/views.md "Failures"
  // Cost: reads the branch and leaf pages of the databases; 8 bytes of memory for each record of a
  //       sample meanwhile
  static Result<View> Resolve(const ViewSpec& spec,
                              std::span<const std::vector<ViewDatabase>> files,
                              std::vector<std::string>& notes);

  uint64_t sample_count() const { return columns_.front().size(); }
  size_t field_count() const { return columns_.size(); }
  // [field_count()] one empty name for a view without fields
  const std::vector<std::string>& field_names() const { return field_names_; }

  // The record of a field of a sample. Cost: a few nanoseconds
  // Requires: sample < sample_count(), field < field_count()
  uint64_t RecordOf(uint64_t sample, size_t field) const { return columns_[field][sample]; }

  // Of all record numbers, in order: equal views have equal digests, on every machine.
  uint64_t digest() const { return digest_; }

  uint64_t memory_bytes() const;

 private:
  View() = default;

  std::vector<file::PackedColumn> columns_;  // [fields]
  std::vector<std::string> field_names_;
  uint64_t digest_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_VIEW_H_
