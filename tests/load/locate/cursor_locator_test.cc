// Goal: the walker of lmm-dio has the next leaf pages fetched before it needs them, and no value.
// Method: a file that was evicted from the page cache. The oracle is the page cache itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/locate/locator.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

constexpr uint64_t kRecordCount = 4000;
constexpr uint64_t kValueBytes = 3080;

// A data file and its pages in the page cache.
class CachedFile {
 public:
  explicit CachedFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
        size_bytes_(std::filesystem::file_size(path)) {}

  // False if this file system keeps its pages, or the kernel does not tell.
  bool Evict() const {
    ::fsync(fd_.get());
    if (!IsCached({0, 4096})) return false;
    ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
    return !IsCached({0, 4096});
  }

  bool IsCached(const Extent& extent) const {
    return file::IsCached(fd_.get(), size_bytes_, extent);
  }

  uint64_t CountCached(const std::vector<Extent>& extents) const {
    return static_cast<uint64_t>(std::count_if(extents.begin(), extents.end(),
                                               [&](const Extent& one) { return IsCached(one); }));
  }

  // Reads that the kernel was asked for arrive later.
  bool AwaitCached(const Extent& extent) const {
    for (int tries = 0; tries < 2000 && !IsCached(extent); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return IsCached(extent);
  }

 private:
  UniqueFd fd_;
  uint64_t size_bytes_;
};

class WalkedValues final : public file::RecordRunSink {
 public:
  Status Add(const file::RecordRun& run) override {
    all.insert(all.end(), run.values.begin(), run.values.end());
    last_leaf = run.leaf;
    return {};
  }
  std::vector<Extent> all;
  PageNo last_leaf;
};

std::vector<Extent> LeafExtents(const std::string& path) {
  const auto source = Good(file::FileSource::Open(path));
  const auto environment = Good(file::Environment::Open(*source));
  file::PageClaims claims(environment.snapshot().page_count());
  std::vector<Extent> extents;
  for (const PageNo leaf : Good(file::ListLeaves(environment.Main(), claims))) {
    extents.push_back({leaf.value * 4096, 4096});
  }
  return extents;
}

// The values in memory pages that hold nothing else. Any other is cached with its leaf page.
std::vector<Extent> ValuesBesideValues(const std::vector<Extent>& values) {
  std::map<uint64_t, uint64_t> value_bytes;  // by memory page; each value has a page of 4 KiB
  for (const Extent& value : values) value_bytes[value.offset / MemoryPageBytes()] += 4096;
  std::vector<Extent> found;
  std::copy_if(values.begin(), values.end(), std::back_inserter(found), [&](const Extent& value) {
    return value_bytes[value.offset / MemoryPageBytes()] >= MemoryPageBytes();
  });
  return found;
}

// liblmdb has closed the file when this returns: pages that a process maps cannot be evicted.
std::string WriteDatabase(const std::filesystem::path& directory) {
  TinyDb db(directory);
  Random random(1);
  for (uint64_t i = 0; i < kRecordCount; ++i) {
    db.Put(fmt::format("{:08}", i), random.BytesOf(kValueBytes));
  }
  db.Commit();
  return db.data_file().string();
}

TEST_CASE("A walker fetches leaf pages ahead, and no values", "[locate][cursor]") {
  const TempDir dir;
  const std::string path = WriteDatabase(dir.path());
  const std::vector<Extent> leaves = LeafExtents(path);
  REQUIRE(leaves.size() > 20);
  const CachedFile cached(path);
  if (!cached.Evict()) {
    WARN("skipped: this file system or kernel does not let pages be evicted and counted");
    return;
  }
  const auto walker = Good(load::OpenCursorLocator(path, "", load::CursorFetch::kLeaves, nullptr));
  WalkedValues values;
  REQUIRE(walker->Locate({0}, 1, values));
  // The first leaf page is in use. The next four arrive without a touch, later ones do not.
  for (size_t i = 1; i <= 4; ++i) CHECK(cached.AwaitCached(leaves[i]));
  CHECK(!cached.IsCached(leaves[6]));
  // The walk requests as many leaf pages ahead as it has used, and new ones when half are left.
  uint64_t located = 1;
  for (; located < kRecordCount / 2; ++located) REQUIRE(walker->Locate({located}, 1, values));
  const auto at = std::find_if(leaves.begin(), leaves.end(), [&](const Extent& leaf) {
    return leaf.offset == values.last_leaf.value * 4096;
  });
  REQUIRE(leaves.end() - at > 8);
  for (int i = 1; i <= 4; ++i) CHECK(cached.AwaitCached(at[i]));
  REQUIRE(walker->Locate({located}, kRecordCount - located, values));
  CHECK(values.all.size() == kRecordCount);
  CHECK(cached.CountCached(leaves) == leaves.size());
  const std::vector<Extent> untouched = ValuesBesideValues(values.all);
  CHECK(untouched.size() > kRecordCount / 4);
  CHECK(cached.CountCached(untouched) == 0);
}

TEST_CASE("A malformed cursor of another reader is refused", "[locator]") {
  load::HandedCursor cursor;
  cursor.record = 7;
  cursor.is_standing = true;
  const Bytes whole = std::as_bytes(std::span(&cursor, 1));
  CHECK(Good(load::HandedCursorIn(whole)).record == 7);
  CHECK(load::HandedCursorIn(whole.first(whole.size() - 1)).error().code() ==
        ErrorCode::kCorruption);
  std::vector<std::byte> forged(whole.begin(), whole.end());
  forged[offsetof(load::HandedCursor, is_standing)] = std::byte{2};  // neither false nor true
  CHECK(load::HandedCursorIn(forged).error().code() == ErrorCode::kCorruption);
}

}  // namespace
}  // namespace lmdbio::test
