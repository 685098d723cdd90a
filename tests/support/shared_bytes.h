// tests/support/shared_bytes.h - zero-filled memory that a test shares with the children it forks.
#ifndef LMDBIO_TESTS_SUPPORT_SHARED_BYTES_H_
#define LMDBIO_TESTS_SUPPORT_SHARED_BYTES_H_

#include <sys/mman.h>

#include <stdexcept>

#include "lmdbio/base/types.h"

namespace lmdbio::test {

// Throws std::runtime_error if there is no memory.
class SharedBytes {
 public:
  explicit SharedBytes(size_t size_bytes) : size_bytes_(size_bytes) {
    address_ =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (address_ == MAP_FAILED) throw std::runtime_error("no shared memory");
  }
  ~SharedBytes() { ::munmap(address_, size_bytes_); }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  MutableBytes bytes() const { return {static_cast<std::byte*>(address_), size_bytes_}; }

 private:
  size_t size_bytes_;
  void* address_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_SHARED_BYTES_H_
