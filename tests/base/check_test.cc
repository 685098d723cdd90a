#include "lmdbio/base/check.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/check_failure.h"

namespace lmdbio {
namespace {

TEST_CASE("A failed check names its file, line and condition", "[base]") {
  const std::string place = "tests/base/check_test.cc:" + std::to_string(__LINE__ + 1);
  const std::string line = test::LineOfFailedCheck([] { LMDBIO_CHECK(1 + 1 == 3); });
  CHECK(line == place + ": CHECK failed: 1 + 1 == 3\n");
  CHECK(test::LineOfFailedCheck([] { LMDBIO_CHECK(1 + 1 == 2); }).empty());
}

}  // namespace
}  // namespace lmdbio
