#include "tools/bench_expectation.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/io/file_source.h"
#include "lmdbio/layout/database.h"
#include "lmdbio/layout/layout.h"
#include "lmdbio/layout/page_walk.h"
#include "lmdbio/loader/batch.h"
#include "lmdbio/loader/lmdb_stream.h"
#include "lmdbio/loader/loader_facts.h"
#include "lmdbio/order/schedule.h"
#include "tools/bench_read.h"

namespace lmdbio::tools {
namespace {

// Counts each page of records [0, limit) once.
class PageCounter final : public layout::RecordRunSink {
 public:
  PageCounter(uint64_t page_count, uint64_t page_size_bytes)
      : seen_(page_count, false), page_size_bytes_(page_size_bytes) {}

  Status Add(const layout::RecordRun& run) override {
    Count(run.leaf.value);
    Count(run.home.value);
    for (const Extent& value : run.values) {
      if (value.length_bytes == 0) continue;
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

Result<layout::Database> OpenDatabase(const layout::Environment& environment,
                                      const std::string& name) {
  if (name.empty()) return environment.Main();
  return environment.Named(name);
}

order::Schedule ScheduleOf(const layout::Database& database, uint64_t record_count,
                           const loader::LoaderOptions& options) {
  loader::LoaderFacts facts;
  facts.record_count = record_count;
  facts.page_bytes_total = loader::PageBytesOf(database);
  return loader::ScheduleFor(facts, options);
}

}  // namespace

Result<Expectation> Expect(const std::string& data_path, const loader::LoaderOptions& options) {
  if (options.batch_size == 0) return Fail(ErrorCode::kInvalidArgument, "the batch size is 0");
  LMDBIO_TRY(const auto source, io::FileSource::Open(data_path));
  LMDBIO_TRY(const auto environment, layout::Environment::Open(*source));
  LMDBIO_TRY(const auto database, OpenDatabase(environment, options.database_name));
  layout::LayoutBuilder builder;
  if (!database.record().empty()) LMDBIO_TRY_VOID(layout::WalkDatabase(database, builder));
  const layout::Layout layout = builder.Finish();
  const layout::Snapshot& snapshot = environment.snapshot();
  Expectation expected;
  expected.record_count = layout.record_count();
  if (expected.record_count == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the database holds no records", data_path));
  }
  if (options.tail == loader::Tail::kDrop && options.batch_size > expected.record_count) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a batch of {} is more than the {} records there are, and the rest "
                            "is to be dropped: nothing would be left",
                            data_path, options.batch_size, expected.record_count));
  }
  expected.schedule = ScheduleOf(database, expected.record_count, options);
  const order::Schedule& schedule = expected.schedule;
  expected.batch_count =
      options.batch_count_max > 0 ? options.batch_count_max : schedule.batches_per_epoch();
  const auto page_bytes_of = [&](uint64_t record_count) -> Result<uint64_t> {
    PageCounter pages(snapshot.page_count(), snapshot.page_format.page_size_bytes());
    LMDBIO_TRY_VOID(layout.ExpandRange({0}, record_count, {0}, pages));
    return pages.bytes();
  };
  // Where reading would go on tells how many whole epochs were read, and what of the next.
  const order::BatchGroup last = schedule.Group(expected.batch_count - 1);
  const order::BatchSpan end = schedule.Batch(last.first_batch + last.batch_count);
  const uint64_t begun = end.first_position - end.epoch * expected.record_count;
  const uint64_t whole = options.tail == loader::Tail::kDrop
                             ? schedule.batches_per_epoch() * options.batch_size
                             : expected.record_count;
  LMDBIO_TRY(const uint64_t whole_bytes, page_bytes_of(whole));
  LMDBIO_TRY(const uint64_t begun_bytes, page_bytes_of(begun));
  expected.page_bytes = end.epoch * whole_bytes + begun_bytes;
  return expected;
}

Result<uint64_t> SerialChecksum(const std::string& data_path,
                                const loader::LoaderOptions& options) {
  LMDBIO_TRY(const Expectation expected, Expect(data_path, options));
  LMDBIO_TRY(const auto stream, loader::LmdbStream::Open(data_path, options.database_name));
  const order::Schedule& schedule = expected.schedule;
  std::vector<loader::Entry> entries;
  uint64_t checksum = 0;
  for (uint64_t i = 0; i < expected.batch_count;) {
    const order::BatchGroup group = schedule.Group(i);
    LMDBIO_TRY_VOID(stream->Gather(group, options.share, 0, 1, entries));
    // The stream may end within a group.
    const uint64_t count = std::min(group.batch_count, expected.batch_count - i);
    const std::span delivered = std::span(entries).first(count * group.records_per_batch());
    const loader::Batch batches({}, stream->base(), delivered, 0);
    for (size_t r = 0; r < batches.record_count(); ++r) {
      checksum += RecordChecksum(batches.position(r), batches.key(r), batches.value(r));
    }
    i += count;
  }
  return checksum;
}

}  // namespace lmdbio::tools
