#include "lmdbio/file/io/file_list.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;

TEST_CASE("NaturallyBefore counts numbers by value", "[io][file-list]") {
  const std::vector<std::string> sorted = {
      "",         "data",     "data.2",   "data.02", "data.10",
      "data.10a", "data.10b", "data.200", "data.x",  "data.99999999999999999999999",
      "e1-2",     "e1-10",    "e01-10",   "e2-1"};
  std::vector<std::string> shuffled = sorted;
  std::ranges::reverse(shuffled);
  std::ranges::sort(shuffled, NaturallyBefore);
  // Names whose numbers are equal are in byte order.
  const std::vector<std::string> expected = {"",         "data",     "data.02",
                                             "data.2",   "data.10",  "data.10a",
                                             "data.10b", "data.200", "data.99999999999999999999999",
                                             "data.x",   "e1-2",     "e01-10",
                                             "e1-10",    "e2-1"};
  CHECK(shuffled == expected);
  for (const std::string& a : sorted) {
    for (const std::string& b : sorted) {
      INFO(a << " and " << b);
      CHECK((NaturallyBefore(a, b) || NaturallyBefore(b, a)) == (a != b));
      CHECK(!(NaturallyBefore(a, b) && NaturallyBefore(b, a)));
    }
  }
}

TEST_CASE("ListDataFiles finds files, folders and globs", "[io][file-list]") {
  const test::TempDir dir;
  const std::string root = dir.path();
  const auto touch = [&](const std::string& name) {
    fs::create_directories(fs::path(root + "/" + name).parent_path());
    test::WriteWholeFile(root + "/" + name, {});
  };
  for (const char* name : {"set/s2.mdb", "set/s10.lmdb", "set/s3/data.mdb", "set/lock.mdb",
                           "set/s2.mdb-lock", "set/s2.mdb.prov", "set/notes.txt", "set/a/b/c.mdb",
                           "env/data.mdb", "env/more.mdb", "empty/notes.txt"}) {
    touch(name);
  }
  using Paths = std::vector<std::string>;
  CHECK(ListDataFiles(root + "/set/s2.mdb") == Paths{root + "/set/s2.mdb"});
  CHECK(ListDataFiles(root + "/env") == Paths{root + "/env"});
  const Paths files = {root + "/set/s2.mdb", root + "/set/s3", root + "/set/s10.lmdb"};
  CHECK(ListDataFiles(root + "/set") == files);
  CHECK(ListDataFiles(root + "/set/s*") == files);
  CHECK(ListDataFiles(root + "/set/s[23]*") == Paths{root + "/set/s2.mdb", root + "/set/s3"});
  CHECK(ListDataFiles(root + "/s?t/s10*") == Paths{root + "/set/s10.lmdb"});
}

TEST_CASE("ListDataFiles names what it does not find", "[io][file-list]") {
  const test::TempDir dir;
  const std::string root = dir.path();
  const auto message = [](const std::string& path) {
    const auto found = ListDataFiles(path);
    REQUIRE(!found);
    CHECK(found.error().code() == ErrorCode::kNotFound);
    return found.error().message();
  };
  CHECK(message(root) == root + ": the directory holds no data.mdb, and no .mdb or .lmdb files");
  CHECK(message(root + "/x*") == root + "/x*: no file matches");
  CHECK(message(root + "/x") == root + "/x: cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace lmdbio::file
