// lmdbio/file/provenance/fingerprint.h - identifies the database, and its state, of a provenance
// file.
//
// Most of the fingerprint are fields of the meta page and of the database record. They cost nothing
// to compare, and every commit changes them. Hashes of a few leaf pages are added, because two
// different files may have equal fields.
//
// Source: docs/provenance.md "Fingerprint".
#ifndef LMDBIO_FILE_PROVENANCE_FINGERPRINT_H_
#define LMDBIO_FILE_PROVENANCE_FINGERPRINT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::file {

struct LeafSample {
  PageNo page;
  uint64_t hash = 0;  // XXH64, seed 0, of the whole page
};

struct Fingerprint {
  PageFormat page_format{DataVersion::k1, file::kPageBytesMin};
  uint64_t file_size_bytes = 0;
  uint64_t transaction_id = 0;
  PageNo last_page;
  DatabaseRecord record;      // entries, root, depth, page counters, flags
  std::string database_name;  // empty: the main database
  std::vector<LeafSample> samples;
};

// The largest number of hashed leaf pages: the first, the last, and some between.
inline constexpr size_t kSamplesMax = 8;

// leaves  [leaf pages of the database, in key order]
// Errors: kIo, kCorruption
Result<Fingerprint> TakeFingerprint(const Database& database, std::span<const PageNo> leaves);

// Checks that `fingerprint` was taken of `database` in its present state.
// Errors: kStale  "FIELD is X, the provenance file was made for Y"; kIo, kCorruption
// Cost:   reads the sampled leaf pages
Status CheckFingerprint(const Fingerprint& fingerprint, const Database& database);

void EncodeFingerprint(const Fingerprint& fingerprint, ByteWriter& out);
// Errors: kCorruption
Result<Fingerprint> DecodeFingerprint(ByteReader& in);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_FINGERPRINT_H_
