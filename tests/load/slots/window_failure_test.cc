// Goal: a failure reaches every waiting rank, with the text for that rank, and stays.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/load/slots/window.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

// All ranks of a host in one process: rank i is job rank 10 + i.
class WindowHost {
 public:
  explicit WindowHost(const WindowShape& shape) {
    memory_ = *ranks::AllocateAnonymous(Window::BytesNeeded(shape));
    for (int rank = 0; rank < shape.rank_count; ++rank) {
      windows_.push_back(std::make_unique<Window>(memory_->bytes(), shape, rank, 10 + rank));
      windows_.back()->Introduce();
    }
    for (const auto& window : windows_) window->WatchPeers();
  }
  Window& operator[](size_t rank) { return *windows_[rank]; }

 private:
  std::unique_ptr<ranks::SharedMemory> memory_;
  std::vector<std::unique_ptr<Window>> windows_;
};

// Long enough for the waiters to fall asleep. No result depends on it.
void LetOthersSleep() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

std::string Words(const Error& error) {
  return std::string(ErrorCodeName(error.code())) + " " + error.message();
}

TEST_CASE("A failure wakes all waiters and names the rank", "[loader][window]") {
  const bool is_early = GENERATE(false, true);  // before they wait
  CAPTURE(is_early);
  WindowHost host({.rank_count = 4, .reader_count = 2});
  const auto fail = [&] { host[2].Fail(Error(ErrorCode::kCorruption, "page 7: bad")); };
  if (is_early) fail();
  std::string slot_words[3];
  std::string space_words;
  std::vector<std::thread> threads;
  for (const size_t rank : {0U, 1U, 2U}) {
    threads.emplace_back([&, rank] { slot_words[rank] = Words(host[rank].AwaitSlot(5).error()); });
  }
  threads.emplace_back([&] { space_words = Words(host[1].AwaitSpace(1).error()); });
  LetOthersSleep();
  if (!is_early) fail();
  for (std::thread& thread : threads) thread.join();
  const std::string told = Words(Error(ErrorCode::kPeerFailed, "rank 12: page 7: bad"));
  CHECK(slot_words[0] == told);
  CHECK(slot_words[1] == told);
  CHECK(slot_words[2] == Words(Error(ErrorCode::kCorruption, "page 7: bad")));
  CHECK(space_words == told);
}

TEST_CASE("The first failure stays", "[loader][window]") {
  WindowHost host({.rank_count = 2, .reader_count = 1});
  CHECK_FALSE(host[0].Failure());
  host[1].Fail(Error(ErrorCode::kStale, "first"));
  host[0].Fail(Error(ErrorCode::kIo, "second"));
  host[1].Fail(Error(ErrorCode::kIo, "third"));
  CHECK(Words(*host[0].Failure()) == Words(Error(ErrorCode::kPeerFailed, "rank 11: first")));
  CHECK(Words(*host[1].Failure()) == Words(Error(ErrorCode::kStale, "first")));
}

// A failure of a reader comes after the slots before it, so all ranks fail at the same slot. A
// failure that a rank finds in an announced slot is urgent.
TEST_CASE("A failure is urgent if it was recorded as urgent", "[loader][window]") {
  const Window::When when = GENERATE(Window::When::kInOrder, Window::When::kNow);
  WindowHost host({.rank_count = 2, .reader_count = 1});
  CHECK_FALSE(host[0].UrgentFailure());
  host[0].Announce(0, {});
  host[1].Fail(Error(ErrorCode::kCorruption, "page 7: bad"), when);
  CHECK(host[0].AwaitSlot(0));
  const auto urgent = host[0].UrgentFailure();
  CHECK(urgent.has_value() == (when == Window::When::kNow));
  if (urgent) CHECK(Words(*urgent) == Words(*host[0].Failure()));
  CHECK_FALSE(host[0].AwaitSlot(1));
}

TEST_CASE("A failure that names a peer already is passed on unchanged", "[loader][window]") {
  WindowHost host({.rank_count = 2, .reader_count = 1});
  host[1].Fail(Error(ErrorCode::kPeerFailed, "rank 3: lost"));
  CHECK(Words(*host[0].Failure()) == Words(Error(ErrorCode::kPeerFailed, "rank 3: lost")));
}

TEST_CASE("A failure's message may be of any length", "[loader][window]") {
  const size_t message_bytes =
      GENERATE(size_t{0}, size_t{2047}, size_t{2048}, size_t{2049}, size_t{100'000});
  WindowHost host({.rank_count = 1, .reader_count = 1});
  host[0].Fail(Error(ErrorCode::kIo, std::string(message_bytes, 'x')));
  CHECK(host[0].Failure()->message() == std::string(std::min<size_t>(message_bytes, 2048), 'x'));
}

TEST_CASE("Slots that were announced before a failure can still be used", "[loader][window]") {
  WindowHost host({.rank_count = 2, .reader_count = 1});
  host[0].Announce(0, {4, 2, 0, 0});
  host[0].Fail(Error(ErrorCode::kIo, "lost"));
  const auto head = host[1].AwaitSlot(0);
  REQUIRE(head);
  CHECK(head->first_batch == 4);
  CHECK(head->batch_count == 2);
  CHECK_FALSE(host[1].AwaitSlot(1));
}

TEST_CASE("A rank that leaves releases all slots, also those to come", "[loader][window]") {
  WindowHost host({.rank_count = 3, .reader_count = 1});
  host[0].LetGo(1);
  host[1].LetGo(5);
  CHECK_FALSE(host[0].HasSpace(1));
  bool has_space = false;
  std::thread reader([&] {
    const auto space = host[0].AwaitSpace(1);
    has_space = space && *space;
  });
  LetOthersSleep();
  host[2].Leave();
  reader.join();
  CHECK(has_space);
  CHECK(host[0].HasSpace(1));
  CHECK_FALSE(host[0].HasSpace(2));
  host[0].LetGo(1000);
  host[1].Leave();
  CHECK(host[0].HasSpace(1000));
  // Slots in flight are in memory that ranks have released by leaving.
  host[0].Leave();
  CHECK_FALSE(host[0].HasSpace(1));
}

TEST_CASE("A reader that is woken stops waiting", "[loader][window]") {
  WindowHost host({.rank_count = 2, .reader_count = 2});
  bool is_woken = false;
  std::thread reader([&] {
    const auto space = host[0].AwaitSpace(1);
    is_woken = space && !*space;
  });
  LetOthersSleep();
  host[0].Wake();
  reader.join();
  CHECK(is_woken);
  const auto again = host[0].AwaitSpace(1);  // Wake holds for later waits too
  REQUIRE(again);
  CHECK_FALSE(*again);
}

TEST_CASE("AwaitAllLeft ends when all have left, or at its limit", "[loader][window]") {
  WindowHost host({.rank_count = 2, .reader_count = 1});
  host[0].Leave();
  CHECK_FALSE(host[0].AwaitAllLeft(std::chrono::seconds(0)));
  std::thread other([&] {
    LetOthersSleep();
    host[1].Leave();
  });
  CHECK(host[0].AwaitAllLeft(std::chrono::seconds(60)));
  other.join();
}

TEST_CASE("A slot has room for kBadRangesMax bad ranges", "[loader][window]") {
  WindowHost host({.rank_count = 2, .reader_count = 1});
  for (uint64_t i = 0; i < Window::kBadRangesMax; ++i) CHECK(host[0].AddBadRange(3, {i, 1}));
  CHECK_FALSE(host[0].AddBadRange(3, {99, 1}));
  CHECK_FALSE(host[0].AddBadRange(3, {99, 1}));
  CHECK(host[0].AddBadRange(4, {7, 1}));
  const std::vector<BadRange> bad = host[0].TakeBadRanges(3);
  REQUIRE(bad.size() == Window::kBadRangesMax);
  for (uint64_t i = 0; i < bad.size(); ++i) CHECK(bad[i].at == i);
  CHECK(host[0].TakeBadRanges(4).size() == 1);
  // The state serves another slot now.
  CHECK(host[0].TakeBadRanges(3 + Window::kSlotsMax).empty());
}

}  // namespace
}  // namespace lmdbio::load
