// tests/file/io/holed_memory.h - a file with one failing read, until the test repairs it.
//
// The file is the memory of this process (/proc/self/mem). Offsets are addresses, and a page that
// is not mapped gives EIO.
#ifndef LMDBIO_TESTS_FILE_IO_HOLED_MEMORY_H_
#define LMDBIO_TESTS_FILE_IO_HOLED_MEMORY_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "lmdbio/base/unique_fd.h"
#include "tests/support/random.h"

namespace lmdbio::file {

class HoledMemory {
 public:
  static constexpr uint64_t kHole = 1 << 20;  // no other memory is mapped at so low an address
  static constexpr uint64_t kBlockBytes = 1000;
  static constexpr uint64_t kBlockCount = 60;  // readable blocks

  HoledMemory() : fd_(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC)) {}
  ~HoledMemory() {
    if (IsFilled()) ::munmap(Hole(), kBlockBytes);
  }
  HoledMemory(const HoledMemory&) = delete;
  HoledMemory& operator=(const HoledMemory&) = delete;

  int fd() const { return fd_.get(); }
  // Whether this system allows reading such a file.
  bool Works() const {
    char byte = 0;
    return ::pread(fd(), &byte, 1, static_cast<off_t>(Offset(0))) == 1 &&
           ::pread(fd(), &byte, 1, kHole) == -1 && errno == EIO;
  }

  uint64_t Offset(uint64_t block) const {
    return reinterpret_cast<uintptr_t>(content_.data()) + block * kBlockBytes;
  }
  std::string_view Content(uint64_t block) const {
    return std::string_view(content_).substr(block * kBlockBytes, kBlockBytes);
  }

  // Maps the hole, so that reads of it return zeros.
  bool Fill() {
    hole_ = ::mmap(Hole(), kBlockBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return IsFilled();
  }

 private:
  static void* Hole() { return reinterpret_cast<void*>(kHole); }
  bool IsFilled() const { return hole_ == Hole(); }

  UniqueFd fd_;
  std::string content_ = test::Random(5).BytesOf(kBlockCount * kBlockBytes);
  void* hole_ = nullptr;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_TESTS_FILE_IO_HOLED_MEMORY_H_
