// lmdbio/load/records/listed_keys.h - finds the records of keys in a list of databases.
//
// Source: docs/many_files.md, docs/keys.md.
#ifndef LMDBIO_LOAD_RECORDS_LISTED_KEYS_H_
#define LMDBIO_LOAD_RECORDS_LISTED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/records/key_lookup.h"
#include "lmdbio/load/records/key_numbers.h"
#include "lmdbio/load/records/sorted_keys.h"

namespace lmdbio::load {

// The keys of a list of databases: each key is looked up in one database after the other, and the
// first that has it answers (docs/many_files.md). Records have the numbers of the list.
// Threads: any, after the last Add.
class ListedKeys {
 public:
  // Appends a database with `record_count` records.
  void Add(std::unique_ptr<KeyLookup> keys, uint64_t record_count);

  size_t file_count() const { return files_.size(); }
  KeyLookup& file(size_t i) const { return *files_[i].keys; }
  // The records of the database among those of the list.
  RecordRange range(size_t i) const { return files_[i].range; }

  // As those of KeyLookup, for keys in any order. Errors: as there
  // Cost: one descent for each database, until all keys are found
  Result<std::vector<KeyNumber>> Find(std::span<const Bytes> keys) const;
  // Errors: as KeyLookup::CountValues
  Result<std::vector<uint64_t>> CountValues(std::span<const Bytes> keys) const;
  // Errors: as KeyLookup::ReadKeys
  Result<KeyList> ReadKeys(RecordIndex first, uint64_t count) const;
  // Requires, errors: as KeyLookup::ReadKeysOf
  Result<KeyList> ReadKeysOf(std::span<const uint64_t> records) const;

 private:
  struct KeysOfFile {
    std::unique_ptr<KeyLookup> keys;
    RecordRange range;
  };

  // Calls `look_up` for each file and the keys that no file before has.
  // look_up  Result<std::vector<Value>>(const KeysOfFile&, const SortedKeys&)
  template <typename Value, typename LookUp>
  Result<std::vector<Value>> InEachFile(std::span<const Bytes> keys, const LookUp& look_up) const;

  std::vector<KeysOfFile> files_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_LISTED_KEYS_H_
