// Goal: in a file that was loaded in order, the guess contains the pages of the next records and
// stays within the file. With scattered records there is no guess.
// Method: synthetic files with known pages of every record.
#include "lmdbio/load/locate/page_guess.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

// Consecutive values of one or more pages, with some tree pages between them.
struct OrderedFile {
  std::vector<PageSpan> values;
  uint64_t page_count = 2;

  OrderedFile(uint64_t count, uint64_t pages_min, uint64_t pages_max, uint64_t seed) {
    test::Random random(seed);
    for (uint64_t i = 0; i < count; ++i) {
      if (i % 150 == 0) page_count += 1;     // a leaf page, before its values
      if (i % 1000 == 999) page_count += 3;  // the end of a transaction
      const uint64_t pages = random.Between(pages_min, pages_max);
      values.push_back({page_count, page_count + pages});
      page_count += pages;
    }
  }

  ContiguousRangeFinder Found(uint64_t first, uint64_t count) const {
    ContiguousRangeFinder finder;
    for (uint64_t i = first; i < first + count; ++i) finder.Add({i}, values[i]);
    return finder;
  }
};

TEST_CASE("A guess holds the next records of a reader, of several that take turns",
          "[loader][guess]") {
  const uint64_t readers = GENERATE(1U, 2U, 8U, 16U);
  const uint64_t share = GENERATE(32U, 256U);
  const auto [least, most] =
      GENERATE(std::pair<uint64_t, uint64_t>{1, 1}, std::pair<uint64_t, uint64_t>{49, 49},
               std::pair<uint64_t, uint64_t>{2, 5});
  CAPTURE(readers, share, least, most);
  const OrderedFile file(40'000, least, most, 7);
  PageGuess guess(file.page_count);
  guess.Begin(file.values[0].begin, static_cast<double>(least + most) / 2);
  const uint64_t mine = readers / 2;
  uint64_t missed = 0;
  uint64_t needed = 0;
  uint64_t guessed_pages = 0;
  for (uint64_t batch = 0; (batch + 1) * readers * share <= 40'000 && batch < 40; ++batch) {
    const uint64_t first = (batch * readers + mine) * share;
    const PageSpan guessed = guess.Guess({first}, share);
    REQUIRE(guessed.end <= file.page_count);
    for (uint64_t i = first; batch >= 2 && i < first + share; ++i) {
      const PageSpan& value = file.values[i];
      if (value.begin < guessed.begin || value.end > guessed.end) ++missed;
      needed += value.page_count();
    }
    if (batch >= 2) guessed_pages += guessed.page_count();
    guess.Learn(file.Found(first, share));
  }
  CHECK(missed == 0);
  // The uncertainty grows with the distance.
  CHECK(static_cast<double>(guessed_pages) <
        static_cast<double>(needed) * (1.2 + 0.25 * static_cast<double>(readers)) + 1000);
}

TEST_CASE("A guess finds the start again, and ends with the file", "[loader][guess]") {
  const OrderedFile file(1000, 3, 3, 1);
  PageGuess guess(file.page_count);
  guess.Learn(file.Found(0, 100));
  guess.Learn(file.Found(900, 100));
  CHECK(guess.Guess({1000}, 100).end == file.page_count);
  const PageSpan again = guess.Guess({100}, 10);
  CHECK(again.begin <= file.values[100].begin);
  CHECK(again.end >= file.values[109].end);
  CHECK(again.page_count() < 60);
  CHECK(guess.Guess({5}, 0).page_count() == 0);
  CHECK(PageGuess(100).Guess({5}, 10).page_count() == 0);
}

// The values of a leaf page fill 7,350 pages here, and a guess must not hold those of other shares.
TEST_CASE("A guess of large values begins near the first of them", "[loader][guess]") {
  const OrderedFile file(1000, 49, 49, 1);
  PageGuess guess(file.page_count);
  guess.Learn(file.Found(0, 100));
  const PageSpan next = guess.Guess({100}, 100);
  CHECK(next.begin + 2 >= file.values[99].end);
  CHECK(next.end >= file.values[199].end);
  const PageSpan later = guess.Guess({300}, 100);
  CHECK(later.begin <= file.values[300].begin);
  CHECK(later.begin + 5 * 49 > file.values[300].begin);
  CHECK(later.end >= file.values[399].end);
}

TEST_CASE("A value in a page of an earlier transaction is passed over", "[loader][guess]") {
  const OrderedFile file(400, 1, 1, 1);
  ContiguousRangeFinder finder;
  for (uint64_t i = 0; i < 300; ++i) {
    finder.Add({i}, i % 50 == 20 ? PageSpan{7, 8} : file.values[i]);
  }
  CHECK(finder.first_record().value == 0);
  CHECK(finder.stretch_record_count() == 300);
  CHECK(finder.pages().end == file.values[299].end);
}

TEST_CASE("Nothing is guessed of a database that was not loaded in order", "[loader][guess]") {
  OrderedFile file(1000, 1, 1, 3);
  test::Random random(5);
  for (size_t i = file.values.size() - 1; i > 0; --i) {
    std::swap(file.values[i], file.values[random.Below(i + 1)]);
  }
  PageGuess guess(file.page_count);
  guess.Begin(file.values[0].begin, 1);
  guess.Learn(file.Found(0, 200));
  CHECK(guess.Guess({200}, 200).page_count() == 0);
}

}  // namespace
}  // namespace lmdbio::load
