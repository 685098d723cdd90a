#include "lmdbio/load/records/record_reader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/load/view/view_files.h"

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
    : pool_(std::move(pool)), fetch_(std::move(fetch)), records_(fetch_->records()) {}
RecordSet::RecordSet(std::vector<RecordSet> parts, std::vector<RecordView> records)
    : parts_(std::move(parts)), joined_(std::move(records)), records_(joined_) {}
RecordSet::RecordSet(RecordSet&&) noexcept =
    default;  // moving a vector keeps its elements in place
RecordSet& RecordSet::operator=(RecordSet&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  pool_ = std::move(other.pool_);
  fetch_ = std::move(other.fetch_);
  parts_ = std::move(other.parts_);
  joined_ = std::move(other.joined_);
  records_ = std::exchange(other.records_, {});
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

namespace {

// Opens files, and the first fetch, so that a failure and the notes of its engine come now.
Result<std::shared_ptr<FetchPool>> OpenPool(const std::vector<DatabasePath>& list,
                                            const RecordReaderOptions& options) {
  LMDBIO_TRY(auto file, RecordFile::Open(list, options));
  auto pool = std::make_shared<FetchPool>(std::move(file));
  LMDBIO_TRY(auto first, RecordFetch::Open(pool->file()));
  pool->GiveBack(std::move(first));
  return pool;
}

// Checks the snapshot after pages were read. Returns `result`, or the reason to drop it.
template <typename T>
Result<T> Guarded(const RecordFile& file, Result<T> result) {
  if (!result) return Fail(file.guard().Explain(std::move(result).error()));
  Status holds = file.guard().AfterSlot();
  if (!holds) return Fail(file.guard().Explain(std::move(holds).error()));
  return result;
}

tl::unexpected<Error> OutOfRange(const RecordFile& file, std::string_view what, uint64_t number,
                                 uint64_t count) {
  return Fail(ErrorCode::kInvalidArgument,
              count == 0 ? fmt::format("{}: {} {} is out of range; there are none", file.name(),
                                       what, number)
                         : fmt::format("{}: {} {} is out of range; expected 0 to {}", file.name(),
                                       what, number, count - 1));
}

}  // namespace

Result<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                         const RecordReaderOptions& options,
                                                         const ViewSpec* view) {
  LMDBIO_TRY(const std::vector<DatabasePath> list, DatabasesOf(path, options.database_name));
  return Open(list, options, view);
}

Result<std::unique_ptr<RecordReader>> RecordReader::Open(const std::vector<DatabasePath>& list,
                                                         const RecordReaderOptions& options,
                                                         const ViewSpec* view) {
  LMDBIO_TRY(auto pool, OpenPool(list, options));
  std::unique_ptr<RecordReader> reader(new RecordReader(std::move(pool)));
  if (view != nullptr) LMDBIO_TRY_VOID(reader->OpenView(list, options, *view));
  return reader;
}

// The files of the view are joined with those of other fields one by one.
Status RecordReader::OpenView(const std::vector<DatabasePath>& list,
                              const RecordReaderOptions& options, const ViewSpec& spec) {
  LMDBIO_TRY_VOID(CheckView(spec));
  sources_.push_back({pool_});
  for (const ViewDatabaseName& other : spec.others) {
    const RecordFile& before = sources_.back().pool->file();
    const uint64_t first_record = sources_.back().first_record + before.record_count();
    LMDBIO_TRY(const std::vector<DatabasePath> of_field, DatabasesOfField(other, list));
    LMDBIO_TRY(auto pool, OpenPool(of_field, options));
    sources_.push_back({std::move(pool), first_record});
  }
  std::vector<std::vector<ViewDatabase>> joined(list.size());
  for (const NumberedPool& source : sources_) {
    const ListedKeys& keys = source.pool->file().keys();
    for (size_t i = 0; i < list.size(); ++i) {
      joined[i].push_back({keys.file(i).database(), source.first_record + keys.range(i).first});
    }
  }
  std::vector<std::string> notes;
  Result<View> view = View::Resolve(spec, joined, notes);
  for (const NumberedPool& source : sources_) {
    LMDBIO_TRY(view, Guarded(source.pool->file(), std::move(view)));
  }
  view_.emplace(std::move(*view));
  pool_->file().notes().Add(std::move(notes));
  return {};
}

uint64_t RecordReader::record_count() const { return pool_->file().record_count(); }
uint64_t RecordReader::sample_count() const {
  return view_ ? view_->sample_count() : record_count();
}

std::vector<uint64_t> RecordReader::RecordsOf(std::span<const uint64_t> samples) const {
  std::vector<uint64_t> records;
  records.reserve(samples.size() * field_count());
  for (const uint64_t sample : samples) {
    for (size_t field = 0; field < field_count(); ++field) {
      records.push_back(view_->RecordOf(sample, field));
    }
  }
  return records;
}

std::vector<RecordReader::OfSource> RecordReader::BySource(
    std::span<const uint64_t> records) const {
  std::vector<OfSource> by_source(sources_.size());
  for (size_t i = 0; i < records.size(); ++i) {
    size_t source = sources_.size() - 1;
    while (records[i] < sources_[source].first_record) --source;
    by_source[source].numbers.push_back(records[i] - sources_[source].first_record);
    by_source[source].places.push_back(i);
  }
  return by_source;
}

// A fetch that has failed is not used again: its engine may have failed for good.
Result<RecordSet> RecordReader::ReadFrom(const std::shared_ptr<FetchPool>& pool,
                                         std::span<const uint64_t> records) {
  LMDBIO_TRY(auto fetch, pool->Take());
  LMDBIO_TRY_VOID(fetch->Read(records));
  return RecordSet(pool, std::move(fetch));
}

Result<RecordSet> RecordReader::ReadView(std::span<const uint64_t> samples) const {
  const std::vector<uint64_t> records = RecordsOf(samples);
  if (sources_.size() == 1) return ReadFrom(pool_, records);
  const std::vector<OfSource> by_source = BySource(records);
  std::vector<RecordSet> parts;
  std::vector<RecordView> joined(records.size());
  for (size_t source = 0; source < sources_.size(); ++source) {
    if (by_source[source].numbers.empty()) continue;
    const std::shared_ptr<FetchPool>& pool = sources_[source].pool;
    LMDBIO_TRY(RecordSet part, ReadFrom(pool, by_source[source].numbers));
    for (size_t i = 0; i < by_source[source].places.size(); ++i) {
      joined[by_source[source].places[i]] = std::as_const(part)[i];
    }
    parts.push_back(std::move(part));
  }
  return RecordSet(std::move(parts), std::move(joined));
}

Result<RecordSet> RecordReader::Read(std::span<const uint64_t> numbers) const {
  const RecordFile& file = pool_->file();
  const auto greatest = std::ranges::max_element(numbers);
  if (greatest != numbers.end() && *greatest >= sample_count()) {
    return OutOfRange(file, view_ ? "sample" : "record", *greatest, sample_count());
  }
  return view_ ? ReadView(numbers) : ReadFrom(pool_, numbers);
}

Result<std::vector<KeyNumber>> RecordReader::Find(std::span<const Bytes> keys) const {
  if (view_) return FindInView(keys);
  RecordFile& file = pool_->file();
  return Guarded(file, file.keys().Find(keys));
}

// The first source in which the key is that of a sample gives the number.
Result<std::vector<KeyNumber>> RecordReader::FindInView(std::span<const Bytes> keys) const {
  std::call_once(has_samples_, [this] { samples_.emplace(*view_); });
  std::vector<KeyNumber> of_samples(keys.size());
  for (const NumberedPool& source : sources_) {
    RecordFile& file = source.pool->file();
    LMDBIO_TRY(const std::vector<KeyNumber> found, Guarded(file, file.keys().Find(keys)));
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool is_left = of_samples[i].value_count == 0;
      for (uint64_t k = 0; k < found[i].value_count && is_left; ++k) {
        const auto sample = samples_->SampleOf(source.first_record + found[i].first + k);
        if (!sample) continue;
        of_samples[i] = {*sample, 1};
        break;
      }
    }
  }
  return of_samples;
}

Result<std::vector<uint64_t>> RecordReader::CountValues(std::span<const Bytes> keys) const {
  RecordFile& file = pool_->file();
  return Guarded(file, file.keys().CountValues(keys));
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
  const bool is_single = file.files().is_single();
  const KeyLookup& first = file.keys().file(0);
  if (is_single && first.index() != nullptr) return GetByIndex(*first.index(), keys);
  std::vector<uint64_t> numbers;
  // Only the locations tell where the first duplicate is, without a descent for each key. In a
  // list, they tell the place of a record of any file.
  const bool needs_numbers = !is_single || first.database().record().has_duplicates();
  if (needs_numbers) {
    LMDBIO_TRY(const std::vector<KeyNumber> found, Guarded(file, file.keys().Find(keys)));
    for (const KeyNumber& key : found) numbers.push_back(key.first);
  }
  LMDBIO_TRY(auto fetch, pool_->Take());
  if (needs_numbers) {
    LMDBIO_TRY_VOID(fetch->Read(numbers));
  } else {
    LMDBIO_TRY_VOID(fetch->Get(SortedKeys(first.database().key_order(), keys)));
  }
  return RecordSet(pool_, std::move(fetch));
}

Result<KeyList> RecordReader::ReadKeys(uint64_t first, uint64_t count) const {
  RecordFile& file = pool_->file();
  if (first > sample_count() || count > sample_count() - first) {
    const std::string_view what = view_ ? "sample" : "record";
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} {}s from {} {} on are out of range; there are {}", file.name(),
                            count, what, what, first, sample_count()));
  }
  if (view_) return ReadKeysOfView(first, count);
  return Guarded(file, file.keys().ReadKeys(RecordIndex{first}, count));
}

// Each source reads the keys of its records in order; they are then copied to their places.
Result<KeyList> RecordReader::ReadKeysOfView(uint64_t first, uint64_t count) const {
  std::vector<uint64_t> samples(count);
  std::iota(samples.begin(), samples.end(), first);
  const std::vector<uint64_t> records = RecordsOf(samples);
  const std::vector<OfSource> by_source = BySource(records);
  std::vector<KeyList> lists(sources_.size());
  std::vector<Bytes> keys(records.size());
  for (size_t source = 0; source < sources_.size(); ++source) {
    const OfSource& wanted = by_source[source];
    std::vector<uint64_t> sorted = wanted.numbers;
    std::ranges::sort(sorted);
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    RecordFile& file = sources_[source].pool->file();
    LMDBIO_TRY(lists[source], Guarded(file, file.keys().ReadKeysOf(sorted)));
    for (size_t i = 0; i < wanted.numbers.size(); ++i) {
      const auto at = std::ranges::lower_bound(sorted, wanted.numbers[i]) - sorted.begin();
      keys[wanted.places[i]] = std::as_const(lists[source])[static_cast<size_t>(at)];
    }
  }
  KeyList all;
  for (const Bytes key : keys) all.Add(key);
  return all;
}

std::vector<std::string> RecordReader::TakeNotes() {
  std::vector<std::string> notes = pool_->file().notes().Take();
  for (const NumberedPool& source : sources_) {
    for (std::string& note : source.pool->file().notes().Take()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace lmdbio::load
