#include "lmdbio/base/align.h"

#include <sys/auxv.h>

#include <bit>

#include "tests/support/catch.h"

namespace lmdbio {
namespace {

TEST_CASE("MemoryPageBytes is the page of the kernel", "[base]") {
  CHECK(MemoryPageBytes() == ::getauxval(AT_PAGESZ));
  CHECK(std::has_single_bit(MemoryPageBytes()));
  CHECK(kMemoryPageBytesMax % MemoryPageBytes() == 0);
}

}  // namespace
}  // namespace lmdbio
