// Goal: a user's path yields the data file of either kind of environment, or an error that names
// the path. No two databases share a provenance file.
#include "lmdbio/file/io/data_path.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

// The code of the error. Its message must start with the wrong path.
ErrorCode FailureOf(const std::string& path, const std::string& named) {
  const Result<std::string> found = FindDataFile(path);
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().message().starts_with(named + ": "));
  return found.error().code();
}

TEST_CASE("FindDataFile finds the file of either kind of environment", "[io][data-path]") {
  const TempDir dir;
  const std::string directory = dir.path();
  const std::string file = directory + "/data.mdb";
  test::WriteWholeFile(file, {});
  CHECK(FindDataFile(directory) == file);
  CHECK(FindDataFile(directory + "/") == file);
  CHECK(FindDataFile(file) == file);
  fs::create_symlink(file, directory + "/link");
  CHECK(FindDataFile(directory + "/link") == directory + "/link");
}

TEST_CASE("FindDataFile names the missing path", "[io][data-path]") {
  const TempDir dir;
  const std::string directory = dir.path();
  CHECK(FailureOf(directory + "/none", directory + "/none") == ErrorCode::kNotFound);
  CHECK(FindDataFile("").error().code() == ErrorCode::kNotFound);
  CHECK(FindDataFile("").error().message() == "the path is empty");
  CHECK(FindDataFile(directory).error().message() ==
        directory + ": the directory holds no data.mdb");
  CHECK(FailureOf(directory, directory) == ErrorCode::kNotFound);
  fs::create_symlink(directory + "/none", directory + "/data.mdb");
  CHECK(FailureOf(directory, directory) == ErrorCode::kNotFound);
  const std::string file = directory + "/file";
  test::WriteWholeFile(file, {});
  CHECK(FailureOf(file + "/data.mdb", file + "/data.mdb") == ErrorCode::kNotFound);
}

TEST_CASE("FindDataFile refuses pipes, devices and inner directories", "[io][data-path]") {
  const TempDir dir;
  const std::string directory = dir.path();
  const std::string pipe = directory + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(FailureOf(pipe, pipe) == ErrorCode::kInvalidArgument);  // without waiting for a writer
  CHECK(FailureOf("/dev/null", "/dev/null") == ErrorCode::kInvalidArgument);
  const std::string inner = directory + "/data.mdb";
  fs::create_directory(inner);
  CHECK(FailureOf(directory, inner) == ErrorCode::kInvalidArgument);
  const std::string endless(5000, 'x');
  CHECK(FailureOf(endless, endless) == ErrorCode::kInvalidArgument);
}

TEST_CASE("ProvenancePath is beside the data file", "[io][data-path]") {
  CHECK(ProvenancePath("dir/data.mdb", "") == "dir/data.mdb.prov");
  CHECK(ProvenancePath("dir/data.mdb", "train") == "dir/data.mdb.train.prov");
  CHECK(ProvenancePath("single", "Train-2_b") == "single.Train-2_b.prov");
}

TEST_CASE("ProvenancePath writes special bytes of a name as %XX", "[io][data-path]") {
  CHECK(ProvenancePath("d", "a b") == "d.a%20b.prov");
  CHECK(ProvenancePath("d", "../up") == "d.%2E%2E%2Fup.prov");
  CHECK(ProvenancePath("d", "100%") == "d.100%25.prov");
  CHECK(ProvenancePath("d", "%20") == "d.%2520.prov");
  CHECK(ProvenancePath("d", "\xC3\xA9") == "d.%C3%A9.prov");
  CHECK(ProvenancePath("d", std::string(1, '\0')) == "d.%00.prov");
  // The data path itself is not changed.
  CHECK(ProvenancePath("with space/d", "") == "with space/d.prov");
}

TEST_CASE("ProvenancePath is different for every database", "[io][data-path]") {
  std::set<std::string> paths{ProvenancePath("d", "")};
  size_t name_count = 1;
  const auto add = [&](const std::string& name) {
    const std::string path = ProvenancePath("d", name);
    CHECK(path.find('/') == std::string::npos);
    CHECK(path.find('\0') == std::string::npos);
    paths.insert(path);
    ++name_count;
  };
  for (int first = 0; first < 256; ++first) {
    add(std::string(1, static_cast<char>(first)));
    for (const char second : {'\0', '%', '.', '2', 'A', '\xFF'}) {
      add({static_cast<char>(first), second});
    }
  }
  CHECK(paths.size() == name_count);
}

}  // namespace
}  // namespace lmdbio::file
