// lmdbio/writer/database_writer.h - writes a new LMDB database and records its provenance.
//
// Records go through liblmdb, in ordinary transactions of a fixed number of records, as Caffe's
// conversion programs do it; so the layout is one that the replay (provenance/replay.h) explains
// and the provenance file stays a few dozen bytes long.
//
// Source: dissertation 5.2.2 ("collected ... when the database is being generated").
#ifndef LMDBIO_WRITER_DATABASE_WRITER_H_
#define LMDBIO_WRITER_DATABASE_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/provenance/replay.h"
#include "lmdbio/writer/record_provenance.h"
#include "lmdbio/writer/staged_database.h"

namespace lmdbio::writer {

// When what was committed must have reached the storage.
enum class Durability {
  kAtFinish,    // once, before the database gets its name: a crash costs the whole load anyway
  kEachCommit,  // with every transaction, as liblmdb does by itself
};

enum class ProvenanceFile { kRecord, kSkip };

struct WriterOptions {
  std::string path;  // must not exist; its parent must
  DatabaseShape shape = DatabaseShape::kDirectory;
  uint64_t commit_interval_records = 1000;  // 0: everything in one transaction
  provenance::PutMode put_mode = provenance::PutMode::kDefault;
  Durability durability = Durability::kAtFinish;
  ProvenanceFile provenance = ProvenanceFile::kRecord;
  // Address space reserved for the file, doubled between transactions whenever less than half is
  // free. It costs no memory and no disk: the file is only as long as its pages. A map that starts
  // small must be grown while a transaction is open, which liblmdb cannot do: one would have to
  // abort and put everything again, from a copy as large as the transaction. A constant keeps the
  // file the same on every machine, for liblmdb stores the size of the map in it.
  uint64_t map_bytes = uint64_t{1} << 40;
  // Called now and then while the provenance is recorded, with the fraction done. May be empty.
  std::function<void(double)> provenance_progress;
};

struct WriteSummary {
  std::string path;  // as in the options
  uint64_t record_count = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t transaction_count = 0;
  uint64_t file_bytes = 0;  // of the data file
  std::optional<RecordedProvenance> provenance;
};

// Builds the database under "PATH.partial"; only Finish gives it its name. Destroying an unfinished
// writer removes what it has written. After a failure every call but the destructor fails.
//
// Threads: one at a time; liblmdb binds a transaction to its thread, so always the same one
class DatabaseWriter {
 public:
  // Errors:  kInvalidArgument    the path is empty or exists; map_bytes is no multiple of the
  //                              page size
  //          kNotFound           the parent directory does not exist
  //          kPermission, kIo    it cannot be written
  //          kResourceExhausted  no room on the disk; no address space for the map
  static Result<DatabaseWriter> Create(const WriterOptions& options);

  DatabaseWriter(DatabaseWriter&&) noexcept;
  DatabaseWriter& operator=(DatabaseWriter&&) noexcept;
  ~DatabaseWriter();

  // Adds a record.
  //
  // key    [1 to 511] bytes, not put before; with PutMode::kAppend above all before
  // value  [below 2^32] bytes
  //
  // Errors:  kInvalidArgument    the key or the value breaks these rules
  //          kResourceExhausted  the disk is full; one transaction needs more than map_bytes
  //          kIo                 the storage failed
  // Cost:    one search of the tree and one copy; a commit every commit_interval_records
  Status Put(Bytes key, Bytes value);

  // Commits what is open, syncs, gives the database its name and records its provenance. Call once.
  // If only the recording fails, the database is complete and stays; the message says so.
  //
  // Errors:  as Put; as RecordProvenance; kInvalidArgument if the path has come to exist meanwhile
  Result<WriteSummary> Finish();

 private:
  class Impl;
  explicit DatabaseWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdbio::writer
#endif  // LMDBIO_WRITER_DATABASE_WRITER_H_
