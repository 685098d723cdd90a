// Goal: the backlog starts every read once, in order, after its memory was prepared, and prepares
// the memory of one read at a time.
// Method: an engine that only notes its reads, and a stand-in for MADV_COLLAPSE that counts.
#include "lmdbio/load/reader/read_backlog.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/ranks/shm/anonymous_memory.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kPage = ranks::HugePages::kPageBytes;

int prepared_count = 0;
int CountCall(std::byte* /*region*/) {
  ++prepared_count;
  return 0;
}

class NotingEngine final : public file::BlockEngine {
 public:
  explicit NotingEngine(std::vector<uint64_t>& started) : started_(started) {}
  std::string Describe() const override { return "noting"; }
  Status Start(std::span<const file::BlockRead> blocks) override {
    for (const file::BlockRead& block : blocks) started_.push_back(block.tag);
    return {};
  }
  Result<std::span<file::BlockDone>> WaitSome(std::chrono::milliseconds /*limit*/) override {
    return std::span<file::BlockDone>();
  }
  Result<std::span<file::BlockDone>> Poll() override { return std::span<file::BlockDone>(); }
  uint64_t outstanding() const override { return started_.size(); }
  file::EngineCounters counters() const override { return {}; }
  std::vector<std::string> TakeNotes() override { return {}; }

 private:
  std::vector<uint64_t>& started_;
};

struct BacklogFixture {
  BacklogFixture() { prepared_count = 0; }

  MutableBytes memory() const { return memory_->bytes(); }
  // Three reads of a quarter of a huge page for each of the four pages, and one over two pages.
  void AddReads(ReadBacklog& backlog) const {
    uint64_t tag = 0;
    for (uint64_t page = 0; page < 4; ++page) {
      for (uint64_t part = 0; part < 3; ++part) {
        backlog.Add({0, memory().subspan(page * kPage + part * kPage / 4, kPage / 4), tag++});
      }
      if (page == 1) backlog.Add({0, memory().subspan(2 * kPage - kPage / 4, kPage / 2), tag++});
    }
  }

  std::unique_ptr<ranks::SharedMemory> memory_ = std::move(*ranks::AllocateAnonymous(4 * kPage));
  std::vector<std::byte> states = std::vector<std::byte>(4);
  std::vector<uint64_t> started;
  Notes notes;
  ReaderTally tally;
  ReadEngine engine{std::make_unique<NotingEngine>(started), notes, tally};
};

TEST_CASE("A backlog prepares the memory of one read at a time", "[reader]") {
  BacklogFixture fixture;
  ranks::HugePages pages(fixture.memory(), fixture.states,
                         {.collapse = &CountCall, .kernel_huge_bytes = kPage});
  ReadBacklog backlog(fixture.memory(), &pages, fixture.engine);
  CHECK(backlog.is_empty());
  REQUIRE(backlog.StartSome());
  CHECK(fixture.started.empty());

  fixture.AddReads(backlog);
  std::vector<size_t> started_after;
  std::vector<int> prepared_after;
  while (!backlog.is_empty()) {
    REQUIRE(backlog.StartSome());
    started_after.push_back(fixture.started.size());
    prepared_after.push_back(prepared_count);
  }
  // The read over two pages prepares the third one, whose other reads then start with it.
  CHECK(started_after == std::vector<size_t>{3, 6, 10, 13});
  CHECK(prepared_after == std::vector{1, 2, 3, 4});
  for (size_t i = 0; i < fixture.started.size(); ++i) CHECK(fixture.started[i] == i);
}

TEST_CASE("A backlog starts all reads at once if their memory needs no preparation", "[reader]") {
  BacklogFixture fixture;
  ranks::HugePages pages(fixture.memory(), fixture.states,
                         {.collapse = &CountCall, .kernel_huge_bytes = kPage});
  const bool has_pages = GENERATE(true, false);
  if (has_pages) pages.Prepare({0, 4 * kPage});
  ReadBacklog backlog(fixture.memory(), has_pages ? &pages : nullptr, fixture.engine);

  fixture.AddReads(backlog);
  REQUIRE(backlog.StartSome());
  CHECK(backlog.is_empty());
  CHECK(fixture.started.size() == 13);
}

}  // namespace
}  // namespace lmdbio::load
