// Goal: the other readers of a host get each part of the layout as one reader published it, and the
// outcome of its search.
// Method: the readers are threads; the layouts have random runs.
#include "lmdbio/load/locate/shared_layout.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "lmdbio/load/locate/locator.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

using PartLookup = SharedLayout::PartLookup;

file::Layout AnyLayout(uint64_t seed, uint64_t record_count) {
  test::Random random(seed);
  file::LayoutBuilder builder;
  while (builder.record_count() < record_count) {
    const uint64_t left = record_count - builder.record_count();
    std::vector<Extent> values(std::min<uint64_t>(left, random.Between(1, 50)));
    for (Extent& value : values) value = {random.Next() >> 2, random.Next() >> 34};
    const PageNo leaf{random.Below(1 << 30)};
    REQUIRE(builder.Add({{builder.record_count()},
                         leaf,
                         static_cast<uint32_t>(random.Below(99)),
                         file::RunKind::kNodes,
                         leaf,
                         values,
                         {}}));
  }
  return builder.Finish();
}

// Runs as text, to be compared.
class Listed final : public file::RecordRunSink {
 public:
  Status Add(const file::RecordRun& run) override {
    for (const Extent& value : run.values) {
      values.push_back(run.leaf.value ^ (uint64_t{run.first_node} << 40));
      values.push_back(value.offset);
      values.push_back(value.length_bytes);
    }
    values.push_back(run.first_record.value);
    return {};
  }
  std::vector<uint64_t> values;
};

std::vector<uint64_t> ListOf(const file::Layout& layout) {
  Listed list;
  REQUIRE(layout.Expand(list));
  return list.values;
}

std::vector<uint64_t> Memory(uint64_t record_count) {
  return std::vector<uint64_t>(SharedLayout::BytesNeeded(record_count) / 8 + 1, 0);
}

MutableBytes BytesOf(std::vector<uint64_t>& memory) {
  return std::as_writable_bytes(std::span(memory));
}

TEST_CASE("An image gives the same layout, without a copy", "[loader][host_layout]") {
  for (const uint64_t count : {0U, 1U, 127U, 128U, 5000U}) {
    const file::Layout layout = AnyLayout(count, count);
    std::vector<uint64_t> memory(layout.image_bytes() / 8 + 100, ~uint64_t{0});
    layout.WriteImage(BytesOf(memory).first(layout.image_bytes()));
    const file::Layout image = file::Layout::OfImage(BytesOf(memory));
    CHECK(ListOf(image) == ListOf(layout));
    const file::Layout copy = image;
    CHECK(copy.record_count() == count);
    if (count > 0) {
      memory.assign(memory.size(), 0);  // the copy looks into it too
      CHECK(ListOf(copy) != ListOf(layout));
    }
  }
}

TEST_CASE("Readers get the parts as they were published, also if they wait for them",
          "[loader][host_layout]") {
  auto memory = Memory(20'000);
  SharedLayout finder(BytesOf(memory));
  std::atomic<bool> stop{false};
  std::vector<std::vector<uint64_t>> got;
  std::vector<uint64_t> firsts;
  std::thread user([&] {
    const SharedLayout host(BytesOf(memory));
    SharedLayout::Piece piece;
    while (true) {
      const auto found = host.Await(got.size(), stop, piece);
      if (!found || *found != PartLookup::kPiece) break;
      Listed list;
      static_cast<void>(piece.layout.Expand(list));
      got.push_back(list.values);
      firsts.push_back(piece.first_record);
    }
  });
  std::vector<std::vector<uint64_t>> expected;
  for (uint64_t i = 0; i < 20; ++i) {
    const file::Layout piece = AnyLayout(i, 1000);
    const auto here = finder.Publish(i * 1000, piece);
    REQUIRE(here);
    CHECK(ListOf(*here) == ListOf(piece));
    expected.push_back(ListOf(piece));
    if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  finder.End({});
  user.join();
  CHECK(got == expected);
  CHECK(firsts.back() == 19'000);
}

TEST_CASE("Users learn how finding ended", "[loader][host_layout]") {
  auto memory = Memory(0);
  SharedLayout host(BytesOf(memory));
  std::atomic<bool> stop{false};
  SharedLayout::Piece piece;
  SECTION("with the last piece") {
    host.End({});
    CHECK(host.Await(0, stop, piece) == PartLookup::kEnd);
  }
  SECTION("with an error, in its words") {
    REQUIRE(host.Publish(0, AnyLayout(1, 10)));
    host.End(Fail(ErrorCode::kCorruption, "page 7 is no leaf", EILSEQ));
    CHECK(host.Await(0, stop, piece) == PartLookup::kPiece);  // published parts stay
    const auto found = host.Await(1, stop, piece);
    REQUIRE(!found);
    CHECK(found.error().code() == ErrorCode::kCorruption);
    CHECK(found.error().message() == "page 7 is no leaf");
    CHECK(found.error().error_number() == EILSEQ);
  }
  SECTION("because there was no room") {
    REQUIRE(host.Publish(0, AnyLayout(1, 10)));
    CHECK(!host.Publish(10, AnyLayout(2, 200'000)));
    CHECK(!host.Publish(200'010, AnyLayout(3, 10)));
    host.End({});
    CHECK(host.Await(0, stop, piece) == PartLookup::kPiece);
    CHECK(host.Await(1, stop, piece) == PartLookup::kNoRoom);
  }
  SECTION("never, but they are stopped") {
    std::thread stopper([&] { stop.store(true); });
    CHECK(host.Await(0, stop, piece) == PartLookup::kStopped);
    stopper.join();
  }
}

TEST_CASE("A reader finds records alone where the host has no room for all",
          "[loader][host_layout]") {
  auto memory = Memory(0);
  SharedLayout host(BytesOf(memory));
  const file::Layout whole = AnyLayout(5, 200'000);
  CHECK(!host.Publish(0, whole));
  host.End({});
  int made = 0;
  const auto make_own = [&]() -> Result<std::unique_ptr<Locator>> {
    ++made;
    return MakeLayoutLocator(whole);
  };
  const auto locator = MakeHostLayoutLocator(host, make_own, whole.record_count());
  Listed list;
  REQUIRE(locator->Locate({0}, whole.record_count(), list));
  REQUIRE(locator->Locate({100}, 5, list));
  CHECK(made == 1);
  list.values.resize(ListOf(whole).size());
  CHECK(list.values == ListOf(whole));
}

}  // namespace
}  // namespace lmdbio::load
