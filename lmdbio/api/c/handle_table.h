// lmdbio/api/c/handle_table.h - maps the handles of C callers to their objects.
//
// A handle is a number in the type of a pointer, and no number is used twice in a process. So the
// table detects a closed or invalid handle, and the library never dereferences one.
#ifndef LMDBIO_API_C_HANDLE_TABLE_H_
#define LMDBIO_API_C_HANDLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace lmdbio::api {

// Locks `mutex` before each fork of this process, and unlocks it afterwards in parent and child. So
// no child inherits a mutex that is locked by a thread which the child lacks. At most eight
// mutexes.
// Lifetime: `mutex` must never be destroyed
void HoldDuringFork(std::mutex& mutex);

// Returns a number that is unique in the process, and never 0. Threads: any.
std::uintptr_t NextHandleNumber();

// Threads: any.
template <typename Handle, typename Object>
class HandleTable {
 public:
  // The table of this process. Never destroyed: reading threads may still run when the program
  // ends, so the system releases handles that are open then.
  static HandleTable& Of() {
    static auto* table = new HandleTable;
    return *table;
  }

  Handle* Add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t number = NextHandleNumber();
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<Handle*>(number);
  }

  // Returns the object of a handle; null if there is no such handle.
  std::shared_ptr<Object> Find(const Handle* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  // Does the same as Find, and removes the handle.
  std::shared_ptr<Object> Take(const Handle* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  HandleTable() { HoldDuringFork(mutex_); }

  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_HANDLE_TABLE_H_
