// lmdbio/api/c/handles.h - the objects behind the handles of C callers.
#ifndef LMDBIO_API_C_HANDLES_H_
#define LMDBIO_API_C_HANDLES_H_

#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/api/c/c_options.h"
#include "lmdbio/api/c/handle_table.h"
#include "lmdbio/api/c/lmdbio.h"
#include "lmdbio/api/c/lmdbio_feed.h"
#include "lmdbio/api/c/shared_handle.h"
#include "lmdbio/base/status.h"
#include "lmdbio/feed/device_feed.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/records/record_reader.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::api {

inline constexpr const char* kNoHandleWords =
    "no such handle: it is NULL, closed, or was never opened";

// A batch of a loader, as C callers see it. Must not be moved: `batch` points into it.
struct BatchResult {
  load::HeldBatch held;                // owns keys and values
  std::vector<lmdbio_record> records;  // of the batch
  lmdbio_batch batch = {};
};

// A batch of a feed, as C callers see it. Must not be moved: `batch` points into it.
struct FedResult {
  feed::FedBatch held;
  std::vector<lmdbio_device_rows> fields;
  std::vector<lmdbio_record> records;
  lmdbio_device_batch batch = {};

  // Fills the structs from the batch that is held.
  void Show();
};

// A feed that its handle and that of its loader know. Threads take turns.
// Lifetime: the loader's object outlives it
struct SharedFeed {
  std::timed_mutex turn;
  std::unique_ptr<feed::DeviceFeed> feed;
};

// The last failure and the last results of one thread on a feed.
struct FeedResults : ThreadFailure {
  FedResult next;  // of its last lmdbio_feed_next
  std::string description;
  lmdbio_feed_counters counters = {};
};

// The last failure and the last results of one thread on a loader.
struct LoaderResults : ThreadFailure {
  BatchResult next;  // of its last lmdbio_next; holds no batch if that returned none
  std::string state;
  std::string description;
  lmdbio_counters counters = {};
  ViewResult view;
};

// The functions of the caller that gets notes.
struct Log {
  lmdbio_log function = nullptr;
  void* context = nullptr;

  void Say(const std::vector<std::string>& notes) const {
    if (function == nullptr) return;
    for (const std::string& note : notes) function(context, note.c_str());
  }
};

struct LoaderHandle : SharedHandleState<LoaderResults> {
  std::unique_ptr<ranks::Group> group;   // before the loader, which it must outlive
  std::unique_ptr<load::Loader> loader;  // none if it could not be opened
  std::string options;                   // as JSON
  Log log;
  std::mutex feed_mutex;           // of the next; not for use in a child of fork()
  std::weak_ptr<SharedFeed> feed;  // which takes the batches while it exists

  bool is_open() const { return loader != nullptr; }
  std::shared_ptr<SharedFeed> Feed() {
    const std::lock_guard lock(feed_mutex);
    return feed.lock();
  }
  void LogNotes() { log.Say(loader->TakeNotes()); }
  // Leaks the objects in a child of fork(): their destructors would disturb the parent.
  void LeaveAlone() {
    static_cast<void>(new auto(TakeLent()));
    static_cast<void>(loader.release());
    static_cast<void>(group.release());
  }
};

struct FeedHandle : SharedHandleState<FeedResults> {
  std::shared_ptr<LoaderHandle> loader;  // outlives the feed
  std::shared_ptr<SharedFeed> shared;    // none if it could not be opened

  bool is_open() const { return shared != nullptr; }
  // As LoaderHandle::LeaveAlone.
  void LeaveAlone() {
    static_cast<void>(new auto(TakeLent()));
    static_cast<void>(new auto(std::move(shared)));
    static_cast<void>(new auto(std::move(loader)));
  }
};

// The records, or the keys, of one read of a dataset, as C callers see them.
struct RecordsResult {
  std::variant<load::RecordSet, load::KeyList> owner;  // of keys and values
  std::vector<lmdbio_record> records;                  // in the requested order
  size_t field_count = 1;                              // records of each sample
};

// The last failure and the records of one thread on a dataset.
struct DatasetResults : ThreadFailure {
  std::optional<RecordsResult> read;  // of its last lmdbio_dataset_read
  ViewResult view;
};

struct DatasetHandle : SharedHandleState<DatasetResults> {
  std::unique_ptr<load::RecordReader> reader;
  Log log;

  bool is_open() const { return reader != nullptr; }
  void LogNotes() { log.Say(reader->TakeNotes()); }
  // The records of other threads may be in use by a thread that exists in the parent only.
  void LeaveAlone() {
    static_cast<void>(reader.release());
    static_cast<void>(new auto(TakeLent()));  // leaked
  }
};

// The result of lmdbio_dataset_fetch, _get or _keys, which outlives its dataset; of lmdbio_fetch;
// or of lmdbio_feed_fetch, which has no values on the host.
struct ResultHandle : SharedHandleState<ThreadFailure> {
  std::unique_ptr<RecordsResult> of_dataset;  // one of these
  std::unique_ptr<BatchResult> of_loader;
  std::unique_ptr<FedResult> of_feed;

  // Requires (both): not of_feed
  const std::vector<lmdbio_record>& records() const {
    return of_dataset ? of_dataset->records : of_loader->records;
  }
  size_t field_count() const {
    return of_dataset ? of_dataset->field_count : of_loader->batch.field_count;
  }
  bool is_open() const { return of_dataset || of_loader || of_feed; }
  void LeaveAlone() {
    static_cast<void>(of_dataset.release());
    static_cast<void>(of_loader.release());
    static_cast<void>(of_feed.release());
  }
};

using LoaderTable = HandleTable<lmdbio_loader, LoaderHandle>;
using FeedTable = HandleTable<lmdbio_feed, FeedHandle>;
using DatasetTable = HandleTable<lmdbio_dataset, DatasetHandle>;
using ResultTable = HandleTable<lmdbio_result, ResultHandle>;

// Keeps the calling thread from being cancelled (pthread_cancel) before the destructor. A call that
// is cancelled could lose a batch, and must not be unwound through functions that are noexcept.
class NoCancelling {
 public:
  NoCancelling() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancelling() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancelling(const NoCancelling&) = delete;
  NoCancelling& operator=(const NoCancelling&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Runs `call`, which returns a status, and converts exceptions to statuses. The library itself
// throws none, but memory may run out.
// state  the handle's state, whose message is cleared after an exception; or nullptr
template <typename State, typename Call>
int Guarded(State state, Call&& call) noexcept {
  const NoCancelling no_cancelling;
  const auto forget = [&]([[maybe_unused]] int number) {
    if constexpr (!std::is_null_pointer_v<State>) state->Forget(number);
  };
  try {
    return call();
  } catch (const std::bad_alloc&) {
    forget(ENOMEM);
    return LMDBIO_RESOURCE_EXHAUSTED;
  } catch (const std::exception& exception) {
    // Storing what() could throw again.
    forget(0);
    return LMDBIO_INTERNAL;
  }
}

enum class AfterFork { kRefused, kAllowed };

// Opens an object in a new handle. The handle exists afterwards even if opening failed.
template <typename Table, typename Object, typename Handle, typename Open>
int OpenHandle(Handle** out_handle, Open&& open) noexcept {
  if (out_handle == nullptr) return LMDBIO_INVALID_ARGUMENT;
  *out_handle = nullptr;
  return Guarded(nullptr, [&]() -> int {
    const auto object = std::make_shared<Object>();
    *out_handle = Table::Of().Add(object);
    return Guarded(object.get(), [&]() -> int {
      const Status status = open(*object);
      return status ? LMDBIO_OK : object->Keep(status.error());
    });
  });
}

// Does the same in a group. If out_handle is NULL on one rank, all ranks fail.
template <typename Table, typename Object, typename Handle, typename Open>
int OpenHandleInGroup(Result<std::unique_ptr<ranks::Group>>& group, const char* out_name,
                      Handle** out_handle, Open&& open) noexcept {
  if (out_handle == nullptr && group) {
    return Guarded(nullptr, [&]() -> int {
      static_cast<void>(ranks::Agree(
          **group, Fail(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", out_name))));
      return LMDBIO_INVALID_ARGUMENT;
    });
  }
  return OpenHandle<Table, Object>(out_handle, [&](Object& handle) -> Status {
    if (!group) return Fail(std::move(group).error());
    handle.group = std::move(*group);
    return open(handle);
  });
}

// Runs `call` with the open object behind `handle`.
template <typename Table, typename Handle, typename Call>
int WithOpen(Handle* handle, AfterFork after_fork, Call&& call) noexcept {
  return Guarded(nullptr, [&]() -> int {
    const auto object = Table::Of().Find(handle);
    if (!object || !object->is_open()) return LMDBIO_BAD_HANDLE;
    if (after_fork == AfterFork::kRefused && object->is_forked()) return LMDBIO_FORKED;
    return Guarded(object.get(), [&] { return call(*object); });
  });
}

// Closes `handle` and releases its object. Does nothing for null.
template <typename Table, typename Handle>
int Close(Handle* handle) noexcept {
  if (handle == nullptr) return LMDBIO_OK;
  return Guarded(nullptr, [&]() -> int {
    const auto object = Table::Of().Take(handle);
    if (!object) return LMDBIO_BAD_HANDLE;
    if (object->is_forked()) object->LeaveAlone();
    return LMDBIO_OK;
  });
}

template <typename Table, typename Handle>
const char* MessageOf(Handle* handle) noexcept {
  const auto object = Table::Of().Find(handle);
  return object ? object->LastWords() : kNoHandleWords;
}

template <typename Table, typename Handle>
int ErrorNumberOf(Handle* handle) noexcept {
  const auto object = Table::Of().Find(handle);
  return object ? object->LastErrorNumber() : 0;
}

// Opens a loader in a group, as lmdbio_open, and takes ownership of the group. Only for
// liblmdbio_mpi of the same version.
LMDBIO_API int OpenInGroup(Result<std::unique_ptr<ranks::Group>>& group, const char* path,
                           const lmdbio_options* options, lmdbio_loader** out_loader) noexcept;
LMDBIO_API int OpenInGroup(Result<std::unique_ptr<ranks::Group>>& group, const lmdbio_files* files,
                           const lmdbio_options* options, lmdbio_loader** out_loader) noexcept;

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_HANDLES_H_
