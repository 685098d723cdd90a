#include "bench/loader/bench_expectation.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "bench/loader/bench_read.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/baseline/lmdb_stream.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/loader/open_decision.h"
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

// The loader derives its stream from the same facts in the same function, so both have the same
// blocks, groups and first batch.
Result<load::StreamState> StreamOf(const file::Database& database, uint64_t record_count,
                                   const load::LoaderOptions& options) {
  load::OpenDecision facts;
  facts.record_count = record_count;
  facts.page_bytes_total = load::PageBytesOf(database);
  facts.root = database.record().root;
  facts.snapshot = database.pages().snapshot();
  return load::StreamFor(facts, options);
}

// The bytes of the pages for the walk indices [begin, end), which belong to one epoch.
Result<uint64_t> PageBytesOfWalk(const file::Layout& layout, const file::Snapshot& snapshot,
                                 const load::Schedule& schedule, uint64_t begin, uint64_t end) {
  PageCounter pages(snapshot.page_count(), snapshot.page_format.page_size_bytes());
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
Result<uint64_t> PageBytesOfRun(const file::Layout& layout, const file::Snapshot& snapshot,
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
    LMDBIO_TRY(const uint64_t bytes, PageBytesOfWalk(layout, snapshot, schedule, begin, stop));
    sum += epochs * bytes;
    begin = (epoch + epochs) * n;
  }
  return sum;
}

// Keys and values of all records, as offsets in liblmdb's map.
struct RecordTable {
  std::vector<load::RecordEntry> entries;  // [records] positions are record indices
  std::uintptr_t base = 0;
};

// One group of all records for a single rank makes the cursor pass through the database once, in
// key order. The table costs an entry for each record and no values; they stay in the map.
Result<RecordTable> TabulateRecords(load::LmdbStream& stream, uint64_t record_count) {
  load::BatchGroup all;
  all.record_count = record_count;
  RecordTable table;
  LMDBIO_TRY_VOID(stream.Gather(all, load::Share::kBlock, 0, 1, table.entries));
  table.base = stream.base();
  return table;
}

}  // namespace

Result<file::Database> OpenDatabase(const file::Environment& environment, const std::string& name) {
  if (name.empty()) return environment.Main();
  return environment.Named(name);
}

Result<ReadExpectation> Expect(const std::string& data_path, const load::LoaderOptions& options) {
  if (options.global_batch_size == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "--global-batch-size 0 is out of range; give at least 1");
  }
  LMDBIO_TRY(const auto source, file::FileSource::Open(data_path));
  LMDBIO_TRY(const auto environment, file::Environment::Open(*source));
  LMDBIO_TRY(const auto database, OpenDatabase(environment, options.database_name));
  // A page walk of its own, without provenance and without the loader's locators, so an error of
  // the loader cannot hide in the expectation.
  file::LayoutBuilder builder;
  if (!database.record().empty()) LMDBIO_TRY_VOID(file::WalkDatabase(database, builder));
  const file::Layout layout = builder.Finish();
  const file::Snapshot& snapshot = environment.snapshot();
  ReadExpectation expected;
  expected.record_count = layout.record_count();
  if (expected.record_count == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the database holds no records", data_path));
  }
  if (options.tail == load::Tail::kDrop && options.global_batch_size > expected.record_count) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the batch size {} exceeds the {} records, and --tail drop drops "
                            "the incomplete batch: nothing would be left",
                            data_path, options.global_batch_size, expected.record_count));
  }
  LMDBIO_TRY(const load::StreamState stream, StreamOf(database, expected.record_count, options));
  expected.schedule = load::Schedule(stream.schedule);
  expected.bytes_per_record = load::PageBytesOf(database) / expected.record_count;
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
  LMDBIO_TRY(expected.page_bytes, PageBytesOfRun(layout, snapshot, expected));
  return expected;
}

Result<uint64_t> SerialChecksum(const std::string& data_path, const load::LoaderOptions& options) {
  LMDBIO_TRY(const ReadExpectation expected, Expect(data_path, options));
  LMDBIO_TRY(const auto stream, load::LmdbStream::Open(data_path, options.database_name));
  const load::Schedule& schedule = expected.schedule;
  LMDBIO_TRY(const RecordTable table, TabulateRecords(*stream, expected.record_count));
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
      const load::Batch one({}, table.base, std::span(table.entries).subspan(record.value, 1), 0);
      checksum += RecordChecksum(span.first_position + slot, one.key(0), one.value(0));
    }
  }
  return checksum;
}

}  // namespace lmdbio::tools
