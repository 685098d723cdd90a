// Goal: at most as many readers hold tokens as there are tokens, every reader gets its turns, and a
// reader that leaves or fails does not block the others.
// Method: threads act as readers, over real sockets of this host.
#include "lmdbio/load/turns/read_tokens.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_child.h"

namespace lmdbio::load {
namespace {

using test::InChild;
using test::Verdict;

struct TurnsOutcome {
  std::vector<std::string> wrong;  // [reader]
  std::atomic<int> held{0};
  std::atomic<int> held_max{0};
};

// One turn: waits for the token, holds it for a moment, releases it.
Status TakeTurn(ReadTokens& tokens, size_t set, TurnsOutcome& outcome) {
  while (!tokens.Take(set)) LMDBIO_TRY_VOID(tokens.Await(set));
  const int held = ++outcome.held;
  int seen = outcome.held_max.load();
  while (held > seen && !outcome.held_max.compare_exchange_weak(seen, held)) {
  }
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  --outcome.held;
  tokens.Release();
  return {};
}

template <typename Reader>
void Play(int reader_count, std::vector<uint32_t> token_counts, TurnsOutcome& outcome,
          Reader reader) {
  outcome.wrong.resize(static_cast<size_t>(reader_count));
  ranks::RunAsThreads({reader_count, 1}, [&](ranks::Group& group) {
    std::string& mine = outcome.wrong[static_cast<size_t>(group.rank())];
    auto tokens = ReadTokens::Create(group, token_counts, group.rank());
    if (!tokens) return void(mine = tokens.error().message());
    const Status status = reader(group, **tokens);
    if (!status) mine = status.error().message();
    if (!group.Barrier()) mine = "Barrier failed";
  });
}

TEST_CASE("At most n readers hold n tokens, and all get their turns", "[exchange][tokens]") {
  const auto [readers, tokens] = GENERATE(table<int, uint32_t>(
      {{2, 1}, {3, 1}, {3, 2}, {5, 2}, {8, 2}, {8, 3}, {9, 4}, {4, 4}, {4, 9}}));
  CAPTURE(readers, tokens);
  TurnsOutcome outcome;
  Play(readers, {tokens}, outcome, [&](ranks::Group&, ReadTokens& mine) -> Status {
    for (int turn = 0; turn < 40; ++turn) LMDBIO_TRY_VOID(TakeTurn(mine, 0, outcome));
    return {};
  });
  for (const std::string& why : outcome.wrong) CHECK(why.empty());
  CHECK(outcome.held_max.load() <= static_cast<int>(tokens));
  CHECK(outcome.held_max.load() >= 1);
}

TEST_CASE("A reader without a thread is an error of all readers", "[exchange][tokens]") {
  const Verdict verdict = InChild([] {
    bool can_refuse = true;
    TurnsOutcome outcome;
    outcome.wrong.resize(3);
    ranks::RunAsThreads({3, 1}, [&](ranks::Group& group) {
      if (group.rank() == 1) can_refuse = test::RefuseThreads();
      const auto tokens = ReadTokens::Create(group, std::array<uint32_t, 1>{1}, group.rank());
      if (!tokens) outcome.wrong[static_cast<size_t>(group.rank())] = tokens.error().message();
    });
    if (!can_refuse) return Verdict::kCannotTell;
    const std::string words =
        "cannot start the thread of the tokens: Resource temporarily unavailable; raise ulimit -u";
    const std::string at = "rank 1 on host-1: ";
    const std::vector<std::string> expected = {at + words, words, at + words};
    for (const std::string& why : outcome.wrong) std::fprintf(stderr, "%s\n", why.c_str());
    return outcome.wrong == expected ? Verdict::kRight : Verdict::kWrong;
  });
  if (verdict == Verdict::kCannotTell) WARN("skipped: threads cannot be refused here");
  CHECK(verdict != Verdict::kWrong);
}

// A reader with trainers that hold all memory requests no token, and must not keep one.
TEST_CASE("Readers that request no token do not block the others", "[exchange][tokens]") {
  const int busy = GENERATE(0, 2, 4);
  TurnsOutcome outcome;
  Play(5, {1}, outcome, [&](ranks::Group& group, ReadTokens& mine) -> Status {
    if (group.rank() != busy) return {};
    for (int turn = 0; turn < 20; ++turn) LMDBIO_TRY_VOID(TakeTurn(mine, 0, outcome));
    return {};
  });
  for (const std::string& why : outcome.wrong) CHECK(why.empty());
}

TEST_CASE("Sets of token cycles are independent", "[exchange][tokens]") {
  TurnsOutcome outcome;
  Play(6, {3, 1}, outcome, [&](ranks::Group& group, ReadTokens& mine) -> Status {
    for (int turn = 0; turn < 20; ++turn) {
      LMDBIO_TRY_VOID(TakeTurn(mine, static_cast<size_t>(group.rank() + turn) % 2, outcome));
    }
    return {};
  });
  for (const std::string& why : outcome.wrong) CHECK(why.empty());
  CHECK(outcome.held_max.load() <= 4);
}

TEST_CASE("When a reader leaves, the others continue without tokens", "[exchange][tokens]") {
  const int leaver = GENERATE(0, 3);
  TurnsOutcome outcome;
  outcome.wrong.resize(4);
  ranks::RunAsThreads({4, 1}, [&](ranks::Group& group) {
    std::string& mine = outcome.wrong[static_cast<size_t>(group.rank())];
    const std::vector<uint32_t> token_counts = {1};
    auto tokens = ReadTokens::Create(group, token_counts, group.rank());
    if (!tokens) return void(mine = tokens.error().message());
    for (int turn = 0; turn < 30; ++turn) {
      if (group.rank() == leaver && turn == 5) return;
      const Status took = TakeTurn(**tokens, 0, outcome);
      if (!took) return void(mine = took.error().message());
    }
  });
  for (const std::string& why : outcome.wrong) CHECK(why.empty());
}

TEST_CASE("All readers get the error of a reader that fails", "[exchange][tokens]") {
  const int failing = GENERATE(0, 1, 5);
  TurnsOutcome outcome;
  Play(6, {2}, outcome, [&](ranks::Group& group, ReadTokens& mine) -> Status {
    if (group.rank() == failing) {
      mine.Abandon(Error(ErrorCode::kIo, "the disk is on fire"));
      return {};
    }
    while (true) LMDBIO_TRY_VOID(TakeTurn(mine, 0, outcome));
  });
  for (int reader = 0; reader < 6; ++reader) {
    const std::string& why = outcome.wrong[static_cast<size_t>(reader)];
    CHECK(why == (reader == failing ? "" : "the disk is on fire"));
  }
}

TEST_CASE("Stop ends the wait for a token", "[exchange][tokens]") {
  TurnsOutcome outcome;
  Play(2, {1}, outcome, [&](ranks::Group& group, ReadTokens& mine) -> Status {
    if (group.rank() == 0) {
      while (!mine.Take(0)) LMDBIO_TRY_VOID(mine.Await(0));
      LMDBIO_TRY_VOID(group.Barrier());  // rank 1 starts when the token is taken
      return group.Barrier();            // never releases it
    }
    LMDBIO_TRY_VOID(group.Barrier());
    if (mine.Take(0)) return Fail(ErrorCode::kInternal, "took a token that another holds");
    std::thread stopper([&] { mine.Stop(); });
    Status waited = mine.Await(0);
    stopper.join();
    LMDBIO_TRY_VOID(group.Barrier());
    return waited;
  });
  for (const std::string& why : outcome.wrong) CHECK(why.empty());
}

TEST_CASE("All readers get one choice, by the sum of all measured rates", "[exchange][tokens]") {
  const int readers = GENERATE(2, 5, 11);
  TurnsOutcome outcome;
  Play(readers, {2, 1}, outcome, [&](ranks::Group& group, ReadTokens& mine) -> Status {
    // A single reader measures the best rate for the first way, but the sum is best for the last.
    StaggerRates rates;
    rates.bytes_per_s = {group.rank() == 1 ? 3.0 : 1.0, 1.0, 4.0, 0};
    mine.Report(rates);
    while (!mine.choice()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (*mine.choice() != 2) return Fail(ErrorCode::kInternal, "another choice");
    return {};
  });
  for (const std::string& why : outcome.wrong) CHECK(why.empty());
}

}  // namespace
}  // namespace lmdbio::load
