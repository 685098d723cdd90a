// lmdbio/file/writer/record_provenance.h - writes the provenance file of a database, in one pass.
//
// Source: dissertation 5.2.2 ("collected either when the database is being generated or later as
// one-time postprocessing of the database"); docs/provenance.md.
#ifndef LMDBIO_FILE_WRITER_RECORD_PROVENANCE_H_
#define LMDBIO_FILE_WRITER_RECORD_PROVENANCE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/file/provenance/explain.h"

namespace lmdbio::file {

struct RecordProvenanceOptions {
  std::string path;           // directory with data.mdb, or a single file
  std::string database_name;  // empty: the main database
  LoadHint hint;              // known parameters of the load; they are verified
  // Called repeatedly with the fraction done, 0 to 1. May be empty.
  std::function<void(double)> progress;
};

struct RecordedProvenance {
  std::string path;  // of the file that was written
  uint64_t size_bytes = 0;
  uint64_t record_count = 0;
  ProvenanceKind kind = ProvenanceKind::kExactLayout;
};

// Walks the database once and tries to explain its layout as an ordered load. Then writes that
// load, or the exact layout if no load explains it. The file is written completely or not at all.
//
// Errors:  kNotFound, kPermission, kCorruption, kUnsupported  the database cannot be read
//          kIo  the provenance file cannot be written
//          kStale  the database changed during the pass
// Cost:    reads the branch and leaf pages once; about 20 bytes of memory per record
Result<RecordedProvenance> RecordProvenance(const RecordProvenanceOptions& options);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_WRITER_RECORD_PROVENANCE_H_
