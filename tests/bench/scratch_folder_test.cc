// Goal: a scratch folder of a process that was killed is removed by the next one, and no other
// folder is.
#include "bench/scratch_folder.h"

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::bench {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::NamesIn;

TEST_CASE("The next ScratchFolder removes one of a killed process", "[bench]") {
  const test::TempDir dir;
  fs::create_directory(dir.path() / "lmdbio-user");
  const test::Verdict verdict = test::InChild([&] {
    const auto folder = ScratchFolder::Make(dir.path(), "test");
    if (!folder) return test::Verdict::kCannotTell;
    test::WriteWholeFile(folder->path() / "large", AsBytes(std::string(100'000, 'x')));
    std::raise(SIGKILL);
    return test::Verdict::kRight;
  });
  CHECK(verdict == test::Verdict::kWrong);
  REQUIRE(NamesIn(dir.path()).size() == 2);
  {
    const auto first = ScratchFolder::Make(dir.path(), "first");
    REQUIRE(first);
    const auto second = ScratchFolder::Make(dir.path(), "second");
    REQUIRE(second);
    CHECK(NamesIn(dir.path()) == std::set<std::string>{"lmdbio-user", first->path().filename(),
                                                       second->path().filename()});
  }
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"lmdbio-user"});
}

TEST_CASE("ScratchFolder names a parent that does not exist", "[bench]") {
  const test::TempDir dir;
  const auto folder = ScratchFolder::Make(dir.path() / "none", "test");
  REQUIRE_FALSE(folder);
  CHECK(folder.error().code() == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lmdbio::bench
