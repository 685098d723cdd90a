// lmdbio/file/map/file_map.h - a file in a read-only map, and whether all of it could be read.
//
// Pages that cannot be read are zeros (map_guard.h). So whoever uses bytes of the map asks
// CheckWhole afterwards, before anybody relies on them.
#ifndef LMDBIO_FILE_MAP_FILE_MAP_H_
#define LMDBIO_FILE_MAP_FILE_MAP_H_

#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/map/map_guard.h"

namespace lmdbio::file {

// Threads: every method from any number of threads.
class FileMap {
 public:
  // Maps the first `size_bytes` bytes; none if there are none.
  // name  of the file, for messages
  // fd    of the file; borrowed, open as long as the map exists
  // Errors: kResourceExhausted (address space), kPermission, kIo
  static Result<FileMap> Open(std::string name, int fd, uint64_t size_bytes);
  ~FileMap();
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&&) = delete;

  Bytes bytes() const { return bytes_; }

  // Whether the bytes that were read so far are those of the file. It stays false.
  // Cost: one load
  // Errors: kStale  the file has shrunk
  //         kIo     the storage has failed
  Status CheckWhole() const;

 private:
  FileMap(std::string name, int fd, Bytes bytes);

  std::string name_;
  Bytes bytes_;
  MapGuard guard_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_MAP_FILE_MAP_H_
