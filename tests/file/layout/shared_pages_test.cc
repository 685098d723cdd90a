// Goal: pages that refer to themselves or to each other's children give an error, after at most as
// many reads as the file has pages. Whole passes find every page with two references. Method: the
// test redirects page numbers of sound files. A single cursor need not find a shared page, but it
// must terminate.
#include <algorithm>
#include <cstring>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/layout/record_scan.h"
#include "tests/file/layout/byte_map.h"
#include "tests/file/layout/open_database.h"
#include "tests/file/layout/small_files.h"
#include "tests/file/layout/whole_reading.h"
#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

using file::Cursor;

constexpr uint64_t kPageBytes = 512;
constexpr uint64_t kFlagsAt = 10;              // in a page header
constexpr uint64_t kMainInMetaPage = 16 + 72;  // in a meta page
constexpr uint64_t kDepthInRecord = 6;
constexpr uint64_t kRootInMain = 40;

// A file of data version 1 with pages of 512 bytes, which the test modifies.
class Forgery {
 public:
  explicit Forgery(const std::string& name)
      : source_(FindSmallFile(name).bytes, name),
        environment_(Value(file::Environment::Open(source_))),
        map_(environment_) {}

  // Offsets of the page numbers of a kind, in ascending order.
  std::vector<PageField> Fields(PageField::Names names) const {
    std::vector<PageField> fields;
    std::ranges::copy_if(map_.page_fields(), std::back_inserter(fields),
                         [&](const PageField& field) { return field.names == names; });
    return fields;
  }
  // Those on one page.
  std::vector<PageField> ChildrenOf(uint64_t page) const {
    std::vector<PageField> fields = Fields(PageField::Names::kChild);
    std::erase_if(fields, [&](const PageField& f) { return f.offset / kPageBytes != page; });
    return fields;
  }

  uint64_t Get(const PageField& field) {
    uint64_t page = 0;
    std::memcpy(&page, &source_.content()[field.offset], field.size_bytes());
    return page;
  }
  void Set(const PageField& field, uint64_t page) { Put(field.offset, page, field.size_bytes()); }
  void Put(uint64_t offset, uint64_t number, uint64_t size_bytes) {
    std::memcpy(&source_.content()[offset], &number, size_bytes);
  }

  // Offset of the record of the main database.
  uint64_t main_record() const {
    return environment_.snapshot().meta.page_no.value * kPageBytes + kMainInMetaPage;
  }
  uint64_t main_root() const { return environment_.snapshot().meta.main.root.value; }
  uint64_t page_count() const { return environment_.snapshot().page_count(); }
  uint64_t record_count() const { return environment_.snapshot().meta.main.entry_count; }
  MemorySource& source() { return source_; }

 private:
  static SmallFile FindSmallFile(const std::string& name) {
    for (SmallFile& file : SmallFiles()) {
      if (file.name == name) return std::move(file);
    }
    throw std::runtime_error("no small file is called " + name);
  }

  MemorySource source_;
  file::Environment environment_;  // of the sound file
  ByteMap map_;
};

// The error of a reading, which must be kCorruption, after a bounded number of reads: some for each
// page, and one for each value of a walk.
std::string ErrorThrough(Forgery& file, Door door) {
  const uint64_t before = file.source().counters().request_count;
  const Result<WholeReading> found = ReadWhole(file.source(), door);
  CHECK(file.source().counters().request_count - before <
        4 * file.page_count() + file.record_count() + 100);
  if (found) return "";
  CHECK(found.error().code() == ErrorCode::kCorruption);
  return found.error().message();
}

void CheckWholePassesFind(Forgery& file, const char* what) {
  CHECK_THAT(ErrorThrough(file, Door::kScan), ContainsSubstring(what));
  CHECK_THAT(ErrorThrough(file, Door::kWalk), ContainsSubstring(what));
  ErrorThrough(file, Door::kBackwards);  // must terminate, with any error
}

TEST_CASE("A branch page that is its own child is an error in every pass", "[layout][damage]") {
  Forgery file("plain-512");
  for (const PageField& child : file.ChildrenOf(file.main_root())) {
    file.Set(child, file.main_root());
  }
  SECTION("in a tree as deep as it was") {}
  SECTION("in a tree as deep as a cursor can go") {
    file.Put(file.main_record() + kDepthInRecord, file::kTreeDepthMax, 2);
  }
  CheckWholePassesFind(file, "stands in two places");
  CHECK_THAT(ErrorThrough(file, Door::kBackwards), ContainsSubstring("branch page on level"));
}

// Twenty levels of branch pages with equal children would have millions of leaves.
TEST_CASE("Branch pages that share children do not multiply the reads", "[layout][damage]") {
  constexpr uint64_t kLevels = 20;
  Forgery file("plain-512");
  const std::vector<PageField> children = file.ChildrenOf(file.main_root());
  REQUIRE(children.size() > 1);
  REQUIRE(file.page_count() > 2 + kLevels);
  std::vector<std::byte>& content = file.source().content();
  const std::vector<std::byte> root(
      content.begin() + static_cast<std::ptrdiff_t>(file.main_root() * kPageBytes),
      content.begin() + static_cast<std::ptrdiff_t>((file.main_root() + 1) * kPageBytes));
  uint64_t leaf = 2 + kLevels;
  while (content[leaf * kPageBytes + kFlagsAt] != std::byte{2}) ++leaf;
  for (uint64_t level = 0; level + 1 < kLevels; ++level) {
    const uint64_t page = 2 + level;
    std::ranges::copy(root, content.begin() + static_cast<std::ptrdiff_t>(page * kPageBytes));
    file.Put(page * kPageBytes, page, 8);
    for (const PageField& child : children) {
      const uint64_t in_page = child.offset % kPageBytes;
      file.Put(page * kPageBytes + in_page, level + 2 < kLevels ? page + 1 : leaf, 6);
    }
  }
  file.Put(leaf * kPageBytes, leaf, 8);
  file.Put(file.main_record() + kDepthInRecord, kLevels, 2);
  file.Put(file.main_record() + kRootInMain, 2, 8);

  const file::Database main = Value(file::Environment::Open(file.source())).Main();
  file::RecordScan scan(main);
  Result<bool> scanned = scan.Next();
  while (scanned && *scanned) scanned = scan.Next();
  REQUIRE_FALSE(scanned.has_value());
  CHECK_THAT(scanned.error().message(), ContainsSubstring("stands in two places"));
  file::LayoutBuilder builder;
  const auto walked = file::WalkDatabase(main, builder);
  REQUIRE_FALSE(walked.has_value());
  CHECK_THAT(walked.error().message(), ContainsSubstring("stands in two places"));
  for (const bool forwards : {true, false}) {
    const uint64_t before = file.source().counters().request_count;
    Cursor cursor(main);
    Result<bool> found = forwards ? cursor.First() : cursor.Last();
    while (found && *found) found = forwards ? cursor.Next() : cursor.Prev();
    REQUIRE_FALSE(found.has_value());
    CHECK_THAT(found.error().message(), ContainsSubstring("is reached repeatedly"));
    CHECK(file.source().counters().request_count - before <= file.page_count());
  }
}

TEST_CASE("A leaf with two parents is found by whole passes", "[layout][damage]") {
  Forgery file("plain-512");
  const std::vector<PageField> children = file.Fields(PageField::Names::kChild);
  const PageField last = children.back();
  const std::vector<PageField> siblings = file.ChildrenOf(last.offset / kPageBytes);
  REQUIRE(siblings.size() > 1);
  file.Set(siblings[0], file.Get(siblings[1]));
  CheckWholePassesFind(file, "stands in two places");
}

TEST_CASE("An overflow run with two values is found by whole passes", "[layout][damage]") {
  Forgery file("plain-512");
  const std::vector<PageField> runs = file.Fields(PageField::Names::kRun);
  REQUIRE(runs.size() > 1);
  file.Set(runs[0], file.Get(runs[1]));
  const std::string scanned = ErrorThrough(file, Door::kScan);
  CHECK_THAT(scanned, ContainsSubstring("two") || ContainsSubstring("cannot hold"));
  CHECK_THAT(ErrorThrough(file, Door::kWalk),
             ContainsSubstring("two places") || ContainsSubstring("cannot hold"));
}

TEST_CASE("A tree of duplicates that is the main tree is refused", "[layout][damage]") {
  Forgery file("dupsort-512");
  const std::vector<PageField> roots = file.Fields(PageField::Names::kRoot);
  const auto in_leaf = std::ranges::find_if(
      roots, [](const PageField& field) { return field.offset >= 2 * kPageBytes; });
  REQUIRE(in_leaf != roots.end());
  SECTION("its root") { file.Set(*in_leaf, file.main_root()); }
  SECTION("the leaf that describes it") {
    file.Set(*in_leaf, in_leaf->offset / kPageBytes);
    file.Put(in_leaf->offset - kRootInMain + kDepthInRecord, 1, 2);
  }
  CheckWholePassesFind(file, "stands in two places");
  CHECK_FALSE(ErrorThrough(file, Door::kBackwards).empty());
}

TEST_CASE("Two keys with one tree of duplicates are found by whole passes", "[layout][damage]") {
  Forgery file("dupsort-512");
  std::vector<PageField> roots = file.Fields(PageField::Names::kRoot);
  std::erase_if(roots, [](const PageField& field) { return field.offset < 2 * kPageBytes; });
  REQUIRE(roots.size() == 2);
  const uint64_t record_bytes = file::kDatabaseRecordBytes;
  std::vector<std::byte>& content = file.source().content();
  std::memcpy(&content[roots[0].offset - kRootInMain], &content[roots[1].offset - kRootInMain],
              record_bytes);
  CheckWholePassesFind(file, "stands in two places");
}

}  // namespace
}  // namespace lmdbio::test
