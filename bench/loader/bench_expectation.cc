#include "bench/loader/bench_expectation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/loader/bench_read.h"
#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/baseline/lmdb_stream.h"
#include "lmdbio/load/files/file_listing.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/order/schedule.h"

namespace lmdbio::tools {
namespace {

// Counts each page of the records [0, limit) once.
class PageCounter final : public file::RecordRunSink {
 public:
  PageCounter(uint64_t page_count, uint64_t page_size_bytes)
      : seen_(page_count, false), page_size_bytes_(page_size_bytes) {}

  // A record needs the leaf with its key, the page that holds its node or item, and the pages of a
  // large value. Branch pages do not count, because the rate is that of the records.
  Status Add(const file::RecordRun& run) override {
    Count(run.leaf.value);
    Count(run.home.value);
    for (const Extent& value : run.values) {
      if (value.length_bytes == 0) continue;
      // A large value begins behind the header of its first overflow page. So its extent touches
      // every page of the run that holds data.
      const uint64_t last = (value.offset + value.length_bytes - 1) / page_size_bytes_;
      for (uint64_t page = value.offset / page_size_bytes_; page <= last; ++page) Count(page);
    }
    return {};
  }
  uint64_t bytes() const { return count_ * page_size_bytes_; }

 private:
  void Count(uint64_t page) {
    if (seen_[page]) return;
    seen_[page] = true;
    ++count_;
  }

  std::vector<bool> seen_;
  uint64_t page_size_bytes_;
  uint64_t count_ = 0;
};

uint64_t PageBytesOf(const load::OpenedFiles& files) {
  uint64_t sum = 0;
  for (size_t i = 0; i < files.file_count(); ++i) sum += load::PageBytesOf(files.database(i));
  return sum;
}

// The loader derives its stream from the same facts in the same function, so both have the same
// blocks, groups and first batch.
Result<load::StreamState> StreamOf(const load::OpenedFiles& files,
                                   const std::vector<load::DatabasePath>& list,
                                   uint64_t record_count, const load::LoaderOptions& options) {
  load::OpenDecision facts;
  facts.record_count = record_count;
  facts.page_bytes_total = PageBytesOf(files);
  facts.root = files.database(0).record().root;
  facts.snapshot = files.snapshot(0);
  load::FileListing listing;
  if (!files.is_single()) {
    LMDBIO_TRY(listing, load::ListingOf(files, list));
  }
  return load::StreamFor(facts, options, listing.files);
}

// The layout of all files, by a page walk of each.
Result<file::Layout> WalkFiles(const load::OpenedFiles& files) {
  const uint64_t page_bytes = files.pages().page_format().page_size_bytes();
  file::LayoutBuilder builder;
  for (size_t i = 0; i < files.file_count(); ++i) {
    if (files.database(i).record().empty()) continue;
    const uint64_t first = files.first_page(i).value;
    file::ShiftedRuns shifted(builder, {builder.record_count(), first, first * page_bytes});
    LMDBIO_TRY_VOID(file::WalkDatabase(files.database(i), shifted));
  }
  return builder.Finish();
}

// The pages of all files, under one numbering.
struct PageSpace {
  uint64_t page_count = 0;
  uint64_t page_bytes = 0;
};

// The bytes of the pages for the walk indices [begin, end), which belong to one epoch.
Result<uint64_t> PageBytesOfWalk(const file::Layout& layout, const PageSpace& space,
                                 const load::Schedule& schedule, uint64_t begin, uint64_t end) {
  PageCounter pages(space.page_count, space.page_bytes);
  const load::EpochWalk walk = schedule.WalkOf(begin);
  // The walk yields runs of consecutive records: long ones in file order, single records in a
  // shuffled one. Each run costs one search in the layout.
  for (uint64_t place = begin; place < end;) {
    const load::WalkRun run = walk.RunAt(schedule.IntoEpoch(place), end - place);
    LMDBIO_TRY_VOID(layout.ExpandRange(run.first, run.count, {0}, pages));
    place += run.count;
  }
  return pages.bytes();
}

// The page bytes of a run of several epochs. Whole epochs read the same pages, so one of them is
// counted and multiplied. The first and the last epoch may be partial and are counted separately.
Result<uint64_t> PageBytesOfRun(const file::Layout& layout, const PageSpace& space,
                                const ReadExpectation& expected) {
  const load::Schedule& schedule = expected.schedule;
  const uint64_t n = expected.record_count;
  uint64_t begin = schedule.Group(expected.first_batch).first_walk;
  const load::BatchGroup last = schedule.Group(expected.batch_end - 1);
  const uint64_t end = last.first_walk + last.record_count;
  const bool drops = schedule.options().tail == load::Tail::kDrop;
  const uint64_t an_epoch = drops ? n / schedule.batch_size() * schedule.batch_size() : n;
  uint64_t sum = 0;
  while (begin < end) {
    // From the begin of a whole epoch, counts one epoch and skips as many as are complete.
    const uint64_t epoch = begin / n;
    const bool is_whole = begin % n == 0 && epoch * n + an_epoch <= end;
    const uint64_t epochs = is_whole ? std::max<uint64_t>(1, (end - begin) / n) : 1;
    const uint64_t stop = std::min(epoch * n + an_epoch, end);
    LMDBIO_TRY(const uint64_t bytes, PageBytesOfWalk(layout, space, schedule, begin, stop));
    sum += epochs * bytes;
    begin = (epoch + epochs) * n;
  }
  return sum;
}

// Keys and values of the records of a file, as offsets in liblmdb's map.
struct RecordTable {
  std::vector<load::RecordEntry> entries;  // [records] positions are record indices
  std::uintptr_t base = 0;
  std::unique_ptr<load::LmdbStream> stream;  // holds the map
  uint64_t first_record = 0;                 // among those of all files
};

// One group of all records for a single rank makes the cursor pass through the database once, in
// key order. The table costs an entry for each record and no values; they stay in the map.
Result<RecordTable> TabulateRecords(const load::DatabasePath& path) {
  RecordTable table;
  LMDBIO_TRY(const std::string data_path, file::FindDataFile(path.path));
  LMDBIO_TRY(const auto source, file::FileSource::Open(data_path));
  LMDBIO_TRY(const auto environment, file::Environment::Open(*source));
  LMDBIO_TRY(const auto database, OpenDatabase(environment, path.database_name));
  load::BatchGroup all;
  LMDBIO_TRY(all.record_count, load::CountRecords(database));
  LMDBIO_TRY(table.stream, load::LmdbStream::Open(data_path, path.database_name));
  if (all.record_count > 0) {
    LMDBIO_TRY_VOID(table.stream->Gather(all, load::Share::kBlock, 0, 1, table.entries));
  }
  table.base = table.stream->base();
  return table;
}

Result<std::vector<RecordTable>> TabulateFiles(const std::vector<load::DatabasePath>& list) {
  std::vector<RecordTable> tables;
  uint64_t count = 0;
  for (const load::DatabasePath& path : list) {
    LMDBIO_TRY(RecordTable table, TabulateRecords(path));
    table.first_record = count;
    count += table.entries.size();
    tables.push_back(std::move(table));
  }
  return tables;
}

// The table with a record, which comes last of those that begin at it or before.
const RecordTable& TableOf(const std::vector<RecordTable>& tables, uint64_t record) {
  const auto after = std::ranges::upper_bound(tables, record, {}, &RecordTable::first_record);
  return *(after - 1);
}

}  // namespace

Result<file::Database> OpenDatabase(const file::Environment& environment, const std::string& name) {
  if (name.empty()) return environment.Main();
  return environment.Named(name);
}

Result<ReadExpectation> Expect(const std::vector<load::DatabasePath>& list,
                               const load::LoaderOptions& options) {
  const std::string name = load::NameOfList(list);
  if (options.global_batch_size == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "--global-batch-size 0 is out of range; give at least 1");
  }
  LMDBIO_TRY(const auto files,
             load::OpenedFiles::Open(list, {.open_files_max = options.open_files_max}));
  // A page walk of its own, without provenance and without the loader's locators, so an error of
  // the loader cannot hide in the expectation.
  LMDBIO_TRY(const file::Layout layout, WalkFiles(*files));
  const file::PageFormat format = files->pages().page_format();
  const PageSpace space{format.PagesBefore(files->end_bytes()), format.page_size_bytes()};
  ReadExpectation expected;
  expected.file_count = list.size();
  expected.record_count = layout.record_count();
  if (expected.record_count == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the database holds no records", name));
  }
  if (options.tail == load::Tail::kDrop && options.global_batch_size > expected.record_count) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the batch size {} exceeds the {} records, and --tail drop drops "
                            "the incomplete batch: nothing would be left",
                            name, options.global_batch_size, expected.record_count));
  }
  LMDBIO_TRY(const load::StreamState stream,
             StreamOf(*files, list, expected.record_count, options));
  expected.schedule = load::Schedule(stream.schedule);
  expected.bytes_per_record = PageBytesOf(*files) / expected.record_count;
  expected.first_batch = stream.next_batch;
  expected.batch_end = options.max_batches > 0
                           ? options.max_batches
                           : stream.next_batch + expected.schedule.batches_per_epoch();
  // Batch numbers count from the begin of the stream, so a restored stream may have passed the
  // requested end already.
  if (expected.batch_end <= expected.first_batch) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "the stream of --state is at batch {} already, but --max-batches is {}; raise it",
            expected.first_batch, expected.batch_end));
  }
  LMDBIO_TRY(expected.page_bytes, PageBytesOfRun(layout, space, expected));
  return expected;
}

Result<uint64_t> SerialChecksum(const std::vector<load::DatabasePath>& list,
                                const load::LoaderOptions& options) {
  LMDBIO_TRY(const ReadExpectation expected, Expect(list, options));
  const load::Schedule& schedule = expected.schedule;
  LMDBIO_TRY(const std::vector<RecordTable> tables, TabulateFiles(list));
  uint64_t checksum = 0;
  for (uint64_t number = expected.first_batch; number < expected.batch_end; ++number) {
    const load::BatchSpan span = schedule.Batch(number);
    const load::BatchGroup group = schedule.Group(number);
    std::optional<load::EpochWalk> walk;
    for (uint64_t slot = 0; slot < span.record_count; ++slot) {
      const uint64_t place =
          group.first_walk + group.WalkIndexOf({number - group.first_batch, slot});
      // A batch may cross from one epoch into the next. The walk of an epoch takes about as long to
      // construct as to find a record, so it is kept as long as the epoch lasts.
      if (!walk || walk->epoch() != place / expected.record_count) walk = schedule.WalkOf(place);
      const RecordIndex record = walk->RecordAt(schedule.IntoEpoch(place));
      // A batch of one entry of the table gives access to the bytes in the map. Its own position is
      // the record index, so the position in the stream is passed separately.
      const RecordTable& table = TableOf(tables, record.value);
      const auto entry = std::span(table.entries).subspan(record.value - table.first_record, 1);
      const load::Batch one({}, table.base, entry, 0);
      checksum += RecordChecksum(span.first_position + slot, one.key(0), one.value(0));
    }
  }
  return checksum;
}

}  // namespace lmdbio::tools
