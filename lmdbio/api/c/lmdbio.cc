// Each function has the same frame: find the object of the handle, call C++, and keep the text of
// an error. Results that the caller gets as pointers lie in the object, for each thread, and live
// as long as lmdbio.h says. No exception leaves a function (Guarded).
#include "lmdbio/api/c/lmdbio.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "lmdbio/api/c/c_options.h"
#include "lmdbio/api/c/handles.h"
#include "lmdbio/load/plan/option_text.h"

using namespace lmdbio;       // NOLINT: the whole file translates between C and C++
using namespace lmdbio::api;  // NOLINT

namespace {

// 1002003 for version 1.2.3, so that programs compare versions as numbers.
constexpr int kVersionNumber =
    LMDBIO_VERSION_MAJOR * 1000000 + LMDBIO_VERSION_MINOR * 1000 + LMDBIO_VERSION_PATCH;

constexpr const char* kOnDeviceWords = "the values of this result lie on a GPU";

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
  handle.log = {complete.log, complete.log_context};
  return complete;
}

struct LoaderArguments {
  load::LoaderOptions options;
  std::shared_ptr<const load::ViewSpec> view;
};

Result<LoaderArguments> ReadLoaderArguments(LoaderHandle& handle, const char* path,
                                            const lmdbio_options* options) {
  LMDBIO_TRY(const lmdbio_options complete, ReadArguments(handle, path, options));
  LoaderArguments arguments;
  LMDBIO_TRY(arguments.options, LoaderOptionsOf(complete));
  LMDBIO_TRY(arguments.view, ViewSpecOf(complete));
  return arguments;
}

// Opens a loader with `open`, which gets the agreed arguments and returns a loader. The ranks agree
// on the arguments before they open. Otherwise one rank would return its error while the other
// ranks wait for it.
template <typename Open>
Status OpenLoader(LoaderHandle& handle, const Result<LoaderArguments>& given, Open&& open) {
  Status mine = given ? Status() : Fail(given.error().Copy());
  LMDBIO_TRY_VOID(ranks::Agree(*handle.group, std::move(mine)));
  LMDBIO_TRY(handle.loader, open(*given));
  handle.options = load::OptionsJson(given->options);
  handle.LogNotes();
  return {};
}

Status OpenLoader(LoaderHandle& handle, const char* path, const lmdbio_options* c_options) {
  return OpenLoader(handle, ReadLoaderArguments(handle, path, c_options),
                    [&](const LoaderArguments& given) {
                      return load::Loader::Open(*handle.group, path, given.options, given.view);
                    });
}

Status OpenLoader(LoaderHandle& handle, const lmdbio_files* files,
                  const lmdbio_options* c_options) {
  std::vector<load::DatabasePath> list;
  const auto read = [&]() -> Result<LoaderArguments> {
    LMDBIO_TRY(LoaderArguments arguments, ReadLoaderArguments(handle, "", c_options));
    LMDBIO_TRY(list, ListOf(files, arguments.options.database_name));
    return arguments;
  };
  return OpenLoader(handle, read(), [&](const LoaderArguments& given) {
    return load::Loader::Open(*handle.group, list, given.options, given.view);
  });
}

Status OpenDataset(DatasetHandle& handle, const char* path, const lmdbio_options* c_options) {
  LMDBIO_TRY(const lmdbio_options complete, ReadArguments(handle, path, c_options));
  LMDBIO_TRY(const load::RecordReaderOptions options, RecordReaderOptionsOf(complete));
  LMDBIO_TRY(const auto view, ViewSpecOf(complete));
  LMDBIO_TRY(handle.reader, load::RecordReader::Open(path, options, view.get()));
  handle.LogNotes();
  return {};
}

Status OpenDataset(DatasetHandle& handle, const lmdbio_files* files,
                   const lmdbio_options* c_options) {
  LMDBIO_TRY(const lmdbio_options complete, CompleteOptions(c_options));
  handle.log = {complete.log, complete.log_context};
  LMDBIO_TRY(const load::RecordReaderOptions options, RecordReaderOptionsOf(complete));
  LMDBIO_TRY(const std::vector<load::DatabasePath> list, ListOf(files, options.database_name));
  LMDBIO_TRY(const auto view, ViewSpecOf(complete));
  LMDBIO_TRY(handle.reader, load::RecordReader::Open(list, options, view.get()));
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
  std::vector<lmdbio_record> records;
  const size_t field_count = handle.reader->field_count();
  records.reserve(count * field_count);
  for (size_t i = 0; i < count * field_count; ++i) {
    const load::RecordView& record = std::as_const(*found)[i];
    records.push_back(RecordOf(record.key, record.value, numbers[i / field_count]));
  }
  return RecordsResult{std::move(*found), std::move(records), field_count};
}

Result<std::vector<Bytes>> KeysOf(const lmdbio_key* keys, size_t count) {
  if (keys == nullptr && count > 0) return Fail(ErrorCode::kInvalidArgument, "keys is NULL");
  std::vector<Bytes> to;
  to.reserve(count);
  for (const lmdbio_key& key : std::span(keys, count)) {
    if (key.data == nullptr && key.size > 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the key at index {} is NULL and has {} bytes", to.size(), key.size));
    }
    to.emplace_back(static_cast<const std::byte*>(key.data), key.size);
  }
  return to;
}

Result<RecordsResult> GetRecords(DatasetHandle& handle, const lmdbio_key* c_keys, size_t count) {
  LMDBIO_TRY(const std::vector<Bytes> keys, KeysOf(c_keys, count));
  auto found = handle.reader->Get(keys);
  handle.LogNotes();
  if (!found) return Fail(std::move(found).error());
  std::vector<lmdbio_record> records;
  records.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const load::RecordView& record = std::as_const(*found)[i];
    records.push_back(RecordOf(record.key, record.value, i));
  }
  return RecordsResult{std::move(*found), std::move(records)};
}

Result<RecordsResult> ReadKeys(DatasetHandle& handle, uint64_t first, size_t count) {
  LMDBIO_TRY(load::KeyList keys, handle.reader->ReadKeys(first, count));
  const size_t field_count = handle.reader->field_count();
  std::vector<lmdbio_record> records;
  records.reserve(count * field_count);
  // Moving the list keeps its bytes in place.
  for (size_t i = 0; i < count * field_count; ++i) {
    records.push_back(RecordOf(std::as_const(keys)[i], {}, first + i / field_count));
  }
  return RecordsResult{std::move(keys), std::move(records), field_count};
}

// Fills the arrays of lmdbio_dataset_find. They are unchanged after a failure.
Status FindKeys(DatasetHandle& handle, const lmdbio_key* c_keys, size_t count,
                uint64_t* out_numbers, uint64_t* out_value_counts) {
  LMDBIO_TRY(const std::vector<Bytes> keys, KeysOf(c_keys, count));
  if (out_numbers == nullptr) {
    LMDBIO_TRY(const std::vector<uint64_t> counts, handle.reader->CountValues(keys));
    if (out_value_counts != nullptr) std::ranges::copy(counts, out_value_counts);
    return {};
  }
  LMDBIO_TRY(const std::vector<load::KeyNumber> found, handle.reader->Find(keys));
  for (size_t i = 0; i < count; ++i) {
    out_numbers[i] = found[i].first;
    if (out_value_counts != nullptr) out_value_counts[i] = found[i].value_count;
  }
  return {};
}

// Runs `read`, which returns a RecordsResult, and hands the result out in a handle of its own.
template <typename Read>
int HandOutResult(lmdbio_dataset* dataset, lmdbio_result** out_result,
                  const lmdbio_record** out_records, Read&& read) {
  if (out_result != nullptr) *out_result = nullptr;
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    if (out_result == nullptr || out_records == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "an out_ argument is NULL");
    }
    Result<RecordsResult> found = read(handle);
    if (!found) return handle.Keep(found.error());
    const auto object = std::make_shared<ResultHandle>();
    object->of_dataset = std::make_unique<RecordsResult>(std::move(*found));
    *out_result = ResultTable::Of().Add(object);
    *out_records = object->records().data();
    return LMDBIO_OK;
  });
}

// Fills the structs of a result from the batch that it holds.
void ShowBatch(BatchResult& result) {
  // The records are pointers into the batch; nothing is copied but 32 bytes for each.
  const load::Batch& batch = *result.held;
  const size_t count = batch.record_count();
  result.records.resize(count);
  for (size_t i = 0; i < count; ++i) {
    result.records[i] = RecordOf(batch.key(i), batch.value(i), batch.position(i));
  }
  result.batch = {result.records.data(),
                  count,
                  batch.skipped_count(),
                  batch.number(),
                  batch.epoch(),
                  batch.first_position(),
                  batch.global_record_count(),
                  batch.ends_epoch() ? 1 : 0,
                  batch.field_count()};
}

// Takes the next batch for `result`, whose earlier batch ends here even if this call fails.
int TakeBatch(LoaderHandle& handle, std::chrono::milliseconds limit, BatchResult& result) {
  using Step = load::Loader::Step;
  if (handle.Feed() != nullptr) {
    return handle.Keep(LMDBIO_INVALID_ARGUMENT,
                       "the loader has a feed, which takes the batches; use lmdbio_feed_next");
  }
  const Result<Step> step = handle.loader->NextWithin(limit, result.held);
  handle.LogNotes();  // after a failure too, because they may explain it
  if (!step) return handle.Keep(step.error());
  if (*step == Step::kEnd) return LMDBIO_END;
  if (*step == Step::kNothing) return LMDBIO_TIMEOUT;
  ShowBatch(result);
  return LMDBIO_OK;
}

int Next(lmdbio_loader* loader, std::chrono::milliseconds limit, const lmdbio_batch** out_batch) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_batch == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_batch is NULL");
    }
    BatchResult& mine = handle.lent().next;
    const int status = TakeBatch(handle, limit, mine);
    if (status == LMDBIO_OK) *out_batch = &mine.batch;
    return status;
  });
}

// Copies the values of `records` into rows, and fills the rows up with zeros.
Status CopyValues(const std::vector<lmdbio_record>& records, void* rows, size_t row_bytes,
                  size_t row_count) {
  // All checks come before the first byte is written, so `rows` is complete or unchanged.
  const auto refuse = [](std::string why) {
    return Fail(ErrorCode::kInvalidArgument, std::move(why));
  };
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
  return {};
}

// Runs `go_on` with the loader, or with its feed, and moves it elsewhere. The batch of this thread
// ends here.
template <typename GoOn>
int GoOnElsewhere(lmdbio_loader* loader, GoOn&& go_on) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    handle.lent().next.held.Return();
    Status status;
    if (const auto fed = handle.Feed()) {
      const std::lock_guard turn(fed->turn);
      status = go_on(*fed->feed);
      handle.log.Say(fed->feed->TakeNotes());
    } else {
      status = go_on(*handle.loader);
    }
    handle.LogNotes();
    return status ? LMDBIO_OK : handle.Keep(status.error());
  });
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

int lmdbio::api::OpenInGroup(Result<std::unique_ptr<ranks::Group>>& group,
                             const lmdbio_files* files, const lmdbio_options* options,
                             lmdbio_loader** out_loader) noexcept {
  return OpenHandleInGroup<LoaderTable, LoaderHandle>(
      group, "out_loader", out_loader,
      [&](LoaderHandle& handle) { return OpenLoader(handle, files, options); });
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

int lmdbio_open_files(const lmdbio_files* files, const lmdbio_options* options,
                      lmdbio_loader** out_loader) {
  return OpenHandle<LoaderTable, LoaderHandle>(out_loader, [&](LoaderHandle& handle) -> Status {
    handle.group = ranks::SoloGroup();
    return OpenLoader(handle, files, options);
  });
}

int lmdbio_next(lmdbio_loader* loader, const lmdbio_batch** out_batch) {
  return Next(loader, load::Loader::kNoLimit, out_batch);
}

int lmdbio_next_within(lmdbio_loader* loader, uint32_t limit_ms, const lmdbio_batch** out_batch) {
  return Next(loader, std::chrono::milliseconds(limit_ms), out_batch);
}

int lmdbio_fetch(lmdbio_loader* loader, uint32_t limit_ms, lmdbio_result** out_result,
                 const lmdbio_batch** out_batch) {
  if (out_result != nullptr) *out_result = nullptr;
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_result == nullptr || out_batch == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_result or out_batch is NULL");
    }
    // The handle is made first: a batch that was taken is not lost if there is no memory for it.
    const auto object = std::make_shared<ResultHandle>();
    object->of_loader = std::make_unique<BatchResult>();
    lmdbio_result* const result = ResultTable::Of().Add(object);
    const auto limit =
        limit_ms == UINT32_MAX ? load::Loader::kNoLimit : std::chrono::milliseconds(limit_ms);
    const int status = TakeBatch(handle, limit, *object->of_loader);
    if (status != LMDBIO_OK) {
      ResultTable::Of().Take(result);
      return status;
    }
    *out_result = result;
    *out_batch = &object->of_loader->batch;
    return LMDBIO_OK;
  });
}

int lmdbio_copy_values(lmdbio_loader* loader, void* rows, size_t row_bytes, size_t row_count) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    const BatchResult& mine = handle.lent().next;
    if (!mine.held.is_held()) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT,
                         "this thread has no batch to copy; call lmdbio_next first");
    }
    const Status copied = CopyValues(mine.records, rows, row_bytes, row_count);
    return copied ? LMDBIO_OK : handle.Keep(copied.error());
  });
}

int lmdbio_save(lmdbio_loader* loader, const char** out_state) {
  // Save reads only private memory of this process, so a forked child may call it, too. There it
  // waits for nobody: threads of the parent do not exist.
  return WithOpen<LoaderTable>(loader, AfterFork::kAllowed, [&](LoaderHandle& handle) -> int {
    if (out_state == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_state is NULL");
    if (handle.is_forked()) {
      thread_local std::string state_of_parent;
      // The feed has the position, and a thread of the parent may have had its turn.
      if (!handle.feed.expired()) return LMDBIO_FORKED;
      std::optional<std::string> state = handle.loader->TrySave();
      if (!state) return LMDBIO_FORKED;
      state_of_parent = std::move(*state);
      *out_state = state_of_parent.c_str();
      return LMDBIO_OK;
    }
    std::string& state = handle.lent().state;
    if (const auto fed = handle.Feed()) {
      const std::lock_guard turn(fed->turn);
      state = fed->feed->Save();
    } else {
      state = handle.loader->Save();
    }
    *out_state = state.c_str();
    return LMDBIO_OK;
  });
}

int lmdbio_restore(lmdbio_loader* loader, const char* state) {
  // The loader refuses an empty state, on all ranks alike.
  return GoOnElsewhere(loader,
                       [&](auto& stream) { return stream.Restore(state == nullptr ? "" : state); });
}

int lmdbio_set_epoch(lmdbio_loader* loader, uint64_t epoch) {
  return GoOnElsewhere(loader, [&](auto& stream) { return stream.SetEpoch(epoch); });
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

int lmdbio_get_view(lmdbio_loader* loader, const lmdbio_view_info** out_view) {
  return WithOpen<LoaderTable>(loader, AfterFork::kRefused, [&](LoaderHandle& handle) -> int {
    if (out_view == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_view is NULL");
    ViewResult& mine = handle.lent().view;
    mine.Fill(handle.loader->field_names(), handle.loader->record_count(),
              handle.loader->view_digest());
    *out_view = &mine.info;
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
    lmdbio_counters& counters = handle.lent().counters;
    counters = {from.batch_count,  from.record_count,  from.skipped_count, from.payload_bytes,
                from.epoch_count,  from.dropped_count, from.wrapped_count, from.wait_s,
                from.next_cpu_s,   from.locate_s,      from.read_s,        from.finish_s,
                from.space_wait_s, from.read_requests, from.bytes_read,    from.bytes_direct,
                from.bytes_useful, from.retry_count};
    *out_counters = &counters;
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
    std::string& description = handle.lent().description;
    description = handle.loader->Describe();
    *out_text = description.c_str();
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

int lmdbio_dataset_open_files(const lmdbio_files* files, const lmdbio_options* options,
                              lmdbio_dataset** out_dataset) {
  return OpenHandle<DatasetTable, DatasetHandle>(
      out_dataset, [&](DatasetHandle& handle) { return OpenDataset(handle, files, options); });
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
  return HandOutResult(dataset, out_result, out_records, [&](DatasetHandle& handle) {
    return ReadRecords(handle, numbers, count, out_records);
  });
}

int lmdbio_dataset_find(lmdbio_dataset* dataset, const lmdbio_key* keys, size_t count,
                        uint64_t* out_numbers, uint64_t* out_value_counts) {
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    const Status found = FindKeys(handle, keys, count, out_numbers, out_value_counts);
    return found ? LMDBIO_OK : handle.Keep(found.error());
  });
}

int lmdbio_dataset_get(lmdbio_dataset* dataset, const lmdbio_key* keys, size_t count,
                       lmdbio_result** out_result, const lmdbio_record** out_records) {
  return HandOutResult(dataset, out_result, out_records,
                       [&](DatasetHandle& handle) { return GetRecords(handle, keys, count); });
}

int lmdbio_dataset_use_key_index(lmdbio_dataset* dataset) {
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    const Status used = handle.reader->UseKeyIndex();
    handle.LogNotes();
    return used ? LMDBIO_OK : handle.Keep(used.error());
  });
}

int lmdbio_dataset_keys(lmdbio_dataset* dataset, uint64_t first, size_t count,
                        lmdbio_result** out_result, const lmdbio_record** out_records) {
  return HandOutResult(dataset, out_result, out_records,
                       [&](DatasetHandle& handle) { return ReadKeys(handle, first, count); });
}

int lmdbio_result_copy_values(lmdbio_result* result, void* rows, size_t row_bytes,
                              size_t row_count) {
  return WithOpen<ResultTable>(result, AfterFork::kRefused, [&](ResultHandle& handle) -> int {
    if (handle.of_feed) return handle.Keep(LMDBIO_INVALID_ARGUMENT, kOnDeviceWords);
    const Status copied = CopyValues(handle.records(), rows, row_bytes, row_count);
    return copied ? LMDBIO_OK : handle.Keep(copied.error());
  });
}

int lmdbio_result_copy_field(lmdbio_result* result, size_t field, void* rows, size_t row_bytes,
                             size_t row_count) {
  return WithOpen<ResultTable>(result, AfterFork::kRefused, [&](ResultHandle& handle) -> int {
    if (handle.of_feed) return handle.Keep(LMDBIO_INVALID_ARGUMENT, kOnDeviceWords);
    const size_t field_count = handle.field_count();
    if (field >= field_count) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT,
                         fmt::format("field {} is out of range; the samples have {} record(s)",
                                     field, field_count));
    }
    std::vector<lmdbio_record> of_field;
    for (size_t i = field; i < handle.records().size(); i += field_count) {
      of_field.push_back(handle.records()[i]);
    }
    const Status copied = CopyValues(of_field, rows, row_bytes, row_count);
    return copied ? LMDBIO_OK : handle.Keep(copied.error());
  });
}

const char* lmdbio_result_message(lmdbio_result* result) { return MessageOf<ResultTable>(result); }
int lmdbio_result_errno(lmdbio_result* result) { return ErrorNumberOf<ResultTable>(result); }
int lmdbio_result_close(lmdbio_result* result) { return Close<ResultTable>(result); }

int lmdbio_dataset_count(lmdbio_dataset* dataset, uint64_t* out_records) {
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    if (out_records == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_records is NULL");
    *out_records = handle.reader->sample_count();
    return LMDBIO_OK;
  });
}

int lmdbio_dataset_get_view(lmdbio_dataset* dataset, const lmdbio_view_info** out_view) {
  return WithOpen<DatasetTable>(dataset, AfterFork::kRefused, [&](DatasetHandle& handle) -> int {
    if (out_view == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_view is NULL");
    ViewResult& mine = handle.lent().view;
    const load::View* const view = handle.reader->view();
    mine.Fill(view != nullptr ? view->field_names() : load::FieldNamesOf(nullptr),
              handle.reader->sample_count(), view != nullptr ? view->digest() : 0);
    *out_view = &mine.info;
    return LMDBIO_OK;
  });
}

const char* lmdbio_dataset_message(lmdbio_dataset* dataset) {
  return MessageOf<DatasetTable>(dataset);
}
int lmdbio_dataset_errno(lmdbio_dataset* dataset) { return ErrorNumberOf<DatasetTable>(dataset); }
int lmdbio_dataset_close(lmdbio_dataset* dataset) { return Close<DatasetTable>(dataset); }
