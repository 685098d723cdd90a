// Goal: the folder holds complete files only, also after jobs that were killed in the middle.
#include "lmdbio/load/kept/kept_folder.h"

#include <fcntl.h>

#include <filesystem>
#include <set>
#include <string>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/output/file_owner.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::NamesIn;

TEST_CASE("KeptFolder removes unfinished files of jobs that have ended", "[kept]") {
  const test::TempDir dir;
  const auto folder = KeptFolder::Of(dir.path());
  REQUIRE(folder);
  const std::string abandoned = "0123456789abcdef.prov.lmdbio-0.tmp";
  const std::string in_work = "123456789abcdef0.keys.lmdbio-0.tmp";
  const std::string of_user = "notes.tmp";
  for (const std::string& name : {abandoned, in_work, of_user}) {
    test::WriteWholeFile(dir.path() / name, AsBytes("half"));
  }
  const UniqueFd owner(::open((dir.path() / in_work).c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(file::LockAsOwner(owner));

  REQUIRE(folder->Keep(dir.path() / "23456789abcdef01.prov", AsBytes("whole")));

  CHECK(NamesIn(dir.path()) == std::set<std::string>{"23456789abcdef01.prov", in_work, of_user});
}

}  // namespace
}  // namespace lmdbio::load
