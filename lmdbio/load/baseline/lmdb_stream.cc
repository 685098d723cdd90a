// Caffe's data layer, step by step: each rank steps over every record and touches its own. Shuffled
// and reused orders are refused before (open_decision.cc), so the walk is the order of the
// database.
#include "lmdbio/load/baseline/lmdb_stream.h"

#include <lmdb.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lmdbio/base/align.h"
#include "lmdbio/load/baseline/lmdb_call_error.h"

namespace lmdbio::load {
namespace {

using Clock = std::chrono::steady_clock;

// Of 32 bytes each.
constexpr uint64_t kEntriesMax = uint64_t{1} << 32;

// The touch of one record in so many is timed. Two looks at the clock for every record would take
// 6 to 8 percent of an epoch of cached records, and the baseline must not pay for being watched.
// The kernel maps pages around a fault by powers of two, so a prime number meets all records alike.
constexpr uint64_t kTouchesPerTimed = 7;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

class CursorStream final : public LmdbStream {
 public:
  explicit CursorStream(std::string path) : path_(std::move(path)) {}
  ~CursorStream() override;

  Status OpenEnvironment();
  Status OpenCursor(const std::string& database_name);

  void SkipEpochs(uint64_t position, uint64_t record_count) override {
    step_count_ = position / record_count * record_count;
  }
  Status Gather(const BatchGroup& group, Share share, int rank, int rank_count,
                std::vector<RecordEntry>& entries) override;
  std::uintptr_t base() const override { return base_; }
  // Steps over the records of other ranks are locating as well.
  double locate_s() const override { return gather_s_ - read_s(); }
  double read_s() const override { return std::min(touch_s_, gather_s_); }

 private:
  Status StepTo(uint64_t position, MDB_val& key, MDB_val& value);
  void Touch(const MDB_val& value);
  void TouchTimed(const MDB_val& value);

  std::string path_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
  uint64_t step_count_ = 0;  // the cursor stands on the position before it
  bool is_placed_ = false;   // the cursor
  std::uintptr_t base_ = 0;
  double gather_s_ = 0;
  double touch_s_ = 0;  // estimated from the touches that are timed
  uint64_t touch_count_ = 0;
  unsigned touched_ = 0;
};

Status CursorStream::OpenEnvironment() {
  int rc = mdb_env_create(&environment_);
  if (rc != 0) return Fail(LmdbCallError(rc, path_, "mdb_env_create"));
  // No lock: the default mode expects no writer, and the directory may be read-only.
  mdb_env_set_maxdbs(environment_, 1);
  rc = mdb_env_open(environment_, path_.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NOSUBDIR,
                    0644);
  if (rc != 0) return Fail(LmdbOpenError(rc, path_));
  return {};
}

// liblmdb wants this order: cursor, transaction, environment.
CursorStream::~CursorStream() {
  if (cursor_ != nullptr) mdb_cursor_close(cursor_);
  if (transaction_ != nullptr) mdb_txn_abort(transaction_);
  if (environment_ != nullptr) mdb_env_close(environment_);
}

// One read transaction serves the whole stream, so all epochs see one snapshot.
Status CursorStream::OpenCursor(const std::string& database_name) {
  int rc = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_);
  if (rc != 0) return Fail(LmdbCallError(rc, path_, "mdb_txn_begin"));
  MDB_dbi database = 0;
  rc = mdb_dbi_open(transaction_, database_name.empty() ? nullptr : database_name.c_str(), 0,
                    &database);
  if (rc != 0) return Fail(LmdbCallError(rc, path_, "mdb_dbi_open"));
  rc = mdb_cursor_open(transaction_, database, &cursor_);
  if (rc != 0) return Fail(LmdbCallError(rc, path_, "mdb_cursor_open"));
  return {};
}

// Record by record, as far as `position`; behind the last record comes the first. Asks for the
// value although most are not needed: without, liblmdb leaves the cursor outside a key's
// duplicates. It only computes where the value lies.
Status CursorStream::StepTo(uint64_t position, MDB_val& key, MDB_val& value) {
  while (step_count_ <= position) {
    const bool is_first = !is_placed_;
    is_placed_ = true;
    int rc = mdb_cursor_get(cursor_, &key, &value, is_first ? MDB_FIRST : MDB_NEXT);
    if (rc == MDB_NOTFOUND && !is_first) rc = mdb_cursor_get(cursor_, &key, &value, MDB_FIRST);
    if (rc != 0) {
      return Fail(LmdbCallError(rc, path_, "step to position " + std::to_string(step_count_)));
    }
    ++step_count_;
  }
  return {};
}

// Caffe copies the value here; for the page faults it is enough to look at each page.
void CursorStream::Touch(const MDB_val& value) {
  // Volatile, or the compiler would drop loads that nothing uses.
  const auto* bytes = static_cast<const volatile unsigned char*>(value.mv_data);
  const uint64_t page_bytes = MemoryPageBytes();
  for (size_t i = 0; i < value.mv_size; i += page_bytes) touched_ += bytes[i];
  if (value.mv_size > 0) touched_ += bytes[value.mv_size - 1];
}

// Also counts the time of the touches that are not timed, as if they took the same on average.
void CursorStream::TouchTimed(const MDB_val& value) {
  const auto start = Clock::now();
  Touch(value);
  touch_s_ += Seconds(Clock::now() - start) * kTouchesPerTimed;
}

Status CursorStream::Gather(const BatchGroup& group, Share share, int rank, int rank_count,
                            std::vector<RecordEntry>& entries) {
  const BatchSpan first = group.first_span();
  const uint64_t share_count = ShareCount(first, share, rank, rank_count);
  if (share_count > kEntriesMax / group.batch_count) {
    return Fail(
        ErrorCode::kResourceExhausted,
        path_ + ": a batch of " + std::to_string(first.record_count) +
            " records exceeds the memory for the share of one rank; reduce global_batch_size");
  }
  entries.resize(group.batch_count * share_count);
  uint64_t gathered = 0;
  OwnedPositions owned;
  const auto start = Clock::now();
  for (uint64_t i = 0; i < group.record_count; ++i) {
    MDB_val key = {};
    MDB_val value = {};
    LMDBIO_TRY_VOID(StepTo(group.first_walk + i, key, value));
    const BatchGroup::BatchPosition place = group.PlaceOf(i, 0);
    const uint64_t position = group.PositionOf(place);
    // All batches of a group have the shares of its first one, at the same slots.
    const uint64_t in_first = group.first_position + place.slot;
    if (!owned.Contains(in_first)) owned = OwnedAround(first, in_first, share, rank_count);
    if (owned.rank != rank) continue;
    touch_count_++ % kTouchesPerTimed == 0 ? TouchTimed(value) : Touch(value);
    // The first value is the base. Differences wrap modulo 2^64, so addresses below it work too.
    if (base_ == 0) base_ = reinterpret_cast<std::uintptr_t>(value.mv_data);
    // The walk comes round to each batch in turn.
    const uint64_t at = place.batch * share_count + gathered++ / group.batch_count;
    entries[at] = {position, reinterpret_cast<std::uintptr_t>(value.mv_data) - base_,
                   reinterpret_cast<std::uintptr_t>(key.mv_data) - base_,
                   static_cast<uint32_t>(value.mv_size), static_cast<uint16_t>(key.mv_size)};
  }
  gather_s_ += Seconds(Clock::now() - start);
  return {};
}

}  // namespace

Result<std::unique_ptr<LmdbStream>> LmdbStream::Open(const std::string& data_path,
                                                     const std::string& database_name) {
  auto stream = std::make_unique<CursorStream>(data_path);
  LMDBIO_TRY_VOID(stream->OpenEnvironment());
  LMDBIO_TRY_VOID(stream->OpenCursor(database_name));
  return stream;
}

}  // namespace lmdbio::load
