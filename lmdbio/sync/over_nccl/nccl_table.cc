#include "lmdbio/sync/over_nccl/nccl_table.h"

#include <dlfcn.h>

#include <string>

#include <fmt/format.h>

namespace lmdbio::sync {
namespace {

constexpr const char* kNcclNeeded =
    "lmdbio needs NCCL 2.14 or later: install libnccl2 (Debian, Ubuntu), libnccl (Fedora) or the "
    "package nvidia-nccl-cu12 or nvidia-nccl-cu13 of PyPI, and name the folder of libnccl.so.2 in "
    "LD_LIBRARY_PATH if it is not a system folder";

// 0: it tells none.
int VersionOf(void* opened) {
  using GetVersion = decltype(NcclTable::GetVersion);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(opened, "ncclGetVersion"));
  int version = 0;
  return get != nullptr && get(&version) == nccl_code::kSuccess ? version : 0;
}

}  // namespace

// Before 2.9 the minor version had one digit, which is that of hundreds.
std::string NcclVersionText(int version) {
  const int major_unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100);
}

Result<LoadedNccl> LoadNccl(const char* library) {
  void* const opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const reason = ::dlerror();
    return Fail(ErrorCode::kNotFound,
                fmt::format("no NCCL: {}; {}", reason != nullptr ? reason : library, kNcclNeeded));
  }
  LoadedNccl loaded{.table = {}, .version = VersionOf(opened)};
  if (loaded.version < kNcclVersionMin) {
    const std::string found = loaded.version > 0 ? "is NCCL " + NcclVersionText(loaded.version)
                                                 : "does not tell its version";
    return Fail(ErrorCode::kUnsupported, fmt::format("{} {}; {}", library, found, kNcclNeeded));
  }
  std::string missing;
  ForEachNcclFunction(loaded.table, [&](const char* name, auto& function) {
    reinterpret_cast<void*&>(function) = ::dlsym(opened, name);
    if (function == nullptr) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  });
  if (missing.empty()) return loaded;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} lacks {}; {}", library, missing, kNcclNeeded));
}

}  // namespace lmdbio::sync
