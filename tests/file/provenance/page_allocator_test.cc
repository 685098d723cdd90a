// Compares the page allocator with sequences derived by hand from the rules in docs/replay.md.
// replay_test.cc shows that LMDB obeys these rules.
#include "lmdbio/file/provenance/page_allocator.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::file {
namespace {

constexpr PageFormat kFormat(DataVersion::k1, 4096);

// A committed transaction that replaces each of `pages`; returns the new ones.
std::vector<uint64_t> ReplaceAll(PageAllocator& allocator, const std::vector<uint64_t>& pages) {
  allocator.BeginTransaction();
  std::vector<uint64_t> copies;
  for (const uint64_t page : pages) copies.push_back(allocator.Replace(PageNo{page}).value);
  REQUIRE(allocator.Commit().has_value());
  return copies;
}

using Pages = std::vector<uint64_t>;

}  // namespace

// Goal: a page that transaction t freed is reused in transaction t + 2, never before.
TEST_CASE("PageAllocator reuses a freed page after two transactions", "[provenance]") {
  PageAllocator allocator(kFormat);

  allocator.BeginTransaction();
  CHECK(allocator.Allocate(1) == PageNo{2});
  REQUIRE(allocator.Commit().has_value());
  CHECK(allocator.last_page() == PageNo{2});  // nothing was freed, so there is no free list

  CHECK(ReplaceAll(allocator, {2}) == Pages{3});
  CHECK(allocator.last_page() == PageNo{4});  // the free list's page
  CHECK(ReplaceAll(allocator, {3}) == Pages{5});
  CHECK(allocator.last_page() == PageNo{6});  // its copy: 2 is free, but not yet for transaction 3
  CHECK(ReplaceAll(allocator, {5}) == Pages{2});
  CHECK(allocator.last_page() == PageNo{7});  // transaction 3's 3 and 4 may not be used yet
  CHECK(ReplaceAll(allocator, {2}) == Pages{3});
  CHECK(allocator.last_page() == PageNo{7});  // and now they are: 4 became the free list's page
  CHECK(allocator.transaction_count() == 5);
}

// Goal: many runs at once come from the end of the file, exactly if single calls would take them
// there.
TEST_CASE("PageAllocator allocates runs at the end only if no free page may be used",
          "[provenance]") {
  PageAllocator allocator(kFormat);
  allocator.BeginTransaction();
  CHECK(allocator.AllocateAtEnd(2, 3) == PageNo{2});
  CHECK(allocator.last_page() == PageNo{7});
  REQUIRE(allocator.Commit().has_value());
  REQUIRE(ReplaceAll(allocator, {2}) == Pages{8});
  REQUIRE(ReplaceAll(allocator, {8}) == Pages{10});
  REQUIRE(allocator.last_page() == PageNo{11});

  allocator.BeginTransaction();
  CHECK_FALSE(allocator.AllocateAtEnd(1, 5).has_value());  // 2 may be loaded
  CHECK(allocator.Allocate(2) == PageNo{12});              // loads 2, and does not need it
  CHECK_FALSE(allocator.AllocateAtEnd(1, 5).has_value());
  CHECK(allocator.AllocateAtEnd(2, 2) == PageNo{14});
  CHECK(allocator.Allocate(1) == PageNo{2});
  CHECK(allocator.AllocateAtEnd(1, 5) == PageNo{18});
}

// Goal: a run is taken from free pages only if they are consecutive, and then the lowest such run.
TEST_CASE("PageAllocator takes the lowest run of consecutive free pages", "[provenance]") {
  PageAllocator allocator(kFormat);
  allocator.BeginTransaction();
  REQUIRE(allocator.Allocate(8) == PageNo{2});
  REQUIRE(allocator.Commit().has_value());
  REQUIRE(ReplaceAll(allocator, {2, 4, 5, 7, 8, 9}) == Pages{10, 11, 12, 13, 14, 15});
  REQUIRE(allocator.last_page() == PageNo{16});
  REQUIRE(ReplaceAll(allocator, {10}) == Pages{17});
  REQUIRE(allocator.last_page() == PageNo{18});

  allocator.BeginTransaction();
  CHECK(allocator.Allocate(4) == PageNo{19});
  CHECK(allocator.Allocate(2) == PageNo{4});
  CHECK(allocator.Allocate(3) == PageNo{7});
  CHECK(allocator.Allocate(2) == PageNo{23});
  CHECK(allocator.Allocate(1) == PageNo{2});
  CHECK(allocator.Allocate(1) == PageNo{25});
}

// Goal: free pages that a transaction loaded but did not use are available to the next one.
TEST_CASE("PageAllocator writes unused free pages back", "[provenance]") {
  PageAllocator allocator(kFormat);
  allocator.BeginTransaction();
  REQUIRE(allocator.Allocate(5) == PageNo{2});
  REQUIRE(allocator.Commit().has_value());
  REQUIRE(ReplaceAll(allocator, {2, 3, 4, 5}) == Pages{7, 8, 9, 10});
  REQUIRE(allocator.last_page() == PageNo{11});
  REQUIRE(ReplaceAll(allocator, {7}) == Pages{12});
  REQUIRE(allocator.last_page() == PageNo{13});

  CHECK(ReplaceAll(allocator, {8}) == Pages{2});         // loads 2 to 5; the free list takes 3
  CHECK(ReplaceAll(allocator, {9, 10}) == Pages{4, 5});  // those left over, then 7 and 11
  CHECK(allocator.last_page() == PageNo{13});
}

// Goal: as in LMDB, the search continues with the next record if the loaded pages are enough but
// not consecutive.
TEST_CASE("PageAllocator joins free pages of several transactions into a run", "[provenance]") {
  PageAllocator allocator(kFormat);
  allocator.BeginTransaction();
  REQUIRE(allocator.Allocate(8) == PageNo{2});
  REQUIRE(allocator.Commit().has_value());
  REQUIRE(ReplaceAll(allocator, {3, 5}) == Pages{10, 11});
  REQUIRE(ReplaceAll(allocator, {4, 7}) == Pages{13, 14});
  ReplaceAll(allocator, {});

  allocator.BeginTransaction();
  CHECK(allocator.Allocate(2) == PageNo{3});  // 3 and 5 come first, then 4
  CHECK(allocator.Allocate(1) == PageNo{5});
}

// Goal: the allocator reports the limit of the model. LMDB would move a free list record of more
// than 251 pages, 8 + 8 + 8 * 252 bytes, to overflow pages of the free list.
TEST_CASE("PageAllocator refuses a free list record larger than a node", "[provenance]") {
  const auto commit_replacing = [](uint64_t page_count) {
    PageAllocator allocator(kFormat);
    allocator.BeginTransaction();
    allocator.Allocate(page_count);
    REQUIRE(allocator.Commit().has_value());
    allocator.BeginTransaction();
    for (uint64_t i = 0; i < page_count; ++i) allocator.Replace(PageNo{2 + i});
    return allocator.Commit();
  };

  CHECK(commit_replacing(251).has_value());
  const Status status = commit_replacing(252);
  REQUIRE_FALSE(status.has_value());
  CHECK(status.error().code() == ErrorCode::kUnsupported);
}

// Goal: the same for three records that fit into nodes but not onto one page. A record of n pages
// takes 2 + 8 + 8 + 8 * (1 + n) = 26 + 8 n bytes, and there are 4080.
TEST_CASE("PageAllocator refuses a free list larger than one page", "[provenance]") {
  const auto commit_after_freeing = [](uint64_t first_count) {
    PageAllocator allocator(kFormat);
    allocator.BeginTransaction();
    allocator.Allocate(600);
    REQUIRE(allocator.Commit().has_value());
    Pages pages(first_count);
    std::iota(pages.begin(), pages.end(), 2);
    ReplaceAll(allocator, pages);
    pages.resize(250);
    std::iota(pages.begin(), pages.end(), 300);
    ReplaceAll(allocator, pages);  // lists 251 with the free list's old page
    allocator.BeginTransaction();
    for (uint64_t i = 0; i < 100; ++i) allocator.Replace(PageNo{560 + i});
    return allocator.Commit();  // lists 101, and first_count - 101 that it loaded and did not use
  };

  CHECK(commit_after_freeing(249).has_value());  // 251 + 101 + 148 pages in 4078 bytes
  const Status status = commit_after_freeing(250);
  REQUIRE_FALSE(status.has_value());
  CHECK(status.error().code() == ErrorCode::kUnsupported);
}

}  // namespace lmdbio::file
