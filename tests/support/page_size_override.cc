#include "tests/support/page_size_override.h"

#include <unistd.h>

namespace lmdbio::test {
namespace {
thread_local uint32_t answer_bytes = 0;
}  // namespace

PageSizeOverride::PageSizeOverride(uint32_t page_size_bytes) { answer_bytes = page_size_bytes; }
PageSizeOverride::~PageSizeOverride() { answer_bytes = 0; }

}  // namespace lmdbio::test

// The internal name of the C library's sysconf. (The thread sanitizer calls sysconf before dlsym,
// or a traced function, can be called.)
extern "C" long __sysconf(int name);  // NOLINT(bugprone-reserved-identifier)

extern "C" __attribute__((no_sanitize("thread"))) long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE && lmdbio::test::answer_bytes != 0) {
    return static_cast<long>(lmdbio::test::answer_bytes);
  }
  return __sysconf(name);
}
