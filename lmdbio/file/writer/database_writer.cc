#include "lmdbio/file/writer/database_writer.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <lmdb.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

struct EnvCloser {
  void operator()(MDB_env* env) const { mdb_env_close(env); }
};
using EnvPtr = std::unique_ptr<MDB_env, EnvCloser>;

struct TxnAborter {
  void operator()(MDB_txn* txn) const { mdb_txn_abort(txn); }
};
using TxnPtr = std::unique_ptr<MDB_txn, TxnAborter>;

// True if an EIO of liblmdb means a full disk. liblmdb reports a short write as EIO, and a disk
// gives a short write when its space ends. liblmdb writes up to 1 GiB in one call, but a short
// write always uses all the remaining space. So an EIO with almost no space left means a full disk.
bool IsDiskFull(const std::string& path) {
  constexpr uint64_t kNextToNothingBytes = uint64_t{1} << 20;
  struct statvfs disk;
  return ::statvfs(path.c_str(), &disk) == 0 &&
         static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize < kNextToNothingBytes;
}

// The same for the limit of the process (ulimit -f): a short write reaches it.
bool IsAtFileLimit(const std::string& data_file) {
  struct rlimit limit;
  struct stat file;
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && ::stat(data_file.c_str(), &file) == 0 &&
         static_cast<uint64_t>(file.st_size) >= limit.rlim_cur;
}

MDB_val ToVal(Bytes bytes) {
  // MDB_val has no const pointer, because liblmdb also returns data through it. Here it only reads.
  return MDB_val{bytes.size(), const_cast<std::byte*>(bytes.data())};
}

unsigned EnvFlags(const WriterOptions& options) {
  // No lock is needed, because no other program opens the working name. Read-ahead does not help a
  // program that rewrites single pages.
  unsigned flags = MDB_NOLOCK | MDB_NORDAHEAD;
  if (options.shape == DatabaseShape::kSingleFile) flags |= MDB_NOSUBDIR;
  if (options.durability == Durability::kAtFinish) flags |= MDB_NOSYNC;
  return flags;
}

// MDB_NOOVERWRITE makes a repeated key an error; by default mdb_put would silently replace the
// record. This flag does not change the layout; MDB_APPEND does, as PutMode::kAppend describes.
unsigned PutFlags(PutMode put_mode) {
  return put_mode == PutMode::kAppend ? MDB_NOOVERWRITE | MDB_APPEND : MDB_NOOVERWRITE;
}

bool HasAddressSpace(uint64_t bytes) {
  void* const place = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return false;
  ::munmap(place, bytes);
  return true;
}

// The map that the process has address space for: that of the options, or its largest half, quarter
// and so on. Too small a map is left to liblmdb to refuse.
uint64_t AvailableMapBytes(uint64_t wanted_bytes) {
  constexpr uint64_t kLeastBytes = uint64_t{1} << 20;
  uint64_t bytes = wanted_bytes;
  while (bytes > kLeastBytes && !HasAddressSpace(bytes)) {
    bytes = AlignDown(bytes / 2, kMemoryPageBytesMax);
  }
  return bytes;
}

}  // namespace

// The first Put after a commit opens a transaction, and the last Put of an interval commits it. So
// an open transaction always has a record, and the intervals are those of an ordered load.
class DatabaseWriter::Impl {
 public:
  Impl(const WriterOptions& options, StagedDatabase staged)
      : options_(options),
        staged_(std::move(staged)),
        map_bytes_(AvailableMapBytes(options.map_bytes)) {
    summary_.path = staged_.path();
  }

  Status Open();
  Status Put(Bytes key, Bytes value);
  Result<WriteSummary> Finish();

 private:
  Status CheckSizes(Bytes key, Bytes value) const;
  Status Begin();
  Status GrowMap();
  Status Commit();
  Status Publish();
  Status Record();
  Error LmdbError(int code) const;

  WriterOptions options_;
  StagedDatabase
      staged_;  // outlives the environment, which must be closed before files are removed
  EnvPtr env_;
  TxnPtr txn_;
  MDB_dbi dbi_ = 0;
  uint64_t map_bytes_;
  uint64_t open_record_count_ = 0;  // in the open transaction
  WriteSummary summary_;
};

Error DatabaseWriter::Impl::LmdbError(int code) const {
  const std::string& path = staged_.path();
  // Without an open transaction, the map is the only large allocation of liblmdb. Positive codes
  // are values of errno; liblmdb's own codes are negative.
  if (code == ENOMEM && !txn_) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{}: no address space for a map of {} bytes", path, map_bytes_),
                 ENOMEM);
  }
  if (code == EIO && IsAtFileLimit(staged_.working_data_file())) code = EFBIG;
  if (code == EIO && IsDiskFull(staged_.working_path())) code = ENOSPC;
  if (code > 0) return ErrnoError(code, path, "cannot be written");
  if (code == MDB_MAP_FULL) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{}: one transaction exceeds the map of {} bytes; reduce the commit "
                             "interval or raise map_bytes",
                             path, map_bytes_));
  }
  return Error(ErrorCode::kInternal, fmt::format("{}: liblmdb: {}", path, mdb_strerror(code)));
}

Status DatabaseWriter::Impl::Open() {
  MDB_env* env = nullptr;
  if (const int code = mdb_env_create(&env); code != 0) return Fail(LmdbError(code));
  env_.reset(env);
  if (const int code = mdb_env_set_mapsize(env, map_bytes_); code != 0) {
    return Fail(LmdbError(code));
  }
  const int code = mdb_env_open(env, staged_.working_path().c_str(), EnvFlags(options_), 0666);
  if (code != 0) return Fail(LmdbError(code));
  MDB_stat stat;
  mdb_env_stat(env, &stat);
  // The page size is known only now: liblmdb chooses that of the system for a new file.
  if (map_bytes_ % stat.ms_psize != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("map_bytes is {}; it must be a multiple of the page size, {} bytes",
                            map_bytes_, stat.ms_psize));
  }
  return {};
}

Status DatabaseWriter::Impl::CheckSizes(Bytes key, Bytes value) const {
  const auto key_bytes_max = static_cast<size_t>(mdb_env_get_maxkeysize(env_.get()));
  if (key.empty() || key.size() > key_bytes_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: record {}: a key of {} bytes; LMDB takes 1 to {}", staged_.path(),
                            summary_.record_count, key.size(), key_bytes_max));
  }
  if (value.size() > std::numeric_limits<uint32_t>::max()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: record {}: a value of {} bytes; LMDB takes less than 2^32",
                            staged_.path(), summary_.record_count, value.size()));
  }
  return {};
}

// Keeps at least half of the map free for the transaction that begins. See
// WriterOptions::map_bytes.
Status DatabaseWriter::Impl::GrowMap() {
  // Runs between two transactions, because liblmdb refuses a new map size while one is open.
  MDB_envinfo info;
  MDB_stat stat;
  mdb_env_info(env_.get(), &info);
  mdb_env_stat(env_.get(), &stat);
  const uint64_t used_bytes = (uint64_t{info.me_last_pgno} + 1) * stat.ms_psize;
  if (used_bytes <= map_bytes_ / 2) return {};
  map_bytes_ *= 2;
  const int code = mdb_env_set_mapsize(env_.get(), map_bytes_);
  if (code != 0) return Fail(LmdbError(code));
  return {};
}

Status DatabaseWriter::Impl::Begin() {
  LMDBIO_TRY_VOID(GrowMap());
  MDB_txn* txn = nullptr;
  if (const int code = mdb_txn_begin(env_.get(), nullptr, 0, &txn); code != 0) {
    return Fail(LmdbError(code));
  }
  txn_.reset(txn);
  // The handle of the main database is a constant of liblmdb, so opening it each time costs
  // nothing.
  if (const int code = mdb_dbi_open(txn, nullptr, 0, &dbi_); code != 0)
    return Fail(LmdbError(code));
  open_record_count_ = 0;
  return {};
}

Status DatabaseWriter::Impl::Put(Bytes key, Bytes value) {
  LMDBIO_TRY_VOID(CheckSizes(key, value));
  if (!txn_) LMDBIO_TRY_VOID(Begin());
  MDB_val lmdb_key = ToVal(key);
  MDB_val lmdb_value = ToVal(value);
  const int code = mdb_put(txn_.get(), dbi_, &lmdb_key, &lmdb_value, PutFlags(options_.put_mode));
  if (code == MDB_KEYEXIST) {
    const char* reason = options_.put_mode == PutMode::kAppend
                             ? "its key is not above the keys before it"
                             : "its key was put before";
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: record {}: {}", staged_.path(), summary_.record_count, reason));
  }
  if (code != 0) return Fail(LmdbError(code));
  ++summary_.record_count;
  summary_.key_bytes += key.size();
  summary_.value_bytes += value.size();
  return ++open_record_count_ == options_.commit_interval_records ? Commit() : Status();
}

Status DatabaseWriter::Impl::Commit() {
  const int code = mdb_txn_commit(txn_.release());  // frees the transaction even if it fails
  if (code != 0) return Fail(LmdbError(code));
  ++summary_.transaction_count;
  return {};
}

// The data is on the storage, and liblmdb has closed its files, before the rename. So after a crash
// the name leads to a complete database or to none.
Status DatabaseWriter::Impl::Publish() {
  if (const int code = mdb_env_sync(env_.get(), /*force=*/1); code != 0)
    return Fail(LmdbError(code));
  env_.reset();
  struct stat file;
  const std::string data_file = staged_.working_data_file();
  if (::stat(data_file.c_str(), &file) != 0)
    return Fail(ErrnoError(errno, data_file, "cannot be examined"));
  summary_.file_bytes = static_cast<uint64_t>(file.st_size);
  return staged_.Publish();
}

Status DatabaseWriter::Impl::Record() {
  RecordProvenanceOptions recording;
  recording.path = staged_.path();
  recording.progress = options_.provenance_progress;
  recording.hint.put_mode = options_.put_mode;
  // With these hints the first replay matches as a rule. If it does not, the search and then the
  // exact layout take over.
  if (summary_.record_count > 0) {
    recording.hint.commit_interval_records = options_.commit_interval_records != 0
                                                 ? options_.commit_interval_records
                                                 : summary_.record_count;
  }
  Result<RecordedProvenance> recorded = RecordProvenance(recording);
  if (!recorded) {
    return Fail(std::move(recorded).error().Within(
        fmt::format("{} is complete, but its provenance could not be recorded", staged_.path())));
  }
  summary_.provenance = *std::move(recorded);
  return {};
}

Result<WriteSummary> DatabaseWriter::Impl::Finish() {
  if (txn_) LMDBIO_TRY_VOID(Commit());
  LMDBIO_TRY_VOID(Publish());
  if (options_.provenance == ProvenanceMode::kRecord) LMDBIO_TRY_VOID(Record());
  return std::move(summary_);
}

Result<DatabaseWriter> DatabaseWriter::Create(const WriterOptions& options) {
  LMDBIO_TRY(StagedDatabase staged, StagedDatabase::Create(options.path, options.shape));
  auto impl = std::make_unique<Impl>(options, std::move(staged));
  LMDBIO_TRY_VOID(impl->Open());
  return DatabaseWriter(std::move(impl));
}

DatabaseWriter::DatabaseWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DatabaseWriter::DatabaseWriter(DatabaseWriter&&) noexcept = default;
DatabaseWriter& DatabaseWriter::operator=(DatabaseWriter&&) noexcept = default;
DatabaseWriter::~DatabaseWriter() = default;

Status DatabaseWriter::Put(Bytes key, Bytes value) {
  if (!impl_) return Fail(ErrorCode::kInvalidArgument, "the writer has failed or finished");
  Status status = impl_->Put(key, value);
  if (!status) impl_.reset();  // the open transaction is lost, and with it the database
  return status;
}

Result<WriteSummary> DatabaseWriter::Finish() {
  if (!impl_) return Fail(ErrorCode::kInvalidArgument, "the writer has failed or finished");
  return std::exchange(impl_, nullptr)->Finish();
}

}  // namespace lmdbio::file
