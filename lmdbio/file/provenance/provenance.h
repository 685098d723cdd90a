// lmdbio/file/provenance/provenance.h - the small file beside a database that gives its layout.
//
// There are two kinds. The file of an ordered load holds the dissertation's six items, and the
// layout is recomputed from them (lmdbio/file/provenance/replay.h). The file of any other database
// holds the compressed layout. Both hold the fingerprint of one state of one database, and are
// refused for any other.
//
// Bytes in:   a provenance file
// Values out: the fingerprint; the layout, as record runs
//
// Source: dissertation 5.2.2; docs/provenance.md has the file byte by byte.
#ifndef LMDBIO_FILE_PROVENANCE_PROVENANCE_H_
#define LMDBIO_FILE_PROVENANCE_PROVENANCE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "lmdbio/file/layout/record_run.h"
#include "lmdbio/file/provenance/fingerprint.h"
#include "lmdbio/file/provenance/replay.h"

namespace lmdbio::file {

enum class ProvenanceKind : uint32_t {
  kOrderedLoad = 1,
  kExactLayout = 2,
};

// The dissertation's six items (5.2.2), in its order, but for the sizes.
struct LoadDescription {
  uint64_t commit_interval_records = 0;  // 1: records per transaction
  uint32_t leaf_records_max = 0;         // 2: most records in a leaf page
  uint32_t branch_children_max = 0;      // 3: most children of a branch page
  PutMode put_mode = PutMode::kDefault;  // 5: the order of insertion: ascending, put or appended
  uint32_t meta_page_count = file::kMetaPageCount;  // 6
};

// The sizes of keys or of values: item 4. Either one constant or a packed list.
struct SizeDescription {
  bool is_constant = true;
  uint32_t constant_bytes = 0;
  std::vector<std::byte> packed;
};

// A decoded provenance file. Movable. Threads: const methods from any number of threads.
class Provenance {
 public:
  // Errors: kCorruption   a damaged file, or not a provenance file; the message gives the reason
  //         kUnsupported  a version that this library does not know
  static Result<Provenance> Decode(Bytes file);

  ProvenanceKind kind() const { return kind_; }
  // Of a temporary object: a copy, which may outlive it.
  const Fingerprint& fingerprint() const& { return fingerprint_; }
  Fingerprint fingerprint() && { return std::move(fingerprint_); }
  // Number of records of the layout. It equals the fingerprint's entry count if that is exact
  // (DatabaseRecord::counts_exactly).
  uint64_t record_count() const { return record_count_; }

  // Requires (here and below): kind() == Kind::kOrderedLoad
  const LoadDescription& load() const& { return load_; }
  LoadDescription load() && { return load_; }
  const SizeDescription& key_sizes() const& { return key_sizes_; }
  const SizeDescription& value_sizes() const& { return value_sizes_; }
  const SizeDescription& key_sizes() && = delete;
  const SizeDescription& value_sizes() && = delete;

  // Hands the layout to `sink`. Valid for both kinds.
  //
  // Requires: CheckFingerprint has matched the file with a database, because memory and time are in
  //           proportion to the record count in the file
  // Errors:   kCorruption  the contents contradict the fingerprint; those of `sink`
  Status Expand(RecordRunSink& sink) const;

 private:
  Status ExpandLoad(RecordRunSink& sink) const;

  ProvenanceKind kind_ = ProvenanceKind::kExactLayout;
  Fingerprint fingerprint_;
  uint64_t record_count_ = 0;
  LoadDescription load_;
  SizeDescription key_sizes_, value_sizes_;
  std::vector<std::byte> chunks_;
};

// The bytes of a provenance file of either kind.
std::vector<std::byte> EncodeOrderedLoad(const Fingerprint& fingerprint, const OrderedLoad& load,
                                         const ReplayTotals& totals);
// chunks  of `record_count` records, from ExactEncoder
std::vector<std::byte> EncodeExactLayout(const Fingerprint& fingerprint, uint64_t record_count,
                                         Bytes chunks);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_PROVENANCE_H_
