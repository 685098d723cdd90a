// The frame of each function is that of lmdbio.cc.
#include "lmdbio/api/c/lmdbio_feed.h"

#include <chrono>
#include <mutex>

#include "lmdbio/api/c/c_struct.h"
#include "lmdbio/api/c/handles.h"

using namespace lmdbio;       // NOLINT: the whole file translates between C and C++
using namespace lmdbio::api;  // NOLINT

namespace {

void* PointerTo(device::DeviceSpan span) { return reinterpret_cast<void*>(span.begin.value); }

struct FeedArguments {
  int device = 0;
  feed::FeedOptions options;
};

Result<FeedArguments> ReadFeedOptions(const lmdbio_feed_options* options) {
  LMDBIO_TRY(const lmdbio_feed_options complete,
             CompleteStruct("options", "LMDBIO_FEED_OPTIONS_INIT", options));
  constexpr feed::RowShape kShapes[] = {feed::RowShape::kRows, feed::RowShape::kPacked};
  FeedArguments arguments;
  arguments.device = complete.device;
  LMDBIO_TRY_VOID(Choose("options.shape", complete.shape, kShapes, arguments.options.rows.shape));
  arguments.options.rows.row_bytes_min = complete.row_bytes_min;
  Take(complete.depth, arguments.options.depth);
  return arguments;
}

Status OpenFeed(FeedHandle& handle, const lmdbio_feed_options* options) {
  LMDBIO_TRY(const FeedArguments arguments, ReadFeedOptions(options));
  LoaderHandle& loader = *handle.loader;
  const std::lock_guard lock(loader.feed_mutex);
  if (loader.feed.lock() != nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "the loader has a feed; close it first");
  }
  auto shared = std::make_shared<SharedFeed>();
  LMDBIO_TRY(shared->feed,
             feed::DeviceFeed::Open(*loader.loader, arguments.device, arguments.options));
  loader.log.Say(shared->feed->TakeNotes());
  loader.feed = shared;
  handle.shared = std::move(shared);
  return {};
}

// Takes the next batch for `result`, whose earlier batch is returned even if this call fails.
int TakeFed(FeedHandle& handle, std::chrono::milliseconds limit, void* stream, FedResult& result) {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  result.held.Return();
  const std::unique_lock turn(handle.shared->turn, give_up);
  if (!turn.owns_lock()) return LMDBIO_TIMEOUT;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now());
  feed::DeviceFeed& feed = *handle.shared->feed;
  const Result<load::BatchStep> step =
      feed.NextWithin(std::max(left, std::chrono::milliseconds(0)),
                      static_cast<device::StreamHandle>(stream), result.held);
  handle.loader->log.Say(feed.TakeNotes());
  handle.loader->LogNotes();
  if (!step) return handle.Keep(step.error());
  if (*step == load::BatchStep::kEnd) return LMDBIO_END;
  if (*step == load::BatchStep::kNothing) return LMDBIO_TIMEOUT;
  result.Show();
  return LMDBIO_OK;
}

}  // namespace

void FedResult::Show() {
  const feed::BatchFacts& facts = held.facts();
  fields.clear();
  for (size_t f = 0; f < facts.field_count(); ++f) {
    const feed::DeviceRows rows = held.rows(f);
    fields.push_back(
        {PointerTo(rows.rows), rows.rows.size_bytes, rows.row_bytes, PointerTo(rows.offsets)});
  }
  records.clear();
  for (size_t i = 0; i < facts.record_count(); ++i) {
    const Bytes key = facts.key(i);
    records.push_back({key.data(), nullptr, facts.position(i),
                       static_cast<uint32_t>(facts.value_bytes(i)),
                       static_cast<uint32_t>(key.size())});
  }
  batch = {fields.data(),
           records.data(),
           records.size(),
           facts.skipped_count(),
           facts.number(),
           facts.epoch(),
           facts.first_position(),
           facts.global_record_count(),
           facts.ends_epoch() ? 1 : 0,
           facts.field_count()};
}

int lmdbio_feed_open(lmdbio_loader* loader, const lmdbio_feed_options* options,
                     lmdbio_feed** out_feed) {
  if (out_feed != nullptr) *out_feed = nullptr;
  return Guarded(nullptr, [&]() -> int {
    const auto object = LoaderTable::Of().Find(loader);
    if (!object || !object->is_open()) return LMDBIO_BAD_HANDLE;
    if (object->is_forked()) return LMDBIO_FORKED;
    return OpenHandle<FeedTable, FeedHandle>(out_feed, [&](FeedHandle& handle) -> Status {
      handle.loader = object;
      return OpenFeed(handle, options);
    });
  });
}

int lmdbio_feed_next(lmdbio_feed* feed, void* stream, const lmdbio_device_batch** out_batch) {
  return WithOpen<FeedTable>(feed, AfterFork::kRefused, [&](FeedHandle& handle) -> int {
    if (out_batch == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_batch is NULL");
    }
    FedResult& mine = handle.lent().next;
    const int status = TakeFed(handle, load::Loader::kNoLimit, stream, mine);
    if (status == LMDBIO_OK) *out_batch = &mine.batch;
    return status;
  });
}

int lmdbio_feed_fetch(lmdbio_feed* feed, uint32_t limit_ms, void* stream,
                      lmdbio_result** out_result, const lmdbio_device_batch** out_batch) {
  if (out_result != nullptr) *out_result = nullptr;
  return WithOpen<FeedTable>(feed, AfterFork::kRefused, [&](FeedHandle& handle) -> int {
    if (out_result == nullptr || out_batch == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_result or out_batch is NULL");
    }
    // The handle is made first, as in lmdbio_fetch.
    const auto object = std::make_shared<ResultHandle>();
    object->of_feed = std::make_unique<FedResult>();
    lmdbio_result* const result = ResultTable::Of().Add(object);
    const auto limit =
        limit_ms == UINT32_MAX ? load::Loader::kNoLimit : std::chrono::milliseconds(limit_ms);
    const int status = TakeFed(handle, limit, stream, *object->of_feed);
    if (status != LMDBIO_OK) {
      ResultTable::Of().Take(result);
      return status;
    }
    *out_result = result;
    *out_batch = &object->of_feed->batch;
    return LMDBIO_OK;
  });
}

int lmdbio_result_use_on(lmdbio_result* result, void* stream) {
  return WithOpen<ResultTable>(result, AfterFork::kRefused, [&](ResultHandle& handle) -> int {
    if (handle.of_feed == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "the values of this result lie on the host");
    }
    const Status used = handle.of_feed->held.UseOn(static_cast<device::StreamHandle>(stream));
    return used ? LMDBIO_OK : handle.Keep(used.error());
  });
}

int lmdbio_feed_get_counters(lmdbio_feed* feed, const lmdbio_feed_counters** out_counters) {
  return WithOpen<FeedTable>(feed, AfterFork::kRefused, [&](FeedHandle& handle) -> int {
    if (out_counters == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_counters is NULL");
    }
    const std::lock_guard turn(handle.shared->turn);
    const feed::FeedCounters from = handle.shared->feed->counters();
    lmdbio_feed_counters& counters = handle.lent().counters;
    counters = {from.batch_count, from.gathered_count, from.staged_count, from.device_bytes,
                from.grown_count, from.wait_s,         from.buffer_wait_s};
    *out_counters = &counters;
    return LMDBIO_OK;
  });
}

int lmdbio_feed_describe(lmdbio_feed* feed, const char** out_text) {
  return WithOpen<FeedTable>(feed, AfterFork::kRefused, [&](FeedHandle& handle) -> int {
    if (out_text == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_text is NULL");
    const std::lock_guard turn(handle.shared->turn);
    std::string& description = handle.lent().description;
    description = handle.shared->feed->Describe();
    *out_text = description.c_str();
    return LMDBIO_OK;
  });
}

const char* lmdbio_feed_message(lmdbio_feed* feed) { return MessageOf<FeedTable>(feed); }
int lmdbio_feed_errno(lmdbio_feed* feed) { return ErrorNumberOf<FeedTable>(feed); }
int lmdbio_feed_close(lmdbio_feed* feed) { return Close<FeedTable>(feed); }
