// lmdbio/api/c/handle_table.h - from the handles that C callers hold to the objects behind them.
//
// A handle is a number in the shape of a pointer, never used twice in a process: so one that was
// closed, or never was one, is found out instead of followed.
#ifndef LMDBIO_API_C_HANDLE_TABLE_H_
#define LMDBIO_API_C_HANDLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lmdbio/api/c/fork_count.h"

namespace lmdbio::api {

// Threads: any.
template <typename Handle, typename Object>
class HandleTable {
 public:
  // The table of this process. Never destroyed: handles that are still open when the program ends
  // are left to the system, as reading threads may be at work.
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

  // Nothing if there is no such handle.
  std::shared_ptr<Object> Find(const Handle* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  // The same, and the handle is none from now on.
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
