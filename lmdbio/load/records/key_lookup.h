// lmdbio/load/records/key_lookup.h - finds the records of keys, for any number of threads.
//
// Source: docs/keys.md.
#ifndef LMDBIO_LOAD_RECORDS_KEY_LOOKUP_H_
#define LMDBIO_LOAD_RECORDS_KEY_LOOKUP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "lmdbio/file/keys/kept_branches.h"
#include "lmdbio/file/keys/key_index.h"
#include "lmdbio/file/keys/key_search.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/records/key_numbers.h"
#include "lmdbio/load/records/sorted_keys.h"

namespace lmdbio::load {

// Copies of the keys of consecutive records.
struct KeyList {
  std::vector<std::byte> bytes;  // one key after the other
  std::vector<uint64_t> ends;    // [records] where the key of each ends in `bytes`

  size_t size() const { return ends.size(); }
  void Add(Bytes key) {
    bytes.insert(bytes.end(), key.begin(), key.end());
    ends.push_back(bytes.size());
  }
  Bytes operator[](size_t i) const& {
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return Bytes(bytes).subspan(begin, ends[i] - begin);
  }
  Bytes operator[](size_t i) && = delete;
};

// Threads: any.
// Lifetime: copies `database`; its source, and `locator`, must outlive this
class KeyLookup {
 public:
  KeyLookup(const file::Database& database, Locator& locator)
      : database_(database), locator_(locator) {}

  const file::Database& database() const { return database_; }

  // Calls `visit` for each leaf page with one of the keys. Errors, cost: as file::KeySearch::Find
  Status Search(std::span<const Bytes> keys, const file::KeySearch::Visitor& visit);

  // The records of each key, by the index if there is one.
  // Returns: [keys]
  // Errors: as Search; kCorruption  the locations are not those of the tree
  // Cost:   as Search; the first call sleeps until all records are located. With an index: one
  //         batch of reads, of the leaf pages of keys that are there
  Result<std::vector<KeyNumber>> Find(const SortedKeys& keys);

  // The number of values of each key: 0 if it is absent. In a database without duplicates it needs
  // no location.
  // Returns: [keys]. Errors: as Find
  Result<std::vector<uint64_t>> CountValues(const SortedKeys& keys);

  // The keys of records [first, first + count).
  // Requires: the range lies within the database
  // Errors: kIo, kCorruption; kStale. Cost: reads their leaf pages; none of the values
  Result<KeyList> ReadKeys(RecordIndex first, uint64_t count);

  // The keys of `records`.
  // Requires: they are ascending, each once, and within the database
  // Errors, cost: as above
  Result<KeyList> ReadKeysOf(std::span<const uint64_t> records);

  // The index that lookups use; null: they go down the tree.
  const file::KeyIndex* index() const { return index_.load(std::memory_order_acquire); }

  // Makes an index of all keys.
  // leaves  gets the leaf pages of the database, in key order
  // Errors: kIo, kCorruption; kStale
  // Cost: reads all leaf pages
  Result<file::KeyIndex> BuildIndex(uint64_t record_count, std::vector<PageNo>& leaves);

  // Makes Find use an index. The first index stays.
  void UseIndex(file::KeyIndex index);

 private:
  Result<const KeyNumbers*> Numbers();
  Status FindByTree(std::span<const Bytes> keys, std::span<KeyNumber> found);
  Status FindByIndex(const file::KeyIndex& index, std::span<const Bytes> keys,
                     std::span<KeyNumber> found);

  const file::Database database_;
  Locator& locator_;
  file::KeptBranches branches_;
  std::mutex mutex_;
  std::unique_ptr<const KeyNumbers> numbers_;           // guarded by mutex_ until it is made
  std::unique_ptr<const file::KeyIndex> owned_index_;   // guarded by mutex_
  std::atomic<const file::KeyIndex*> index_ = nullptr;  // set once, to owned_index_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_KEY_LOOKUP_H_
