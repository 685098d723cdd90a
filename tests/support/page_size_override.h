// tests/support/page_size_override.h - makes liblmdb write files with the page size of another
// host.
//
// liblmdb 0.9 reads the page size of a new file from sysconf(_SC_PAGE_SIZE), once in
// mdb_env_create. page_size_override.cc defines a sysconf, which the dynamic linker prefers to that
// of the C library in any program that links this support library.
#ifndef TESTS_SUPPORT_PAGE_SIZE_OVERRIDE_H_
#define TESTS_SUPPORT_PAGE_SIZE_OVERRIDE_H_

#include <cstdint>

namespace lmdbio::test {

// During its life, sysconf returns `page_size_bytes` as the page size to the calling thread. Keep
// the scope as small as the call of mdb_env_create, because all other code needs the true size.
// Scopes do not nest.
class PageSizeOverride {
 public:
  // 0: the true page size.
  explicit PageSizeOverride(uint32_t page_size_bytes);
  ~PageSizeOverride();
  PageSizeOverride(const PageSizeOverride&) = delete;
  PageSizeOverride& operator=(const PageSizeOverride&) = delete;
};

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_PAGE_SIZE_OVERRIDE_H_
