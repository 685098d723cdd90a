// lmdbio/file/keys/key_index.h - an index from the hash of a key to the number of its record.
//
// An entry of 8 bytes has the number of a record in its low bits, as many as the record count
// needs, and as many high bits of its key's hash as fit above. The entries are sorted, so a lookup
// is a binary search. Two keys may have equal hash bits. An index therefore proposes records, and
// its user compares the real keys.
//
// The file of an index is a sealed file (provenance/sealed_file.h) of kind 0. Its body:
// fingerprint, record count u64, entry count u64, entries u64.
//
// Source: docs/keys.md "Key index".
#ifndef LMDBIO_FILE_KEYS_KEY_INDEX_H_
#define LMDBIO_FILE_KEYS_KEY_INDEX_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/provenance/fingerprint.h"

namespace lmdbio::file {

// Movable. Threads: const; any number of readers. Memory: 8 bytes for each key
class KeyIndex {
 public:
  // The numbers of the records that may have `key`, in ascending order. One as a rule; none if the
  // key is absent.
  std::vector<uint64_t> Candidates(Bytes key) const;

  uint64_t record_count() const { return record_count_; }
  uint64_t key_count() const { return entries_.size(); }

  // The bytes of a file with this index.
  std::vector<std::byte> Encode(const Fingerprint& fingerprint) const;

  // The index in the bytes of a file, and the fingerprint of its database, which the caller
  // compares.
  // Errors: kCorruption    not an index, or a damaged one
  //         kUnsupported   a version that this library does not know
  static Result<std::pair<KeyIndex, Fingerprint>> Decode(Bytes file);

 private:
  friend class KeyIndexBuilder;
  KeyIndex(uint64_t record_count, std::vector<uint64_t> entries);
  uint64_t EntryOf(Bytes key, uint64_t number) const;

  uint64_t record_count_ = 0;
  uint32_t number_bits_ = 1;
  std::vector<uint64_t> entries_;  // ascending
};

// Threads: one at a time.
class KeyIndexBuilder {
 public:
  // record_count  of the database; less than 2^40
  explicit KeyIndexBuilder(uint64_t record_count) : index_(record_count, {}) {}

  // number  of the record with this key, or of the first of its duplicates
  void Add(Bytes key, uint64_t number) { index_.entries_.push_back(index_.EntryOf(key, number)); }

  // The index of the added keys.
  KeyIndex Finish() &&;

 private:
  KeyIndex index_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_KEYS_KEY_INDEX_H_
