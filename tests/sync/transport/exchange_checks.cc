#include "tests/sync/transport/exchange_checks.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace lmdbio::test {
namespace {

using sync::Exchange;
using sync::ExchangeKind;
using sync::ExchangeScope;
using sync::Ranks;
using namespace std::chrono_literals;

// The contribution of rank `rank` to exchange `number`. Its length differs from rank to rank.
std::vector<std::byte> Brought(int rank, int number) {
  std::vector<std::byte> bytes(static_cast<size_t>((rank * 7919 + number * 104729) % 40'000));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        static_cast<std::byte>(static_cast<size_t>(rank) * 31 + i + static_cast<size_t>(number));
  }
  return bytes;
}

std::vector<uint64_t> Words(int rank, int number) {
  std::vector<uint64_t> words(static_cast<size_t>(1 + number * 300 % 3000), ~uint64_t{0});
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] &= ~(uint64_t{1} << (static_cast<size_t>(rank + number) + i) % 64);
  }
  return words;
}

// The roots of all hosts, and for each the root above it in the tree of hosts: the first one that
// has room for another child. -1: none.
std::vector<std::pair<int, int>> RootsAndParents(const Ranks& ranks) {
  std::vector<std::pair<int, int>> roots;
  std::vector<int> child_counts;
  for (int rank = 0; rank < ranks.size; ++rank) {
    if (ranks.host_of[static_cast<size_t>(rank)] < static_cast<int>(roots.size())) continue;
    size_t above = 0;
    while (ranks.tree_arity > 0 && above < roots.size() &&
           child_counts[above] == ranks.tree_arity) {
      ++above;
    }
    if (!roots.empty()) ++child_counts[above];
    roots.emplace_back(rank, roots.empty() ? -1 : roots[above].first);
    child_counts.push_back(0);
  }
  return roots;
}

// The ranks that take part in an exchange of `scope` of this rank; none if it takes no part.
std::vector<int> Members(const Ranks& ranks, ExchangeScope scope) {
  std::vector<int> members;
  if (scope == ExchangeScope::kAll || scope == ExchangeScope::kHost) {
    const int own_host = ranks.host_of[static_cast<size_t>(ranks.rank)];
    for (int rank = 0; rank < ranks.size; ++rank) {
      const bool is_here = ranks.host_of[static_cast<size_t>(rank)] == own_host;
      if (scope == ExchangeScope::kAll || is_here) members.push_back(rank);
    }
    return members;
  }
  const auto roots = RootsAndParents(ranks);
  const auto own =
      std::ranges::find(roots, ranks.rank, [](const auto& root) { return root.first; });
  if (own == roots.end()) return members;
  const int first = scope == ExchangeScope::kChildren ? ranks.rank : own->second;
  if (first < 0) return members;
  members.push_back(first);
  for (const auto& [root, above] : roots) {
    if (above == first) members.push_back(root);
  }
  // Coordinators skip exchanges of a root without children.
  if (members.size() == 1) members.clear();
  return members;
}

void CheckReply(const sync::Reply& reply, const Exchange& asked, const Ranks& ranks, int number,
                int& wrong) {
  const std::vector<int> members = Members(ranks, asked.scope);
  if (asked.kind == ExchangeKind::kIntersect) {
    std::vector<uint64_t> expected(asked.words.size(), ~uint64_t{0});
    for (const int rank : members) {
      const auto theirs = Words(rank, number);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] &= theirs[i];
    }
    if (reply.words != expected) ++wrong;
  } else if (asked.kind == ExchangeKind::kBroadcast) {
    if (reply.bytes != Brought(members[0], number)) ++wrong;
  } else if (ranks.rank == members[0]) {
    if (reply.gathered.size() != members.size()) {
      ++wrong;
      return;
    }
    for (size_t i = 0; i < members.size(); ++i) {
      if (reply.gathered[i] != Brought(members[i], number)) ++wrong;
    }
  }
}

}  // namespace

namespace {

void CheckOne(sync::Transport& transport, Exchange exchange, int number, ExchangeWait waiting,
              int& wrong) {
  const Ranks& ranks = transport.ranks();
  const std::vector<int> members = Members(ranks, exchange.scope);
  if (members.empty()) return;
  exchange.words = Words(ranks.rank, number);
  const bool sends = exchange.kind == ExchangeKind::kGather || ranks.rank == members[0];
  if (sends) exchange.bytes = Brought(ranks.rank, number);
  if (!transport.Start(exchange)) ++wrong;
  for (bool is_over = false; !is_over;) {
    auto result = waiting == ExchangeWait::kAsleep ? transport.Wait(20ms) : transport.Test();
    if (!result) ++wrong;
    is_over = !result || *result;
    if (!is_over && waiting == ExchangeWait::kByTests) std::this_thread::yield();
  }
  CheckReply(transport.TakeReply(), exchange, ranks, number, wrong);
}

}  // namespace

// A root takes part in two exchanges along the tree: from the leaves to rank 0, or in a broadcast
// from rank 0 to the leaves.
int WrongExchanges(sync::Transport& transport, ExchangeWait waiting) {
  int wrong = 0;
  for (int number = 0; number < 60; ++number) {
    Exchange exchange;
    exchange.kind = static_cast<ExchangeKind>(number % 3);
    std::vector<ExchangeScope> scopes{ExchangeScope::kChildren, ExchangeScope::kParent};
    if (exchange.kind == ExchangeKind::kBroadcast) std::ranges::reverse(scopes);
    if (number / 3 % 3 == 0) scopes = {ExchangeScope::kAll};
    if (number / 3 % 3 == 1) scopes = {ExchangeScope::kHost};
    for (const ExchangeScope scope : scopes) {
      exchange.scope = scope;
      CheckOne(transport, exchange, number, waiting, wrong);
    }
  }
  return wrong;
}

}  // namespace lmdbio::test
