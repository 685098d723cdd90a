// lmdbio/api/c/handles.h - the objects behind the handles of C callers.
#ifndef LMDBIO_API_C_HANDLES_H_
#define LMDBIO_API_C_HANDLES_H_

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
#include <vector>

#include <fmt/format.h>

#include "lmdbio/api/c/fork_count.h"
#include "lmdbio/api/c/handle_table.h"
#include "lmdbio/api/c/lmdbio.h"
#include "lmdbio/api/c/shared_handle.h"
#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/records/record_reader.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::api {

inline constexpr const char* kNoHandleWords =
    "no such handle: it is NULL, closed, or was never opened";

// The state of a handle whose object is for one thread at a time: calls on it take turns.
struct HandleState : ForkMark {
  std::mutex turn;
  std::string message;             // of the last failure
  int error_number = 0;            // of the last failure: Error::error_number()
  std::vector<std::string> notes;  // for the log, after the call
  lmdbio_log log = nullptr;
  void* log_context = nullptr;

  // Runs `call`, which returns a status, when no other call runs. Its notes go to the log after the
  // mutex is unlocked, so that the log callback may use the handle.
  // Returns: the status; LMDBIO_FORKED in a child of fork() whose parent had a call under way
  template <typename Call>
  int InTurn(Call&& call) {
    std::unique_lock lock(turn, std::defer_lock);
    if (!is_forked()) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return LMDBIO_FORKED;  // the thread that holds the mutex exists in the parent only
    }
    const int status = call();
    const std::vector<std::string> said = std::exchange(notes, {});
    lock.unlock();
    if (log != nullptr) {
      for (const std::string& note : said) log(log_context, note.c_str());
    }
    return status;
  }

  int Keep(const Error& error) {
    return Keep(static_cast<int>(error.code()), error.message(), error.error_number());
  }
  int Keep(int status, std::string text, int number = 0) {
    message = std::move(text);
    error_number = number;
    return status;
  }
  // Allocates nothing: memory may have run out.
  void Forget(int number) {
    message.clear();
    error_number = number;
  }

  const char* LastWords() {
    if (is_forked()) return kForkedWords;
    const std::lock_guard lock(turn);
    return message.c_str();
  }
  int LastErrorNumber() {
    if (is_forked()) return 0;
    const std::lock_guard lock(turn);
    return error_number;
  }
};

struct LoaderHandle : HandleState {
  std::unique_ptr<ranks::Group> group;   // before the loader, which it must outlive
  std::unique_ptr<load::Loader> loader;  // none if it could not be opened
  bool has_batch = false;
  // The results that the caller got last.
  lmdbio_batch batch = {};
  std::vector<lmdbio_record> records;
  std::string state;
  std::string description;
  std::string options;  // as JSON
  lmdbio_counters counters = {};

  bool is_open() const { return loader != nullptr; }
  // Leaks the objects in a child of fork(): their destructors would disturb the parent.
  void LeaveAlone() {
    static_cast<void>(loader.release());
    static_cast<void>(group.release());
  }
};

// The records of one read of a dataset, as C callers see them.
struct RecordsResult {
  load::RecordSet set;                 // owns keys and values
  std::vector<lmdbio_record> records;  // in the order of the numbers
};

// The last failure and the records of one thread on a dataset.
struct DatasetResults : ThreadFailure {
  std::optional<RecordsResult> read;  // of its last lmdbio_dataset_read
};

struct DatasetHandle : SharedHandleState<DatasetResults> {
  std::unique_ptr<load::RecordReader> reader;
  lmdbio_log log = nullptr;
  void* log_context = nullptr;

  bool is_open() const { return reader != nullptr; }
  void LogNotes() {
    if (log == nullptr) return;
    for (const std::string& note : reader->TakeNotes()) log(log_context, note.c_str());
  }
  // The records of other threads may be in use by a thread that exists in the parent only.
  void LeaveAlone() {
    static_cast<void>(reader.release());
    static_cast<void>(new auto(TakeLent()));  // leaked
  }
};

// The result of lmdbio_dataset_fetch. It outlives its dataset.
struct ResultHandle : ForkMark {
  std::unique_ptr<RecordsResult> result;

  void LeaveAlone() { static_cast<void>(result.release()); }
};

using LoaderTable = HandleTable<lmdbio_loader, LoaderHandle>;
using DatasetTable = HandleTable<lmdbio_dataset, DatasetHandle>;
using ResultTable = HandleTable<lmdbio_result, ResultHandle>;

// Runs `call`, which returns a status, and converts exceptions to statuses. The library itself
// throws none, but memory may run out.
// state  the handle's state, whose message is cleared after an exception; or nullptr
template <typename State, typename Call>
int Guarded(State state, Call&& call) noexcept {
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
    return object->InTurn([&] {
      return Guarded(object.get(), [&]() -> int {
        const Status status = open(*object);
        return status ? LMDBIO_OK : object->Keep(status.error());
      });
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

// Runs `call` with the open object behind `handle`. If the object is for one thread at a time,
// waits for other calls on it.
template <typename Table, typename Handle, typename Call>
int WithOpen(Handle* handle, AfterFork after_fork, Call&& call) noexcept {
  return Guarded(nullptr, [&]() -> int {
    const auto object = Table::Of().Find(handle);
    if (!object || !object->is_open()) return LMDBIO_BAD_HANDLE;
    if (after_fork == AfterFork::kRefused && object->is_forked()) return LMDBIO_FORKED;
    return object->InTurn([&] { return Guarded(object.get(), [&] { return call(*object); }); });
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

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_HANDLES_H_
