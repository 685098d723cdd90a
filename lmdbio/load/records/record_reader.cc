#include "lmdbio/load/records/record_reader.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {

// The fetches of a database that no set holds.
// Threads: any.
class FetchPool {
 public:
  static constexpr size_t kIdleMax = 16;

  explicit FetchPool(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {
    idle_.reserve(kIdleMax);  // so that GiveBack allocates nothing
  }

  RecordFile& file() { return *file_; }

  Result<std::unique_ptr<RecordFetch>> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<RecordFetch> fetch = std::move(idle_.back());
        idle_.pop_back();
        return fetch;
      }
    }
    return RecordFetch::Open(*file_);
  }

  void GiveBack(std::unique_ptr<RecordFetch> fetch) noexcept {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kIdleMax) idle_.push_back(std::move(fetch));
  }

 private:
  std::unique_ptr<RecordFile> file_;  // before the fetches, which borrow it
  std::mutex mutex_;
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
  LMDBIO_TRY(auto first, pool->Take());
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

std::vector<std::string> RecordReader::TakeNotes() { return pool_->file().notes().Take(); }

}  // namespace lmdbio::load
