// The count of pages that a guess has missed, and of those that were not needed.
#include "lmdbio/load/locate/speculative_fetch.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

file::RecordLocation At(uint64_t leaf, uint32_t node, uint64_t value_page, uint64_t bytes) {
  file::RecordLocation location;
  location.leaf = PageNo{leaf};
  location.node = node;
  location.value = {value_page * 4096 + 16, bytes};
  return location;
}

TEST_CASE("pages are missed or redundant, page by page", "[locate]") {
  FetchedPages pages;
  pages.Begin({10, 20});
  pages.AddOthers({30, 32});
  pages.AddOthers({19, 21});  // 19 is in the guess
  pages.AddOthers({30, 31});  // again
  pages.Sort();
  CHECK(pages.redundant() == 13);
  pages.Count({12, 14});
  CHECK(pages.redundant() == 11);
  CHECK(pages.missed() == 0);
  pages.Count({18, 22});  // 21 was not fetched
  CHECK(pages.missed() == 1);
  CHECK(pages.redundant() == 8);
  pages.Count({31, 34});
  CHECK(pages.missed() == 3);
  CHECK(pages.redundant() == 7);
  CHECK(pages.Covers({10, 20}));
  CHECK_FALSE(pages.Covers({19, 21}));
  pages.Begin({});
  CHECK(pages.missed() == 0);
  CHECK(pages.redundant() == 0);
}

TEST_CASE("a leaf page counts once for neighbouring records", "[locate]") {
  FetchedPages pages;
  pages.Begin({100, 104});
  LocationTally tally(4096, pages);
  tally.Add({7}, At(5, 0, 100, 8000));  // pages 100 and 101
  tally.Add({8}, At(5, 1, 102, 8000));
  CHECK(pages.missed() == 1);  // the leaf
  CHECK(pages.redundant() == 0);
  CHECK(tally.last_leaf() == PageNo{5});
  CHECK(tally.values().pages().begin == 100);
  CHECK(tally.values().pages().end == 104);
  tally.Add({9}, At(104, 0, 104, 100));  // the value is on its leaf page
  CHECK(pages.missed() == 2);
}

}  // namespace
}  // namespace lmdbio::load
