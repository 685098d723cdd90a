#include "lmdbio/file/map/file_map.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {

Result<FileMap> FileMap::Open(std::string name, int fd, uint64_t size_bytes) {
  if (size_bytes == 0) return FileMap(std::move(name), fd, {});
  void* const address = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, /*offset=*/0);
  if (address == MAP_FAILED) return Fail(ErrnoError(errno, name, "cannot be mapped"));
  return FileMap(std::move(name), fd, {static_cast<const std::byte*>(address), size_bytes});
}

FileMap::FileMap(std::string name, int fd, Bytes bytes) : name_(std::move(name)), bytes_(bytes) {
  if (!bytes.empty()) guard_ = MapGuard(bytes, fd);
}

FileMap::FileMap(FileMap&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, {})),
      guard_(std::move(other.guard_)) {}

// The guard ends first: its addresses may belong to another map as soon as this one has ended.
FileMap::~FileMap() {
  guard_ = {};
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Status FileMap::CheckWhole() const {
  const std::optional<MapLoss> loss = guard_.loss();
  if (!loss) return {};
  if (loss->file_bytes) {
    return Fail(
        ErrorCode::kStale,
        fmt::format("{}: the file has shrunk from {} to {} bytes while it was read; what was "
                    "read beyond them is zeros",
                    name_, bytes_.size(), *loss->file_bytes));
  }
  return Fail(ErrorCode::kIo,
              fmt::format("{}: the storage failed at byte {}; what was read there is zeros", name_,
                          loss->offset));
}

}  // namespace lmdbio::file
