// Goal: the layout of a walked database serves later jobs, and nothing in the folder can make a
// job fail or deliver other records.
// Method: two loaders, one after the other, on databases with enough leaf pages. liblmdb is the
// oracle of the records, Loader::Describe tells how they were located.
#include "lmdbio/load/kept/layout_cache.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;
using load::LayoutCache;
using load::Loader;
using load::LoaderOptions;

// About 300 leaf pages.
void FillLeaves(TinyDb& db, uint64_t count = 6000) {
  Random random(5);
  for (uint64_t i = 0; i < count; ++i) db.Put(fmt::format("{:08}", i), random.BytesOf(180));
  db.Commit();
}

struct Served {
  std::string how;
  std::vector<std::string> notes;
};

// Reads one epoch, compares it with liblmdb, and closes the loader.
Served Serve(const fs::path& data_file, const std::string& layout_cache) {
  LoaderOptions options;
  options.layout_cache = layout_cache;
  options.allow_map = false;
  options.global_batch_size = 500;
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*solo, data_file.string(), options));
  const std::vector<KeyValue> expected = LmdbRecords(data_file);
  std::vector<KeyValue> records;
  while (records.size() < expected.size()) {
    REQUIRE(Good(loader->Next()));
    const load::Batch& batch = loader->batch();
    for (size_t i = 0; i < batch.record_count(); ++i) {
      records.emplace_back(AsText(batch.key(i)), AsText(batch.value(i)));
    }
  }
  CHECK(records == expected);
  return {loader->Describe(), loader->TakeNotes()};
}

std::vector<fs::path> FilesIn(const fs::path& folder) {
  if (!fs::exists(folder)) return {};
  return {fs::directory_iterator(folder), fs::directory_iterator()};
}

// Sets an environment variable for a scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

constexpr auto kWalk = "a page walk";
constexpr auto kKept = "a kept layout";
constexpr auto kAlone = "each rank reads for itself";

TEST_CASE("A second job uses the layout that the first one kept", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  const std::string folder = dir.path() / "a" / "cache";  // is created

  CHECK_THAT(Serve(db.data_file(), folder).how, StartsWith(kWalk));
  REQUIRE(FilesIn(folder).size() == 1);
  const Served second = Serve(db.data_file(), folder);
  CHECK_THAT(second.how, StartsWith(kKept));
  CHECK(second.notes.empty());

  // Another commit is another state.
  db.Put("zzz", "new").Commit();
  CHECK_THAT(Serve(db.data_file(), folder).how, StartsWith(kWalk));
  CHECK_THAT(Serve(db.data_file(), folder).how, StartsWith(kKept));
  CHECK(FilesIn(folder).size() == 2);
}

// Both files have the same size, the same tree and the same sampled leaf pages.
TEST_CASE("A database that was made again in another way has no kept layout", "[layout_cache]") {
  const TempDir dir;
  const auto make = [&](uint64_t odd_bytes) {
    fs::remove(dir.path() / "data.mdb");
    fs::remove(dir.path() / "lock.mdb");
    TinyDb db(dir.path());
    Random random(6);
    for (uint64_t i = 0; i < 60'000; ++i) {
      db.Put(fmt::format("{:08}", i), random.BytesOf(i == 7777 ? odd_bytes : 3000));
    }
    db.Commit();
    return db.data_file();
  };
  const std::string folder = dir.path() / "cache";
  Serve(make(3000), folder);
  CHECK_THAT(Serve(make(3010), folder).how, StartsWith(kWalk));
}

TEST_CASE("Layouts are not kept without need", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  SECTION("switched off") {
    FillLeaves(db);
    const Variable variable("LMDBIO_CACHE", dir.path() / "cache");
    CHECK_THAT(Serve(db.data_file(), "off").how, StartsWith(kWalk));
  }
  SECTION("switched off for all jobs") {
    FillLeaves(db);
    const Variable variable("LMDBIO_CACHE", "off");
    const Variable home("XDG_CACHE_HOME", dir.path() / "cache");
    CHECK_THAT(Serve(db.data_file(), "").how, StartsWith(kWalk));
  }
  SECTION("a small database") {
    FillLeaves(db, 500);
    CHECK_THAT(Serve(db.data_file(), dir.path() / "cache").how, StartsWith(kWalk));
  }
  CHECK(FilesIn(dir.path() / "cache").empty());
}

TEST_CASE("The folder is that of the option, the variable or the user", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  const Variable named("LMDBIO_CACHE", dir.path() / "named");
  const Variable cache("XDG_CACHE_HOME", dir.path() / "cache");
  const Variable home("HOME", dir.path() / "home");

  Serve(db.data_file(), dir.path() / "option");
  CHECK(FilesIn(dir.path() / "option").size() == 1);
  Serve(db.data_file(), "");
  CHECK(FilesIn(dir.path() / "named").size() == 1);
  ::unsetenv("LMDBIO_CACHE");
  Serve(db.data_file(), "");
  CHECK(FilesIn(dir.path() / "cache/lmdbio").size() == 1);
  ::unsetenv("XDG_CACHE_HOME");
  Serve(db.data_file(), "");
  CHECK(FilesIn(dir.path() / "home/.cache/lmdbio").size() == 1);
  ::unsetenv("HOME");
  CHECK_FALSE(LayoutCache::Of("").has_value());
}

TEST_CASE("A kept layout that does not fit is replaced", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  const std::string folder = dir.path() / "cache";
  Serve(db.data_file(), folder);
  const fs::path file = FilesIn(folder).front();
  const std::vector<std::byte> good = ReadWholeFile(file);

  std::vector<std::byte> bad = good;
  SECTION("cut short") { bad.resize(bad.size() / 2); }
  SECTION("empty") { bad.clear(); }
  SECTION("one byte is changed") { bad[bad.size() / 2] ^= std::byte{1}; }
  SECTION("of another database") {
    const TempDir other_dir;
    TinyDb other(other_dir.path());
    FillLeaves(other, 7000);
    Serve(other.data_file(), other_dir.path() / "cache");
    bad = ReadWholeFile(FilesIn(other_dir.path() / "cache").front());
  }
  WriteWholeFile(file, bad);
  const Served served = Serve(db.data_file(), folder);
  CHECK_THAT(served.how, StartsWith(kWalk));
  REQUIRE(served.notes.size() == 1);
  CHECK_THAT(served.notes.front(), ContainsSubstring("using a page walk instead"));
  CHECK(ReadWholeFile(file) == good);
}

TEST_CASE("A folder that cannot be written prevents nothing", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  WriteWholeFile(dir.path() / "file", {});
  const fs::path folder = dir.path() / "file/cache";  // below a regular file

  const auto cache = LayoutCache::Of(folder);
  REQUIRE(cache.has_value());
  CHECK(cache->is_named());
  CHECK_THAT(Serve(db.data_file(), folder).how, StartsWith(kWalk));
}

TEST_CASE("A kept layout may vanish while a loader is open", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  const std::string folder = dir.path() / "cache";
  Serve(db.data_file(), folder);
  LoaderOptions options;
  options.layout_cache = folder;
  options.allow_map = false;
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*solo, db.data_file().string(), options));
  CHECK_THAT(loader->Describe(), StartsWith(kKept));
  Good(loader->Next());
  fs::remove_all(folder);
  REQUIRE(loader->SetEpoch(3));
  Good(loader->Next());
  CHECK_THAT(loader->Describe(), StartsWith(kWalk));
}

// In place, on several ranks.
TEST_CASE("Ranks that read for themselves use a kept layout until it vanishes", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  LoaderOptions options;
  options.layout_cache = dir.path() / "cache";
  options.global_batch_size = 100;
  options.max_batches = 90;
  Serve(db.data_file(), options.layout_cache);
  const Delivered got = Deliver({2, 64}, db.data_file(), options);
  CHECK(got.records == Expected(db.data_file(), options));
  std::array<std::string, 2> before;
  std::array<std::string, 2> after;
  ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto loader = Loader::Open(group, db.data_file().string(), options);
    if (!loader || !(*loader)->Next()) std::terminate();
    before[rank] = (*loader)->Describe();
    if (!group.Barrier()) std::terminate();
    if (rank == 0) fs::remove_all(options.layout_cache);
    if (!group.Barrier() || !(*loader)->SetEpoch(3) || !(*loader)->Next()) std::terminate();
    after[rank] = (*loader)->Describe();
  });
  for (const size_t rank : {0, 1}) {
    CHECK_THAT(before[rank], StartsWith(kKept));
    CHECK(before[rank].find(kAlone) != std::string::npos);
    CHECK_THAT(after[rank], StartsWith(kWalk));
    CHECK(after[rank].find(kAlone) == std::string::npos);
  }
}

TEST_CASE("The oldest layouts leave a full folder", "[layout_cache]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillLeaves(db);
  const fs::path folder = dir.path() / "cache";
  fs::create_directory(folder);
  WriteWholeFile(folder / "0123456789abcdef.prov", {});
  WriteWholeFile(folder / "data.mdb.prov", {});  // not ours
  fs::resize_file(folder / "0123456789abcdef.prov", load::KeptFolder::kBytesMax);
  fs::resize_file(folder / "data.mdb.prov", load::KeptFolder::kBytesMax);
  fs::last_write_time(folder / "0123456789abcdef.prov",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));

  Serve(db.data_file(), folder);

  CHECK_FALSE(fs::exists(folder / "0123456789abcdef.prov"));
  CHECK(fs::exists(folder / "data.mdb.prov"));
  CHECK_THAT(Serve(db.data_file(), folder).how, StartsWith(kKept));
}

}  // namespace
}  // namespace lmdbio::test
