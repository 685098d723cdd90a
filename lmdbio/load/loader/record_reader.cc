#include "lmdbio/load/loader/record_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::load {
namespace {

// The smallest memory for records.
constexpr uint64_t kMemoryBytesMin = 1 << 20;

}  // namespace

Result<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                         const RecordReaderOptions& options) {
  LMDBIO_TRY_VOID(CheckReads(options.queue_depth, options.block_bytes));
  LMDBIO_TRY(const std::string data_path, file::FindDataFile(path));
  LMDBIO_TRY(std::unique_ptr<file::FileSource> source, file::FileSource::Open(data_path));
  LMDBIO_TRY(SnapshotGuard guard, SnapshotGuard::Open(*source, options.snapshot));
  std::unique_ptr<RecordReader> reader(new RecordReader(std::move(source), std::move(guard)));
  LMDBIO_TRY_VOID(reader->Prepare(data_path, options));
  return reader;
}

Status RecordReader::Prepare(const std::string& data_path, const RecordReaderOptions& options) {
  const file::Environment& environment = guard_.environment();
  file::Database database = environment.Main();
  if (!options.database_name.empty()) {
    LMDBIO_TRY(database, environment.Named(options.database_name));
  }
  LMDBIO_TRY(record_count_, CountRecords(database));
  Result<file::Layout> layout = LayoutFromProvenance(database, ProvenancePathOf(database));
  if (layout) {
    locator_ = MakeLayoutLocator(std::move(*layout));
  } else {
    if (layout.error().code() != ErrorCode::kNotFound) {
      notes_.push_back(layout.error().message() + ": using a page walk instead");
    }
    locator_ = MakeScanLocator(database, nullptr, nullptr);
  }
  ReadPlanOptions plan;
  plan.page_format = environment.snapshot().page_format;
  plan.file_size_bytes = environment.snapshot().file_size_bytes;
  plan.block_bytes_max = options.block_bytes;
  plan_.emplace(plan);
  // No read-ahead: the wanted records lie anywhere.
  LMDBIO_TRY(engine_,
             file::OpenBlockEngine(
                 data_path, {options.engine, options.cache, options.queue_depth, {}, false}));
  return {};
}

Status RecordReader::CheckNumbers(std::span<const uint64_t> numbers) {
  sorted_.assign(numbers.begin(), numbers.end());
  std::sort(sorted_.begin(), sorted_.end());
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
  if (!sorted_.empty() && sorted_.back() >= record_count_) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: record {} is out of range; expected 0 to {}", source_->name(),
                            sorted_.back(), record_count_ - 1));
  }
  return {};
}

// Plans each record once, in key order. Consecutive records are located together.
Status RecordReader::Plan() {
  plan_->Clear();
  for (size_t i = 0; i < sorted_.size();) {
    size_t end = i + 1;
    while (end < sorted_.size() && sorted_[end] == sorted_[end - 1] + 1) ++end;
    LMDBIO_TRY_VOID(locator_->Locate(RecordIndex{sorted_[i]}, end - i, *plan_));
    i = end;
  }
  plan_->Finish();
  BlockCut cut;
  cut.has_leaf = [this](const Extent& file) { return leaves_.Has(file); };
  plan_->CutBlocks(cut);
  return {};
}

Status RecordReader::Fetch() {
  // The memory at least doubles, so few calls allocate. The old memory goes first, because nothing
  // in it is needed.
  const uint64_t have_bytes = memory_ ? memory_->bytes().size() : 0;
  if (have_bytes < plan_->buffer_bytes()) {
    memory_.reset();
    const uint64_t bytes = std::max({plan_->buffer_bytes(), 2 * have_bytes, kMemoryBytesMin});
    LMDBIO_TRY(memory_, ranks::AllocateAnonymous(bytes));
  }
  if (!plan_->had().empty()) leaves_.CopyTo(plan_->had(), memory_->bytes());
  return FetchBlocks();
}

Status RecordReader::FetchBlocks() {
  const std::span<const PlannedBlock> blocks = plan_->blocks();
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
  if (!status) return status;
  for (const PlannedBlock& block : blocks) {
    if (!block.is_leaf) continue;
    leaves_.Keep(block.file, memory_->bytes().subspan(block.at, block.file.length_bytes));
  }
  return {};
}

Result<RecordView> RecordReader::CheckRecord(const PlannedRun& run, const file::LeafPage& leaf,
                                             uint64_t into_run) const {
  const PlannedValue& value = plan_->values()[run.first_value + into_run];
  LMDBIO_TRY(const file::LeafEntry entry, checker_.EntryOf(run, leaf, into_run, value.file));
  const Bytes bytes = memory_->bytes();
  if (entry.flags == file::kOverflowNode) LMDBIO_TRY_VOID(checker_.CheckHead(value, bytes));
  return RecordView{entry.key, bytes.subspan(value.at, value.file.length_bytes)};
}

Status RecordReader::Check() {
  // The snapshot comes before the pages: a writer may have reused pages after they were planned.
  LMDBIO_TRY_VOID(guard_.AfterSlot());
  found_.clear();
  for (const PlannedRun& run : plan_->runs()) {
    LMDBIO_TRY(const file::LeafPage leaf, checker_.OpenRun(run, memory_->bytes()));
    for (uint64_t i = 0; i < run.record_count; ++i) {
      LMDBIO_TRY(const RecordView record, CheckRecord(run, leaf, i));
      found_.push_back(record);
    }
  }
  return {};
}

Result<std::span<const RecordView>> RecordReader::Read(std::span<const uint64_t> numbers) {
  result_.clear();
  LMDBIO_TRY_VOID(CheckNumbers(numbers));
  Status status = Plan();
  if (status) status = Fetch();
  if (status) status = Check();
  if (!status) return Fail(guard_.Explain(std::move(status).error()));
  for (const uint64_t number : numbers) {
    // `found_` is in the order of `sorted_`, so the index of a number is that of its record.
    const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), number);
    result_.push_back(found_[static_cast<size_t>(at - sorted_.begin())]);
  }
  return result_;
}

std::vector<std::string> RecordReader::TakeNotes() {
  std::vector<std::string> notes = std::exchange(notes_, {});
  for (std::string& note : engine_->TakeNotes()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace lmdbio::load
