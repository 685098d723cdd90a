// tests/support/page_size_override.h - makes liblmdb write files of another machine's page size.
//
// liblmdb 0.9 takes the page size of a new file from sysconf(_SC_PAGE_SIZE), asked once in
// mdb_env_create. page_size_override.cc defines a sysconf of its own, which the dynamic linker
// prefers to the C library's in any program that links this support library.
#ifndef TESTS_SUPPORT_PAGE_SIZE_OVERRIDE_H_
#define TESTS_SUPPORT_PAGE_SIZE_OVERRIDE_H_

#include <cstdint>

namespace lmdbio::test {

// While it lives, sysconf tells the calling thread that a page has `page_size_bytes`. Keep the
// scope as small as mdb_env_create: everything else needs the truth. Scopes do not nest.
class PageSizeOverride {
 public:
  // 0 leaves the truth.
  explicit PageSizeOverride(uint32_t page_size_bytes);
  ~PageSizeOverride();
  PageSizeOverride(const PageSizeOverride&) = delete;
  PageSizeOverride& operator=(const PageSizeOverride&) = delete;
};

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_PAGE_SIZE_OVERRIDE_H_
