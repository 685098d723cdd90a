// lmdbio/provenance/fingerprint.h - which database, in which state, a provenance file speaks of.
//
// Most of it are fields of the meta page and of the database's record: they are free to compare and
// change with every commit. A few leaf pages are hashed too, because two different files may agree
// in all counters.
//
// Source: docs/provenance.md "Fingerprint".
#ifndef LMDBIO_PROVENANCE_FINGERPRINT_H_
#define LMDBIO_PROVENANCE_FINGERPRINT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/layout/database.h"
#include "lmdbio/provenance/wire.h"

namespace lmdbio::provenance {

struct LeafSample {
  PageNo page;
  uint64_t hash = 0;  // XXH64, seed 0, of the whole page
};

struct Fingerprint {
  format::PageFormat page_format{format::DataVersion::k1, format::kPageBytesMin};
  uint64_t file_size_bytes = 0;
  uint64_t transaction_id = 0;
  PageNo last_page;
  format::DatabaseRecord record;  // entries, root, depth, page counters, flags
  std::string database_name;      // empty: the main database
  std::vector<LeafSample> samples;
};

// Leaf pages that are hashed, at most: the first, the last, and some between.
inline constexpr size_t kSamplesMax = 8;

// leaves  [leaf pages of the database, in key order]
// Errors: kIo, kCorruption
Result<Fingerprint> TakeFingerprint(const layout::Database& database,
                                    std::span<const PageNo> leaves);

// Tells whether `database` is the one that `fingerprint` was taken of.
// Errors: kStale  "FIELD is X, the provenance file was made for Y"; kIo
// Cost:   reads the sampled leaf pages
Status CheckFingerprint(const Fingerprint& fingerprint, const layout::Database& database);

void EncodeFingerprint(const Fingerprint& fingerprint, WireWriter& out);
// Errors: kCorruption
Result<Fingerprint> DecodeFingerprint(WireReader& in);

}  // namespace lmdbio::provenance
#endif  // LMDBIO_PROVENANCE_FINGERPRINT_H_
