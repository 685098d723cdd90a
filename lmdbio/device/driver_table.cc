// Only the lookup function is taken by dlsym. It gives each function in the version of one
// interface, so that no name here needs a suffix such as "_v2".

#include "lmdbio/device/driver_table.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/fork_mark.h"
#include "lmdbio/device/device_error.h"

namespace lmdbio::device {
namespace {

constexpr const char* kSystemLibrary = "libcuda.so.1";
constexpr const char* kLookup = "cuGetProcAddress_v2";  // since CUDA 12.0
constexpr const char* kNeeded = "lmdbio needs CUDA 12.0 or later (driver 525 or later)";

using Lookup = DriverCode (*)(const char* name, void** function, int interface_version,
                              uint64_t flags, int* found);

Result<void*> OpenLibrary(const char* library) {
  void* const opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened != nullptr) return opened;
  const char* const reason = ::dlerror();
  return Fail(ErrorCode::kNotFound,
              fmt::format("no GPU driver: {}", reason != nullptr ? reason : library));
}

// A function that the driver lacks is left null.
void Find(Lookup lookup, const char* name, void** function) {
  const bool is_newer = std::string_view(name) == "cuMemcpyBatchAsync";
  int found = 0;
  *function = nullptr;
  if (lookup(name, function, is_newer ? kBatchCopyInterface : kDriverInterface, 0, &found) !=
      driver_code::kSuccess) {
    *function = nullptr;
  }
}

Status CheckVersion(const char* library, Lookup lookup) {
  DriverTable table;
  Find(lookup, "cuDriverGetVersion", reinterpret_cast<void**>(&table.DriverGetVersion));
  int version = 0;
  if (table.DriverGetVersion == nullptr || table.DriverGetVersion(&version) != 0) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: cuDriverGetVersion does not tell a version; {}", library, kNeeded));
  }
  if (version < kDriverInterface) {
    return Fail(ErrorCode::kUnsupported, fmt::format("{} is a driver for CUDA {}; {}", library,
                                                     VersionText(version), kNeeded));
  }
  return {};
}

Result<DriverTable> FindAll(const char* library, Lookup lookup) {
  DriverTable table;
  std::string missing;
  ForEachFunction(table, [&](const char* name, FunctionNeed need, auto& function) {
    Find(lookup, name, reinterpret_cast<void**>(&function));
    if (function == nullptr && need == FunctionNeed::kRequired) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
    }
  });
  if (missing.empty()) return table;
  return Fail(ErrorCode::kUnsupported, fmt::format("{} lacks {}; {}", library, missing, kNeeded));
}

// The driver of the system, as one process has opened it. A child of fork() makes its own, because
// a thread of its parent may have held the mutex at the fork. Never destroyed.
struct Opening {
  explicit Opening(const Opening* its_parents) : parents(its_parents) {}

  const Opening* const parents;  // keeps it reachable for checks of leaks
  const ForkMark fork_mark;
  std::atomic<bool> may_be_open = false;
  std::mutex mutex;  // of the next two
  DriverTable table;
  bool is_loaded = false;
};

}  // namespace

std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<DriverTable> LoadDriver(const char* library) {
  LMDBIO_TRY(void* const opened, OpenLibrary(library));
  const auto lookup = reinterpret_cast<Lookup>(::dlsym(opened, kLookup));
  if (lookup == nullptr) {
    return Fail(ErrorCode::kUnsupported, fmt::format("{} lacks {}; {}", library, kLookup, kNeeded));
  }
  LMDBIO_TRY_VOID(CheckVersion(library, lookup));
  LMDBIO_TRY(const DriverTable table, FindAll(library, lookup));
  const DriverCode code = table.Init(0);
  if (code == driver_code::kNoDevice) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} is here, but no GPU that this process may use "
                            "(CUDA_VISIBLE_DEVICES hides some)",
                            library));
  }
  if (code != driver_code::kSuccess) return Fail(DriverError(table, code, "cuInit"));
  return table;
}

Result<const DriverTable*> SystemDriver() {
  static std::atomic<Opening*> current = nullptr;
  Opening* opening = current.load();
  if (opening == nullptr || opening->fork_mark.is_forked()) {
    if (opening != nullptr && opening->may_be_open.load()) return Fail(ForkedError());
    auto made = std::make_unique<Opening>(opening);
    // Another thread of this process may have been faster; `opening` is then its one.
    if (current.compare_exchange_strong(opening, made.get())) opening = made.release();
  }
  const std::lock_guard lock(opening->mutex);
  if (opening->is_loaded) return &opening->table;
  opening->may_be_open.store(true);
  Result<DriverTable> loaded = LoadDriver(kSystemLibrary);
  if (!loaded) {
    opening->may_be_open.store(false);  // a child may try for itself
    return Fail(std::move(loaded).error());
  }
  opening->table = *loaded;
  opening->is_loaded = true;
  return &opening->table;
}

}  // namespace lmdbio::device
