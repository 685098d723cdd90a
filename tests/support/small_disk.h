// tests/support/small_disk.h - a file system that becomes full soon.
#ifndef LMDBIO_TESTS_SUPPORT_SMALL_DISK_H_
#define LMDBIO_TESTS_SUPPORT_SMALL_DISK_H_

#include <cstdint>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace lmdbio::test {

// A file system in memory that only this process and its children see. If the kernel does not
// permit it, the program ends with exit code 77 (skipped). The process has one thread.
class SmallDisk {
 public:
  explicit SmallDisk(uint64_t size_bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TempDir directory_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_SMALL_DISK_H_
