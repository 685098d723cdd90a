#include "tests/sync/transport/exchange_checks.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
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

// The ranks that take part in an exchange of `scope` of this rank.
std::vector<int> Members(const Ranks& ranks, ExchangeScope scope) {
  std::vector<int> members;
  int host_before = -1;
  const int own_host = ranks.host_of[static_cast<size_t>(ranks.rank)];
  for (int rank = 0; rank < ranks.size; ++rank) {
    const int host = ranks.host_of[static_cast<size_t>(rank)];
    const bool is_root = host != host_before;
    host_before = host;
    if (scope == ExchangeScope::kHost && host != own_host) continue;
    if (scope == ExchangeScope::kRoots && !is_root) continue;
    members.push_back(rank);
  }
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

int WrongExchanges(sync::Transport& transport, ExchangeWait waiting) {
  int wrong = 0;
  const Ranks& ranks = transport.ranks();
  for (int number = 0; number < 60; ++number) {
    Exchange exchange;
    exchange.kind = static_cast<ExchangeKind>(number % 3);
    exchange.scope = static_cast<ExchangeScope>(number / 3 % 3);
    const std::vector<int> members = Members(ranks, exchange.scope);
    if (std::find(members.begin(), members.end(), ranks.rank) == members.end()) continue;
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
  return wrong;
}

}  // namespace lmdbio::test
