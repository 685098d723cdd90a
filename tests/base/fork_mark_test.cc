#include "lmdbio/base/fork_mark.h"

#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio {
namespace {

using test::Verdict;

TEST_CASE("An object is forked in children and in their children", "[fork_mark]") {
  const ForkMark of_parent;
  CHECK(!of_parent.is_forked());
  const uint64_t before = ForkCount();
  test::CheckInChild([&] {
    CHILD_CHECK(of_parent.is_forked());
    CHILD_CHECK(ForkCount() == before + 1);
    const ForkMark of_child;
    CHILD_CHECK(!of_child.is_forked());
    return test::InChild([&] {
      CHILD_CHECK(of_parent.is_forked() && of_child.is_forked());
      return Verdict::kRight;
    });
  });
  CHECK(!of_parent.is_forked());
  CHECK(ForkCount() == before);
}

}  // namespace
}  // namespace lmdbio
