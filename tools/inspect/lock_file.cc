#include "tools/inspect/lock_file.h"

#include <algorithm>
#include <filesystem>

namespace lmdbio::tools {
namespace {

// The header and 126 slots fill two pages of 4 KiB.
constexpr uint64_t kDefaultSlots = 126;

// Sizes in LMDB's lock file on 64-bit Linux.
constexpr uint64_t kHeaderBytes = 128;
constexpr uint64_t kSlotBytes = 64;

// The lock file of X/data.mdb is X/lock.mdb; that of any other data file X is X-lock.
std::filesystem::path LockPath(const std::filesystem::path& data_path) {
  if (data_path.filename() == "data.mdb") return data_path.parent_path() / "lock.mdb";
  return data_path.string() + "-lock";
}

}  // namespace

uint64_t ReaderSlots(const std::string& data_path) {
  std::error_code none;
  const uint64_t size_bytes = std::filesystem::file_size(LockPath(data_path), none);
  if (none || size_bytes < kHeaderBytes) return kDefaultSlots;
  // The file keeps its size after a writer has set more slots. Its content is not needed.
  return std::max(kDefaultSlots, (size_bytes - kHeaderBytes) / kSlotBytes);
}

uint64_t MapSizeBytes(const file::Snapshot& snapshot) {
  const uint64_t used_bytes =
      (snapshot.meta.last_page.value + 1) * snapshot.page_format.page_size_bytes();
  // LMDB never maps less than the used pages, even if the meta page has a smaller size.
  return std::max(snapshot.meta.map_size_bytes, used_bytes);
}

}  // namespace lmdbio::tools
