#include "lmdbio/load/records/record_reader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {
namespace {

// How long a read waits for another thread's fetch if it cannot open one of its own.
constexpr auto kWaitLimit = std::chrono::seconds(1);

}  // namespace

// The fetches of a database that no set holds.
// Threads: any.
class FetchPool {
 public:
  static constexpr size_t kIdleMax = 16;

  explicit FetchPool(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {
    idle_.reserve(kIdleMax);  // so that GiveBack allocates nothing
  }

  RecordFile& file() { return *file_; }

  // Errors: as RecordFetch::Open. If memory or descriptors have run out, another thread may give
  // back its fetch soon. The limit is for a thread that itself holds all of them.
  Result<std::unique_ptr<RecordFetch>> Take() {
    if (auto idle = TakeIdle(std::chrono::seconds(0))) return idle;
    auto opened = RecordFetch::Open(*file_);
    if (opened || opened.error().code() != ErrorCode::kResourceExhausted) return opened;
    if (auto idle = TakeIdle(kWaitLimit)) return idle;
    return opened;
  }

  void GiveBack(std::unique_ptr<RecordFetch> fetch) noexcept {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kIdleMax) idle_.push_back(std::move(fetch));
    came_back_.notify_one();
  }

 private:
  // Null if no fetch is idle within `limit`.
  std::unique_ptr<RecordFetch> TakeIdle(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    if (!came_back_.wait_for(lock, limit, [this] { return !idle_.empty(); })) return nullptr;
    std::unique_ptr<RecordFetch> fetch = std::move(idle_.back());
    idle_.pop_back();
    return fetch;
  }

  std::unique_ptr<RecordFile> file_;  // before the fetches, which borrow it
  std::mutex mutex_;
  std::condition_variable came_back_;
  std::vector<std::unique_ptr<RecordFetch>> idle_;
};

RecordSet::RecordSet(std::shared_ptr<FetchPool> pool, std::unique_ptr<RecordFetch> fetch)
    : pool_(std::move(pool)), fetch_(std::move(fetch)) {}
RecordSet::RecordSet(RecordSet&&) noexcept = default;
RecordSet& RecordSet::operator=(RecordSet&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  pool_ = std::move(other.pool_);
  fetch_ = std::move(other.fetch_);
  return *this;
}
RecordSet::~RecordSet() { GiveBack(); }

// The fetch goes before the pool, which may be the last to hold the file.
void RecordSet::GiveBack() noexcept {
  if (fetch_) pool_->GiveBack(std::move(fetch_));
  fetch_ = nullptr;
  pool_ = nullptr;
}

RecordReader::RecordReader(std::shared_ptr<FetchPool> pool) : pool_(std::move(pool)) {}
RecordReader::~RecordReader() = default;

Result<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                         const RecordReaderOptions& options) {
  LMDBIO_TRY(auto file, RecordFile::Open(path, options));
  auto pool = std::make_shared<FetchPool>(std::move(file));
  // The first fetch opens here, so that a failure and the notes of its engine come with Open.
  LMDBIO_TRY(auto first, RecordFetch::Open(pool->file()));
  pool->GiveBack(std::move(first));
  return std::unique_ptr<RecordReader>(new RecordReader(std::move(pool)));
}

uint64_t RecordReader::record_count() const { return pool_->file().record_count(); }

Result<RecordSet> RecordReader::Read(std::span<const uint64_t> numbers) const {
  const RecordFile& file = pool_->file();
  const auto greatest = std::ranges::max_element(numbers);
  if (greatest != numbers.end() && *greatest >= file.record_count()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: record {} is out of range; expected 0 to {}", file.name(),
                            *greatest, file.record_count() - 1));
  }
  LMDBIO_TRY(auto fetch, pool_->Take());
  // A fetch that has failed is not used again: its engine may have failed for good.
  LMDBIO_TRY_VOID(fetch->Read(numbers));
  return RecordSet(pool_, std::move(fetch));
}

namespace {

// Checks the snapshot after pages were read. Returns `result`, or the reason to drop it.
template <typename T>
Result<T> Guarded(const RecordFile& file, Result<T> result) {
  if (!result) return Fail(file.guard().Explain(std::move(result).error()));
  Status holds = file.guard().AfterSlot();
  if (!holds) return Fail(file.guard().Explain(std::move(holds).error()));
  return result;
}

}  // namespace

Result<std::vector<KeyNumber>> RecordReader::Find(std::span<const Bytes> keys) const {
  RecordFile& file = pool_->file();
  const SortedKeys sorted(file.keys().database().key_order(), keys);
  return Guarded(file, file.keys().Find(sorted));
}

Result<std::vector<uint64_t>> RecordReader::CountValues(std::span<const Bytes> keys) const {
  RecordFile& file = pool_->file();
  const SortedKeys sorted(file.keys().database().key_order(), keys);
  return Guarded(file, file.keys().CountValues(sorted));
}

Status RecordReader::UseKeyIndex() {
  RecordFile& file = pool_->file();
  Status status = file.UseKeyIndex();
  return status ? Status() : Fail(file.guard().Explain(std::move(status).error()));
}

// Reads the records that the index proposes, and compares their keys. A second read is needed only
// if two keys have the same bits of their hashes.
Result<RecordSet> RecordReader::GetByIndex(const file::KeyIndex& index,
                                           std::span<const Bytes> keys) const {
  std::vector<std::vector<uint64_t>> candidates;
  candidates.reserve(keys.size());
  for (const Bytes key : keys) candidates.push_back(index.Candidates(key));
  std::vector<size_t> tries(keys.size());
  for (;;) {
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool is_left = tries[i] < candidates[i].size();
      numbers.push_back(is_left ? candidates[i][tries[i]] : kNoRecord);
    }
    LMDBIO_TRY(auto fetch, pool_->Take());
    LMDBIO_TRY_VOID(fetch->Read(numbers));
    bool is_right = true;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (numbers[i] == kNoRecord || std::ranges::equal(fetch->records()[i].key, keys[i])) continue;
      is_right = false;
      ++tries[i];
    }
    RecordSet records(pool_, std::move(fetch));
    if (is_right) return records;
  }
}

Result<RecordSet> RecordReader::Get(std::span<const Bytes> keys) const {
  RecordFile& file = pool_->file();
  if (const file::KeyIndex* const index = file.keys().index()) return GetByIndex(*index, keys);
  const SortedKeys sorted(file.keys().database().key_order(), keys);
  std::vector<uint64_t> numbers;
  const bool has_duplicates = file.keys().database().record().has_duplicates();
  if (has_duplicates) {
    // Only the locations tell where the first duplicate is, without a descent for each key.
    LMDBIO_TRY(const std::vector<KeyNumber> found, Guarded(file, file.keys().Find(sorted)));
    for (const KeyNumber& key : found) numbers.push_back(key.first);
  }
  LMDBIO_TRY(auto fetch, pool_->Take());
  LMDBIO_TRY_VOID(has_duplicates ? fetch->Read(numbers) : fetch->Get(sorted));
  return RecordSet(pool_, std::move(fetch));
}

Result<KeyList> RecordReader::ReadKeys(uint64_t first, uint64_t count) const {
  RecordFile& file = pool_->file();
  if (first > file.record_count() || count > file.record_count() - first) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} records from record {} on are out of range; there are {}",
                            file.name(), count, first, file.record_count()));
  }
  return Guarded(file, file.keys().ReadKeys(RecordIndex{first}, count));
}

std::vector<std::string> RecordReader::TakeNotes() { return pool_->file().notes().Take(); }

}  // namespace lmdbio::load
