// The rules of token cycles, played by all readers in one thread: messages are queued, and
// delivered in a random order that keeps the order of each pair of readers.
#include "lmdbio/load/turns/token_cycles.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "lmdbio/load/turns/stagger_vote.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

enum class MessageKind { kToken, kRequest };

class CycleGame {
 public:
  CycleGame(int reader_count, uint32_t token_count, uint32_t seed) : random_(seed) {
    const uint32_t counts[] = {token_count};
    for (int i = 0; i < reader_count; ++i) readers_.emplace_back(i, reader_count, counts);
    held_.resize(readers_.size());
  }

  // One action of a random reader, and the delivery of one random message.
  void Step(std::vector<int>& turns_left) {
    const size_t reader = random_() % readers_.size();
    if (held_[reader]) {
      held_[reader] = false;
      static_cast<void>(readers_[reader].Release());
    } else if (turns_left[reader] > 0) {
      if (readers_[reader].CanTake(0)) {
        readers_[reader].Hold(0);
        held_[reader] = true;
        --turns_left[reader];
      } else {
        static_cast<void>(readers_[reader].Want(0));
      }
    }
    Send(static_cast<int>(reader));
    Deliver();
  }

  // The number of readers that hold a token in the cycle of `reader`.
  int HeldInCycle(size_t reader, size_t apart) const {
    int count = 0;
    for (size_t i = reader % apart; i < held_.size(); i += apart) count += held_[i] ? 1 : 0;
    return count;
  }

 private:
  void Send(int reader) {
    const TokenMoves moves = readers_[static_cast<size_t>(reader)].Moves(0);
    if (moves.token_to) links_[{reader, *moves.token_to}].push_back(MessageKind::kToken);
    if (moves.request_to) links_[{reader, *moves.request_to}].push_back(MessageKind::kRequest);
  }

  void Deliver() {
    if (links_.empty()) return;
    auto link = links_.begin();
    std::advance(link, static_cast<ptrdiff_t>(random_() % links_.size()));
    if (link->second.empty()) return;
    const MessageKind kind = link->second.front();
    link->second.pop_front();
    const int receiver = link->first.second;
    TokenCycles& cycles = readers_[static_cast<size_t>(receiver)];
    kind == MessageKind::kToken ? cycles.OnToken(0) : cycles.OnRequest(0);
    Send(receiver);
  }

  std::mt19937 random_;
  std::vector<TokenCycles> readers_;
  std::vector<bool> held_;
  std::map<std::pair<int, int>, std::deque<MessageKind>> links_;
};

TEST_CASE("each reader gets its turns, and a cycle has one token", "[turns]") {
  const auto [readers, tokens] = GENERATE(std::pair{1, 1U}, std::pair{2, 1U}, std::pair{5, 1U},
                                          std::pair{10, 4U}, std::pair{7, 3U}, std::pair{3, 8U});
  for (uint32_t seed = 0; seed < 10; ++seed) {
    CycleGame game(readers, tokens, seed);
    std::vector<int> turns_left(static_cast<size_t>(readers), 20);
    const size_t apart = std::min(static_cast<size_t>(tokens), turns_left.size());
    int steps = 0;
    const auto is_over = [&] {
      return std::all_of(turns_left.begin(), turns_left.end(), [](int left) { return left == 0; });
    };
    for (; steps < 200'000 && !is_over(); ++steps) {
      game.Step(turns_left);
      for (size_t cycle = 0; cycle < apart; ++cycle) REQUIRE(game.HeldInCycle(cycle, apart) <= 1);
    }
    INFO(readers << " readers, " << tokens << " tokens, seed " << seed);
    CHECK(is_over());
  }
}

TEST_CASE("a reader with a waiting neighbour must pass the token on", "[turns]") {
  const uint32_t counts[] = {1};
  TokenCycles cycles(0, 2, counts);
  REQUIRE(cycles.CanTake(0));
  cycles.Hold(0);
  cycles.OnRequest(0);
  CHECK_FALSE(cycles.Moves(0).token_to);  // it is in use
  CHECK(cycles.Release());
  CHECK_FALSE(cycles.CanTake(0));
  CHECK(cycles.Want(0));
  CHECK_FALSE(cycles.Want(0));
  const TokenMoves moves = cycles.Moves(0);
  CHECK(moves.token_to == 1);
  CHECK(moves.request_to == 1);  // the reader's own request follows the token
  CHECK_FALSE(cycles.Moves(0).request_to);
}

TEST_CASE("messages for a set that does not exist are ignored", "[turns]") {
  const uint32_t counts[] = {2};
  TokenCycles cycles(1, 4, counts);
  cycles.OnRequest(1);
  cycles.OnToken(7);
  CHECK_FALSE(cycles.Moves(0).token_to);
  CHECK(cycles.Peers(1) == std::vector<int>{3});
}

StaggerRates RatesOf(double without, double with) {
  StaggerRates rates;
  rates.bytes_per_s = {without, with};
  return rates;
}

TEST_CASE("the root chooses from the sum of all readers", "[turns]") {
  StaggerVote root(2, 3, 1, StaggerVote::TreePosition::kRoot);
  StaggerVote middle(2, 3, 1, StaggerVote::TreePosition::kBelow);
  StaggerVote leaf(2, 3, 0, StaggerVote::TreePosition::kBelow);
  root.AddOwn(RatesOf(10, 1));
  CHECK_FALSE(root.TakeSum());
  middle.AddOwn(RatesOf(1, 10));
  CHECK_FALSE(middle.TakeSum());  // its child is missing
  leaf.AddOwn(RatesOf(1, 10));
  const auto of_leaf = leaf.TakeSum();
  REQUIRE(of_leaf);
  CHECK_FALSE(leaf.TakeSum());  // once
  middle.AddChild(*of_leaf);
  const auto of_middle = middle.TakeSum();
  REQUIRE(of_middle);
  CHECK(of_middle->bytes_per_s[1] == 20);
  root.AddChild(*of_middle);
  CHECK_FALSE(root.choice());
  CHECK_FALSE(root.TakeSum());
  CHECK(root.choice() == size_t{1});
  CHECK_FALSE(leaf.choice());
  leaf.SetChoice(2);  // there are ways 0 and 1
  CHECK_FALSE(leaf.choice());
  leaf.SetChoice(1);
  CHECK(leaf.choice() == size_t{1});
}

}  // namespace
}  // namespace lmdbio::load
