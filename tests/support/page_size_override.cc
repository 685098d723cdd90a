#include "tests/support/page_size_override.h"

#include <dlfcn.h>
#include <unistd.h>

namespace lmdbio::test {
namespace {
thread_local uint32_t answer_bytes = 0;
}  // namespace

PageSizeOverride::PageSizeOverride(uint32_t page_size_bytes) { answer_bytes = page_size_bytes; }
PageSizeOverride::~PageSizeOverride() { answer_bytes = 0; }

}  // namespace lmdbio::test

extern "C" long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE && lmdbio::test::answer_bytes != 0) {
    return static_cast<long>(lmdbio::test::answer_bytes);
  }
  static const auto truth = reinterpret_cast<long (*)(int)>(::dlsym(RTLD_NEXT, "sysconf"));
  return truth(name);
}
