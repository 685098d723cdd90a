// lmdbio/load/view/view_rows.h - the record numbers of all samples, from the keys of databases.
//
//   joined    a row for each key of the first field's database; other databases have the same key.
//             Key streams are merged, in key order
//   numbered  keys that match a template; a row for each number
//
// Source: docs/views.md "Flow".
#ifndef LMDBIO_LOAD_VIEW_VIEW_ROWS_H_
#define LMDBIO_LOAD_VIEW_VIEW_ROWS_H_

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/view/view_spec.h"

namespace lmdbio::load {

// A database, and the number that its first record has among the records of all of them.
struct ViewDatabase {
  file::Database database;
  uint64_t first_record = 0;
};

// Threads: one at a time. Memory: 8 bytes for each record of a sample, 8 more for a number.
class ViewRows {
 public:
  // spec  CheckView has passed; borrowed
  explicit ViewRows(const ViewSpec& spec);

  // Appends the samples of a file.
  // sources  [1 + spec.others] the view's own database, and the others
  // notes    gets a line if records of another database belong to no sample
  // Errors: kNotFound         a field lacks a record, or there is no count record
  //         kInvalidArgument  a key or a count record is no number
  //         kUnsupported      fields in a database with duplicates; other orders of keys
  //         kCorruption, kIo
  Status Add(std::span<const ViewDatabase> sources, std::vector<std::string>& notes);

  // Keeps the subset alone. Once, after all files.
  // Errors: kInvalidArgument  a number is out of range; kNotFound  no sample has a key;
  //         kUnsupported      keys with several files
  Status ChooseSubset();

  // [fields][samples] record numbers
  const std::vector<std::vector<uint64_t>>& columns() const { return columns_; }
  uint64_t sample_count() const { return columns_.front().size(); }

 private:
  struct Numbered {
    uint64_t number = 0;
    uint64_t record = 0;
  };
  using NumberedRecords = std::vector<Numbered>;

  size_t SourceOf(size_t field) const {
    return spec_.fields.empty() ? 0 : spec_.fields[field].source;
  }
  Status CheckJoinable(std::span<const ViewDatabase> sources) const;
  Status AddJoined(std::span<const ViewDatabase> sources, std::vector<std::string>& notes);
  Status SortByNumber(uint64_t first_row);
  Status AddNumbered(std::span<const ViewDatabase> sources);
  Result<std::vector<NumberedRecords>> FindNumbers(std::span<const ViewDatabase> sources) const;
  Status AddLinedUp(std::span<const ViewDatabase> sources,
                    const std::vector<NumberedRecords>& found, const uint64_t* count);
  Result<uint64_t> SampleOfKey(const std::string& key) const;

  const ViewSpec& spec_;
  const std::set<std::string, std::less<>> excluded_;
  std::vector<std::vector<uint64_t>> columns_;
  std::vector<uint64_t> numbers_;  // [samples] in numeric order and with templates; else empty
  // The sample of each key of spec.subset_keys, if samples have no numbers.
  std::unordered_map<std::string, uint64_t> sample_of_;
  uint64_t part_count_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_VIEW_ROWS_H_
