// lmdbio/file/writer/database_writer.h - writes a new LMDB database and records its provenance.
//
// liblmdb writes the records, in ordinary transactions of a fixed number of records, as in Caffe's
// conversion programs. So the replay (file/provenance/replay.h) explains the layout, and the
// provenance file stays small if all records have equal sizes.
//
// Source: dissertation 5.2.2 ("collected ... when the database is being generated").
#ifndef LMDBIO_FILE_WRITER_DATABASE_WRITER_H_
#define LMDBIO_FILE_WRITER_DATABASE_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/provenance/replay.h"
#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/file/writer/staged_database.h"

namespace lmdbio::file {

// The time at which committed records must have reached the storage.
enum class Durability {
  kAtFinish,    // once, before the database gets its name: a crash loses the whole load anyway
  kEachCommit,  // with every transaction, the default of liblmdb
};

enum class ProvenanceMode { kRecord, kSkip };

struct WriterOptions {
  std::string path;  // must not exist; its parent must
  DatabaseShape shape = DatabaseShape::kDirectory;
  uint64_t commit_interval_records = 1000;  // 0: everything in one transaction
  PutMode put_mode = PutMode::kDefault;
  Durability durability = Durability::kAtFinish;
  ProvenanceMode provenance = ProvenanceMode::kRecord;
  // Address space reserved for the file. It costs no memory and no disk, because the file is only
  // as long as its pages. If the process has less address space (ulimit -v), the writer halves this
  // number until it fits. It doubles the map between transactions if less than half is free. The
  // default is large, because liblmdb cannot grow the map while a transaction is open; the writer
  // would have to abort and repeat the transaction from a copy. It is a constant, because liblmdb
  // stores it in the file, which is so the same on every machine.
  uint64_t map_bytes = uint64_t{1} << 40;
  // Called repeatedly while the provenance is recorded, with the fraction done. May be empty.
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

// Builds the database under "PATH.lmdbio-partial"; Finish gives it its name. The destructor of an
// unfinished writer removes its files. If the process is killed, the next writer in the same folder
// removes them. After a failure every call except the destructor fails.
//
// Threads: one, always the same, because liblmdb binds a transaction to its thread
class DatabaseWriter {
 public:
  // Errors:  kInvalidArgument    the path is empty or exists; another writer works on it; map_bytes
  //                              is not a multiple of the page size
  //          kNotFound           the parent directory does not exist
  //          kPermission, kIo    the database cannot be written; the path has a link that must not
  //                              be followed (docs/outputs.md)
  //          kResourceExhausted  no room on the disk; no address space for a map of 1 MiB
  static Result<DatabaseWriter> Create(const WriterOptions& options);

  DatabaseWriter(DatabaseWriter&&) noexcept;
  DatabaseWriter& operator=(DatabaseWriter&&) noexcept;
  ~DatabaseWriter();

  // Adds a record.
  //
  // key    [1 to 511] bytes, not put before; with PutMode::kAppend greater than all before
  // value  [below 2^32] bytes
  //
  // Errors:  kInvalidArgument    the key or the value breaks these rules
  //          kResourceExhausted  the disk is full; one transaction needs more than map_bytes
  //          kIo                 the storage failed
  // Cost:    one search of the tree and one copy; a commit every commit_interval_records
  Status Put(Bytes key, Bytes value);

  // Commits the open transaction, syncs, gives the database its name and records its provenance.
  // Call once. If only the recording fails, the database is complete and stays; the message says
  // so.
  //
  // Errors:  as Put; as RecordProvenance; kInvalidArgument if the path was created during the load
  Result<WriteSummary> Finish();

 private:
  class Impl;
  explicit DatabaseWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_WRITER_DATABASE_WRITER_H_
