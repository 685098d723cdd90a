// Each function has the same frame: find the object of the handle, take a turn on it, call C++, and
// keep the text of an error. Results that the caller gets as pointers lie in the object, and live
// as long as lmdbio.h says. No exception leaves a function (Guarded).
#include "lmdbio/api/c/lmdbio.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lmdbio/api/c/c_options.h"
#include "lmdbio/api/c/handles.h"
#include "lmdbio/load/plan/option_text.h"

using namespace lmdbio;       // NOLINT: the whole file translates between C and C++
using namespace lmdbio::api;  // NOLINT

namespace {

// 1002003 for version 1.2.3, so that programs compare versions as numbers.
constexpr int kVersionNumber =
    LMDBIO_VERSION_MAJOR * 1000000 + LMDBIO_VERSION_MINOR * 1000 + LMDBIO_VERSION_PATCH;

lmdbio_record RecordOf(Bytes key, Bytes value, uint64_t position) {
  return {key.data(), value.data(), position, static_cast<uint32_t>(value.size()),
          static_cast<uint32_t>(key.size())};
}

// Returns the complete options of the caller, and sets the log callback of `handle`.
template <typename Handle>
Result<lmdbio_options> ReadArguments(Handle& handle, const char* path,
                                     const lmdbio_options* options) {
  if (path == nullptr) return Fail(ErrorCode::kInvalidArgument, "the path is NULL");
  // The log is set before the object opens, so it gets the notes of Open.
  LMDBIO_TRY(const lmdbio_options complete, CompleteOptions(options));
  handle.log = complete.log;
  handle.log_context = complete.log_context;
  return complete;
}

Result<load::LoaderOptions> ReadLoaderArguments(HandleState& handle, const char* path,
                                                const lmdbio_options* options) {
  LMDBIO_TRY(const lmdbio_options complete, ReadArguments(handle, path, options));
  return LoaderOptionsOf(complete);
}

// The ranks agree on the arguments before they open. Otherwise one rank would return its error
// while the other ranks wait for it.
Status OpenLoader(LoaderHandle& handle, const char* path, const lmdbio_options* c_options) {
  Result<load::LoaderOptions> options = ReadLoaderArguments(handle, path, c_options);
  Status mine = options ? Status() : Fail(options.error().Copy());
  LMDBIO_TRY_VOID(ranks::Agree(*handle.group, std::move(mine)));
  LMDBIO_TRY(handle.loader, load::Loader::Open(*handle.group, path, *options));
  handle.options = load::OptionsJson(*options);
  handle.notes = handle.loader->TakeNotes();
  return {};
}

Status OpenDataset(DatasetHandle& handle, const char* path, const lmdbio_options* c_options) {
  LMDBIO_TRY(const lmdbio_options complete, ReadArguments(handle, path, c_options));
  LMDBIO_TRY(const load::RecordReaderOptions options, RecordReaderOptionsOf(complete));
  LMDBIO_TRY(handle.reader, load::RecordReader::Open(path, options));
  handle.LogNotes();
  return {};
}

// Reads records for lmdbio_dataset_read and lmdbio_dataset_fetch. A failed read leaves the dataset
// usable.
Result<RecordsResult> ReadRecords(DatasetHandle& handle, const uint64_t* numbers, size_t count,
                                  const void* out) {
  if (out == nullptr || (numbers == nullptr && count > 0)) {
    return Fail(ErrorCode::kInvalidArgument, "numbers or an out_ argument is NULL");
  }
  auto found = handle.reader->Read({numbers, count});
  handle.LogNotes();  // after a failure too, because they may explain it
  if (!found) return Fail(std::move(found).error());
  RecordsResult result{std::move(*found), {}};
  result.records.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    result.records.push_back(RecordOf(result.set[i].key, result.set[i].value, numbers[i]));
  }
  return result;
}

// Fills the batch of the handle from the loader, and returns it to the caller.
void HandOut(LoaderHandle& handle, const lmdbio_batch** out_batch) {
  // The records are pointers into the batch; nothing is copied but 32 bytes for each.
  const load::Batch& batch = handle.loader->batch();
  const size_t count = batch.record_count();
  handle.records.resize(count);
  for (size_t i = 0; i < count; ++i) {
    handle.records[i] = RecordOf(batch.key(i), batch.value(i), batch.position(i));
  }
  handle.batch = {handle.records.data(),
                  count,
                  batch.skipped_count(),
                  batch.number(),
                  batch.epoch(),
                  batch.first_position(),
                  batch.global_record_count(),
                  batch.ends_epoch() ? 1 : 0};
  handle.has_batch = true;
  *out_batch = &handle.batch;
}

int Next(lmdbio_loader* loader, std::chrono::milliseconds limit, const lmdbio_batch** out_batch) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_batch == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_batch is NULL");
    }
    // The pointers of the last batch end here, even if this call fails. Notes are taken after a
    // failure too, because they may explain it.
    using Step = load::Loader::Step;
    handle.has_batch = false;
    const Result<Step> step = handle.loader->NextWithin(limit);
    handle.notes = handle.loader->TakeNotes();
    if (!step) return handle.Keep(step.error());
    if (*step == Step::kBatch) HandOut(handle, out_batch);
    if (*step == Step::kEnd) return LMDBIO_END;
    return *step == Step::kBatch ? LMDBIO_OK : LMDBIO_TIMEOUT;
  });
}

// Returns the status of a call after Restore or SetEpoch, and takes the notes of the loader.
int WentOn(LoaderHandle& handle, const Status& status) {
  handle.notes = handle.loader->TakeNotes();
  return status ? LMDBIO_OK : handle.Keep(status.error());
}

}  // namespace

// For liblmdbio_mpi, which makes the group. A failed group is passed on, so that a handle exists
// and has the message.
int lmdbio::api::OpenInGroup(Result<std::unique_ptr<ranks::Group>>& group, const char* path,
                             const lmdbio_options* options, lmdbio_loader** out_loader) noexcept {
  return OpenHandleInGroup<LoaderTable, LoaderHandle>(
      group, "out_loader", out_loader,
      [&](LoaderHandle& handle) { return OpenLoader(handle, path, options); });
}

const char* lmdbio_strerror(int status) {
  switch (status) {
    case LMDBIO_OK:
      return "success";
    case LMDBIO_BAD_HANDLE:
      return "no such handle";
    case LMDBIO_FORKED:
      return "opened before fork";
    case LMDBIO_END:
      return "end of the stream";
    case LMDBIO_TIMEOUT:
      return "no result within the time limit";
    // The other codes are numbers of ErrorCode, in which the C constants follow each other.
    default:
      break;
  }
  if (status < LMDBIO_INVALID_ARGUMENT || status > LMDBIO_PEER_FAILED) return "unknown status";
  return ErrorCodeName(static_cast<ErrorCode>(status)).data();  // of a literal
}

const char* lmdbio_version(int* out_number) {
  if (out_number != nullptr) *out_number = kVersionNumber;
  return LMDBIO_VERSION;
}

int lmdbio_open(const char* path, const lmdbio_options* options, lmdbio_loader** out_loader) {
  return OpenHandle<LoaderTable, LoaderHandle>(out_loader, [&](LoaderHandle& handle) -> Status {
    // A process alone; num_shards and shard_id replace ranks.
    handle.group = ranks::SoloGroup();
    return OpenLoader(handle, path, options);
  });
}

int lmdbio_next(lmdbio_loader* loader, const lmdbio_batch** out_batch) {
  return Next(loader, load::Loader::kNoLimit, out_batch);
}

int lmdbio_next_within(lmdbio_loader* loader, uint32_t limit_ms, const lmdbio_batch** out_batch) {
  return Next(loader, std::chrono::milliseconds(limit_ms), out_batch);
}

int lmdbio_copy_values(lmdbio_loader* loader, void* rows, size_t row_bytes, size_t row_count) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    const auto refuse = [&](std::string why) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, std::move(why));
    };
    if (!handle.has_batch) {
      return refuse("there is no current batch to copy; call lmdbio_next first");
    }
    // All checks come before the first byte is written, so `rows` is complete or unchanged.
    const std::vector<lmdbio_record>& records = handle.records;
    if (row_count < records.size()) {
      return refuse(fmt::format("{} records do not fit into {} rows", records.size(), row_count));
    }
    if (rows == nullptr && row_count > 0 && row_bytes > 0) return refuse("rows is NULL");
    for (const lmdbio_record& record : records) {
      if (record.value_size <= row_bytes) continue;
      return refuse(fmt::format("the value at position {} has {} bytes, but row_bytes is {}",
                                record.position, record.value_size, row_bytes));
    }
    auto* row = static_cast<std::byte*>(rows);
    for (const lmdbio_record& record : records) {
      if (record.value_size > 0) std::memcpy(row, record.value, record.value_size);
      std::fill(row + record.value_size, row + row_bytes, std::byte{0});
      row += row_bytes;
    }
    std::fill(row, row + (row_count - records.size()) * row_bytes, std::byte{0});
    return LMDBIO_OK;
  });
}

int lmdbio_save(lmdbio_loader* loader, const char** out_state) {
  // Save reads only private memory of this process, so a forked child may call it, too.
  return WithOpen<LoaderTable>(loader, AfterFork::kAllowed, [&](LoaderHandle& handle) -> int {
    if (out_state == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_state is NULL");
    handle.state = handle.loader->Save();
    *out_state = handle.state.c_str();
    return LMDBIO_OK;
  });
}

int lmdbio_restore(lmdbio_loader* loader, const char* state) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    // The loader refuses an empty state, on all ranks alike.
    handle.has_batch = false;
    return WentOn(handle, handle.loader->Restore(state == nullptr ? "" : state));
  });
}

int lmdbio_set_epoch(lmdbio_loader* loader, uint64_t epoch) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    handle.has_batch = false;
    return WentOn(handle, handle.loader->SetEpoch(epoch));
  });
}

int lmdbio_count(lmdbio_loader* loader, uint64_t* out_records, uint64_t* out_batches_per_epoch) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_records != nullptr) *out_records = handle.loader->record_count();
    if (out_batches_per_epoch != nullptr) {
      *out_batches_per_epoch = handle.loader->batches_per_epoch();
    }
    return LMDBIO_OK;
  });
}

int lmdbio_get_counters(lmdbio_loader* loader, const lmdbio_counters** out_counters) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_counters == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_counters is NULL");
    }
    const load::LoaderCounters from = handle.loader->counters();
    // The order of the fields is that of the C struct.
    handle.counters = {from.batch_count,   from.record_count,  from.skipped_count,
                       from.payload_bytes, from.epoch_count,   from.dropped_count,
                       from.wrapped_count, from.wait_s,        from.next_cpu_s,
                       from.locate_s,      from.read_s,        from.finish_s,
                       from.space_wait_s,  from.read_requests, from.bytes_read,
                       from.bytes_direct,  from.bytes_useful,  from.retry_count};
    *out_counters = &handle.counters;
    return LMDBIO_OK;
  });
}

int lmdbio_get_options(lmdbio_loader* loader, const char** out_text) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_text == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_text is NULL");
    // Written once, at Open, because the options never change.
    *out_text = handle.options.c_str();
    return LMDBIO_OK;
  });
}

int lmdbio_describe(lmdbio_loader* loader, const char** out_text) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_text == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_text is NULL");
    handle.description = handle.loader->Describe();
    *out_text = handle.description.c_str();
    return LMDBIO_OK;
  });
}

int lmdbio_pin_compute(lmdbio_loader* loader) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [](LoaderHandle& handle) -> int {
    // Pins the calling thread, and the threads that it starts later.
    const Status pinned = PinThisThread(handle.loader->placement().compute);
    return pinned ? LMDBIO_OK : handle.Keep(pinned.error());
  });
}

const char* lmdbio_message(lmdbio_loader* loader) { return MessageOf<LoaderTable>(loader); }
int lmdbio_errno(lmdbio_loader* loader) { return ErrorNumberOf<LoaderTable>(loader); }
int lmdbio_close(lmdbio_loader* loader) { return Close<LoaderTable>(loader); }

int lmdbio_dataset_open(const char* path, const lmdbio_options* options,
                        lmdbio_dataset** out_dataset) {
  return OpenHandle<DatasetTable, DatasetHandle>(
      out_dataset, [&](DatasetHandle& handle) { return OpenDataset(handle, path, options); });
}

int lmdbio_dataset_read(lmdbio_dataset* dataset, const uint64_t* numbers, size_t count,
                        const lmdbio_record** out_records) {
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    // The earlier records end first, so that their memory serves this read.
    std::optional<RecordsResult>& mine = handle.lent().read;
    mine.reset();
    auto found = ReadRecords(handle, numbers, count, out_records);
    if (!found) return handle.Keep(found.error());
    *out_records = mine.emplace(std::move(*found)).records.data();
    return LMDBIO_OK;
  });
}

int lmdbio_dataset_fetch(lmdbio_dataset* dataset, const uint64_t* numbers, size_t count,
                         lmdbio_result** out_result, const lmdbio_record** out_records) {
  if (out_result != nullptr) *out_result = nullptr;
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    auto found = ReadRecords(handle, numbers, count, out_result == nullptr ? nullptr : out_records);
    if (!found) return handle.Keep(found.error());
    const auto object = std::make_shared<ResultHandle>();
    object->result = std::make_unique<RecordsResult>(std::move(*found));
    *out_result = ResultTable::Of().Add(object);
    *out_records = object->result->records.data();
    return LMDBIO_OK;
  });
}

int lmdbio_result_close(lmdbio_result* result) { return Close<ResultTable>(result); }

int lmdbio_dataset_count(lmdbio_dataset* dataset, uint64_t* out_records) {
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    if (out_records == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_records is NULL");
    *out_records = handle.reader->record_count();
    return LMDBIO_OK;
  });
}

const char* lmdbio_dataset_message(lmdbio_dataset* dataset) {
  return MessageOf<DatasetTable>(dataset);
}
int lmdbio_dataset_errno(lmdbio_dataset* dataset) { return ErrorNumberOf<DatasetTable>(dataset); }
int lmdbio_dataset_close(lmdbio_dataset* dataset) { return Close<DatasetTable>(dataset); }
