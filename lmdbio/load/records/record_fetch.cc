#include "lmdbio/load/records/record_fetch.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "lmdbio/load/kept/key_index_cache.h"
#include "lmdbio/load/kept/layout_cache.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::load {
namespace {

// The smallest memory for records.
constexpr uint64_t kMemoryBytesMin = 1 << 20;

// Makes a locator when it is first needed: a program that gets records by key needs no page walk,
// whose reads would compete with its own. Threads: any, if the locator's methods may be called so
class LazyLocator final : public Locator {
 public:
  explicit LazyLocator(std::function<std::unique_ptr<Locator>()> make) : make_(std::move(make)) {}

  Result<uint64_t> RecordCount() override { return Made().RecordCount(); }
  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    return Made().Locate(first, count, sink);
  }
  Status VisitRuns(RecordRange range,
                   const std::function<void(const file::RunLocation&)>& visit) override {
    return Made().VisitRuns(range, visit);
  }

 private:
  Locator& Made() {
    std::call_once(once_, [this] { made_ = make_(); });
    return *made_;
  }

  std::function<std::unique_ptr<Locator>()> make_;
  std::once_flag once_;
  std::unique_ptr<Locator> made_;
};

}  // namespace

bool SharedLeafCache::Has(const Extent& file) const {
  const std::shared_lock lock(mutex_);
  return cache_.Has(file);
}

void SharedLeafCache::CopyTo(std::span<const PlannedExtent> had, MutableBytes pages) const {
  const std::shared_lock lock(mutex_);
  cache_.CopyTo(had, pages);
}

void SharedLeafCache::Keep(const Extent& file, Bytes bytes) {
  const std::unique_lock lock(mutex_);
  cache_.Keep(file, bytes);
}

Result<std::unique_ptr<RecordFile>> RecordFile::Open(const std::vector<DatabasePath>& list,
                                                     const RecordReaderOptions& options) {
  LMDBIO_TRY_VOID(CheckReads(options.queue_depth, options.block_bytes));
  LMDBIO_TRY(std::unique_ptr<OpenedFiles> files,
             OpenedFiles::Open(list, {options.snapshot, options.open_files_max}));
  std::unique_ptr<RecordFile> file(new RecordFile(options, std::move(files)));
  LMDBIO_TRY_VOID(file->Prepare());
  return file;
}

Status RecordFile::Prepare() {
  const bool is_single = files_->is_single();
  locator_ = is_single ? MakeLocator(files_->database(0)) : MakeListLocator();
  for (size_t i = 0; i < files_->file_count(); ++i) {
    const file::Database& database = files_->database(i);
    LMDBIO_TRY(const uint64_t count, files_->CountRecords(i));
    if (!is_single) {
      of_files_.push_back(MakeFileLocator(*locator_, {record_count_, count}, files_->first_page(i),
                                          database.pages().page_format().page_size_bytes()));
    }
    Locator& locator = is_single ? *locator_ : *of_files_.back();
    keys_.Add(std::make_unique<KeyLookup>(database, locator), count);
    record_count_ += count;
  }
  return {};
}

void RecordFile::NoteOf(const Error& error) {
  if (error.code() == ErrorCode::kNotFound) return;  // absent files are normal
  notes_.Add(error.message() + ": using a page walk instead");
}

// By provenance, or by a kept layout.
Result<std::optional<file::Layout>> RecordFile::FindLayout(const file::Database& database) {
  Result<file::Layout> layout = LayoutFromProvenance(database, ProvenancePathOf(database));
  if (layout) return std::move(*layout);
  if (const auto cache = LayoutCache::Of(options_.layout_cache)) {
    Result<file::Layout> kept = cache->Find(database);
    if (kept) return std::move(*kept);
    NoteOf(kept.error());
  }
  NoteOf(layout.error());
  return std::nullopt;
}

// Keeps the layout of a page walk.
std::function<void(const FinishedWalk&)> RecordFile::Keeping(const file::Database& database) {
  const std::optional<LayoutCache> cache = LayoutCache::Of(options_.layout_cache);
  if (!cache) return {};
  return [this, database, cache](const FinishedWalk& walked) {
    const Status written = cache->Keep(database, walked);
    if (auto words = cache->NoteOf(written)) notes_.Add(std::move(*words));
  };
}

std::unique_ptr<Locator> RecordFile::MakeLocator(const file::Database& database) {
  Result<std::optional<file::Layout>> layout = FindLayout(database);
  if (layout && *layout) return MakeLayoutLocator(std::move(**layout));
  const ScanOptions scan{.on_walked = Keeping(database)};
  return std::make_unique<LazyLocator>(
      [database, scan] { return MakeScanLocator(database, nullptr, nullptr, scan); });
}

std::unique_ptr<Locator> RecordFile::MakeListLocator() {
  return std::make_unique<LazyLocator>([this] {
    std::vector<ScanFile> scans;
    for (size_t i = 0; i < files_->file_count(); ++i) {
      const file::Database& database = files_->database(i);
      scans.push_back({database, files_->first_page(i),
                       [this, &database] { return FindLayout(database); }, Keeping(database)});
    }
    return MakeScanLocator(std::move(scans), nullptr, nullptr);
  });
}

Status RecordFile::UseKeyIndex() {
  for (size_t i = 0; i < files_->file_count(); ++i) LMDBIO_TRY_VOID(UseKeyIndexOf(i));
  return {};
}

Status RecordFile::UseKeyIndexOf(size_t file) {
  KeyLookup& keys = keys_.file(file);
  if (keys.index() != nullptr) return {};
  const uint64_t record_count = keys_.range(file).count;
  const file::Database& database = keys.database();
  const std::optional<KeptFolder> folder = KeptFolder::Of(options_.layout_cache);
  std::optional<KeyIndexCache> cache;
  if (folder) cache.emplace(*folder);
  if (cache) {
    Result<file::KeyIndex> kept = cache->Find(database, record_count);
    if (kept) {
      keys.UseIndex(std::move(*kept));
      return {};
    }
    if (kept.error().code() != ErrorCode::kNotFound) {
      notes_.Add(kept.error().message() + ": making a new key index");
    }
  }
  std::vector<PageNo> leaves;
  LMDBIO_TRY(file::KeyIndex index, keys.BuildIndex(record_count, leaves));
  LMDBIO_TRY_VOID(guard().file(file).AfterSlot());
  // A small database is read in a few milliseconds.
  if (cache && leaves.size() >= LayoutCache::kLeafPagesMin) {
    const Status kept = cache->Keep(database, leaves, index);
    if (auto words = cache->NoteOf(kept)) notes_.Add(std::move(*words));
  }
  keys.UseIndex(std::move(index));
  return {};
}

ReadPlanOptions RecordFile::plan_options() const {
  ReadPlanOptions plan;
  plan.page_format = files_->pages().page_format();
  plan.file_size_bytes = files_->end_bytes();
  plan.block_bytes_max = options_.block_bytes;
  return plan;
}

Result<std::unique_ptr<file::BlockEngine>> RecordFile::OpenEngine() const {
  // No read-ahead: the wanted records lie anywhere.
  return files_->OpenEngine({options_.engine, options_.cache, options_.queue_depth, {}, false});
}

Result<std::unique_ptr<RecordFetch>> RecordFetch::Open(RecordFile& file) {
  std::unique_ptr<RecordFetch> fetch(new RecordFetch(file));
  LMDBIO_TRY(fetch->engine_, file.OpenEngine());
  file.notes().Add(fetch->engine_->TakeNotes());
  return fetch;
}

// Plans each record once, in key order. Consecutive records are located together.
Status RecordFetch::Plan() {
  plan_.Clear();
  for (size_t i = 0; i < sorted_.size();) {
    size_t end = i + 1;
    while (end < sorted_.size() && sorted_[end] == sorted_[end - 1] + 1) ++end;
    LMDBIO_TRY_VOID(file_.Locate(RecordIndex{sorted_[i]}, end - i, plan_));
    i = end;
  }
  plan_.Finish();
  BlockCut cut;
  cut.has_leaf = [this](const Extent& file) { return file_.leaves().Has(file); };
  plan_.CutBlocks(cut);
  return {};
}

// Plans the record of a key that was found on a leaf page.
Status RecordFetch::PlanKey(const file::FoundLeaf& leaf, uint32_t node) {
  const file::PageReader& pages = file_.files().database(0).pages();
  const file::LeafEntry entry = leaf.page.Entry(node);
  Extent value{leaf.page_no.value * pages.page_format().page_size_bytes() + entry.data_offset,
               entry.value_bytes};
  if (entry.flags == file::kOverflowNode) {
    LMDBIO_TRY(value, pages.OverflowExtent(leaf.page_no, leaf.page, entry));
  }
  const file::RecordRun run{{},           leaf.page_no,         node, file::RunKind::kNodes,
                            leaf.page_no, std::span(&value, 1), {}};
  return plan_.Add(run);
}

// The search has read the leaf pages, so only the values are left to read.
Status RecordFetch::PlanKeys(std::span<const Bytes> keys) {
  plan_.Clear();
  LMDBIO_TRY_VOID(file_.keys().file(0).Search(keys, [&](const file::FoundLeaf& leaf) -> Status {
    pages_.Add(leaf.page_no, leaf.bytes);
    for (const file::KeyHit& hit : leaf.hits) {
      sorted_.push_back(hit.key);
      LMDBIO_TRY_VOID(PlanKey(leaf, hit.node));
    }
    return {};
  }));
  plan_.Finish();
  BlockCut cut;
  cut.has_leaf = [this](const Extent& file) { return pages_.Has(file); };
  plan_.CutBlocks(cut);
  return {};
}

// A leaf page that was read again, along with values, may have changed since the search.
Status RecordFetch::CheckKeys(std::span<const Bytes> keys) const {
  for (size_t i = 0; i < found_.size(); ++i) {
    if (std::ranges::equal(found_[i].key, keys[sorted_[i]])) continue;
    return file_.checker().pages().Corrupt(plan_.runs()[i].leaf,
                                           "a node has another key than a moment before");
  }
  return {};
}

Status RecordFetch::Fetch() {
  // The memory at least doubles, so few calls allocate. The old memory goes first, because nothing
  // in it is needed.
  const uint64_t have_bytes = memory_ ? memory_->bytes().size() : 0;
  if (have_bytes < plan_.buffer_bytes()) {
    memory_.reset();
    const uint64_t bytes = std::max({plan_.buffer_bytes(), 2 * have_bytes, kMemoryBytesMin});
    LMDBIO_TRY(memory_, ranks::AllocateAnonymous(bytes));
  }
  if (!plan_.had().empty()) {
    if (pages_.empty()) {
      file_.leaves().CopyTo(plan_.had(), memory_->bytes());
    } else {
      pages_.CopyTo(plan_.had(), memory_->bytes());
    }
  }
  return FetchBlocks();
}

Status RecordFetch::FetchBlocks() {
  const std::span<const PlannedBlock> blocks = plan_.blocks();
  std::vector<file::BlockRead> reads;
  reads.reserve(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [offset, length_bytes] = blocks[i].file;
    reads.push_back({offset, memory_->bytes().subspan(blocks[i].at, length_bytes), i});
  }
  LMDBIO_TRY_VOID(engine_->Start(reads));
  Status status;
  while (engine_->outstanding() > 0) {  // also after a failure, as the other reads use our memory
    LMDBIO_TRY(const std::span<file::BlockDone> done, engine_->WaitSome());
    for (file::BlockDone& block : done) {
      if (!block.status && status) status = std::move(block.status);
    }
  }
  file_.notes().Add(engine_->TakeNotes());
  if (!status) return status;
  for (const PlannedBlock& block : blocks) {
    if (!block.is_leaf) continue;
    file_.leaves().Keep(block.file, memory_->bytes().subspan(block.at, block.file.length_bytes));
  }
  return {};
}

Result<RecordView> RecordFetch::CheckRecord(const PlannedRun& run, const file::LeafPage& leaf,
                                            uint64_t into_run) const {
  const RecordChecker& checker = file_.checker();
  const PlannedValue& value = plan_.values()[run.first_value + into_run];
  LMDBIO_TRY(const file::LeafEntry entry, checker.EntryOf(run, leaf, into_run, value.file));
  const Bytes bytes = memory_->bytes();
  if (entry.flags == file::kOverflowNode) LMDBIO_TRY_VOID(checker.CheckHead(value, bytes));
  return RecordView{entry.key, bytes.subspan(value.at, value.file.length_bytes)};
}

Status RecordFetch::Check() {
  // The snapshot comes before the pages: a writer may have reused pages after they were planned.
  LMDBIO_TRY_VOID(file_.guard().AfterSlot());
  found_.clear();
  for (const PlannedRun& run : plan_.runs()) {
    LMDBIO_TRY(const file::LeafPage leaf, file_.checker().OpenRun(run, memory_->bytes()));
    for (uint64_t i = 0; i < run.record_count; ++i) {
      LMDBIO_TRY(const RecordView record, CheckRecord(run, leaf, i));
      found_.push_back(record);
    }
  }
  return {};
}

Status RecordFetch::Read(std::span<const uint64_t> numbers) {
  records_.clear();
  pages_.Clear();
  sorted_.assign(numbers.begin(), numbers.end());
  std::sort(sorted_.begin(), sorted_.end());
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
  if (!sorted_.empty() && sorted_.back() == kNoRecord) sorted_.pop_back();
  Status status = Plan();
  if (status) status = Fetch();
  if (status) status = Check();
  if (!status) return Fail(file_.guard().Explain(std::move(status).error()));
  for (const uint64_t number : numbers) {
    // `found_` is in the order of `sorted_`, so the index of a number is that of its record.
    const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), number);
    const bool is_found = at != sorted_.end();  // else it is kNoRecord
    records_.push_back(is_found ? found_[static_cast<size_t>(at - sorted_.begin())] : RecordView());
  }
  return {};
}

Status RecordFetch::Get(const SortedKeys& keys) {
  records_.clear();
  pages_.Clear();
  sorted_.clear();
  Status status = PlanKeys(keys.keys());
  if (status) status = Fetch();
  if (status) status = Check();
  if (status) status = CheckKeys(keys.keys());
  if (!status) return Fail(file_.guard().Explain(std::move(status).error()));
  std::vector<RecordView> of_keys(keys.keys().size());
  for (size_t i = 0; i < found_.size(); ++i) of_keys[sorted_[i]] = found_[i];
  records_ = keys.InWantedOrder(of_keys);
  return {};
}

}  // namespace lmdbio::load
