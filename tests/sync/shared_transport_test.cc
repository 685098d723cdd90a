// Oracle: what a loop over all ranks' contributions gives.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include "lmdbio/comm/thread_group.h"
#include "lmdbio/sync/shared_transport.h"

namespace lmdbio::sync {
namespace {

using control::Exchange;
using control::ExchangeKind;
using control::ExchangeScope;
using control::Ranks;
using namespace std::chrono_literals;

// What rank `rank` brings to exchange `number`, of a length that differs from rank to rank.
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

// The ranks that take part, as this rank sees it.
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

void CheckReply(const control::Reply& reply, const Exchange& asked, const Ranks& ranks, int number,
                std::atomic<int>& wrong) {
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

enum class Waiting { kAsleep, kByTests };

void RunExchanges(comm::Group& group, Waiting waiting, std::atomic<int>& wrong) {
  comm::GoodHealth health;
  auto transport = SharedTransport::Create(group, health);
  if (!transport) {
    ++wrong;
    return;
  }
  const Ranks& ranks = (*transport)->ranks();
  for (int number = 0; number < 60; ++number) {
    Exchange exchange;
    exchange.kind = static_cast<ExchangeKind>(number % 3);
    exchange.scope = static_cast<ExchangeScope>(number / 3 % 3);
    const std::vector<int> members = Members(ranks, exchange.scope);
    if (std::find(members.begin(), members.end(), ranks.rank) == members.end()) continue;
    exchange.words = Words(ranks.rank, number);
    const bool sends = exchange.kind == ExchangeKind::kGather || ranks.rank == members[0];
    if (sends) exchange.bytes = Brought(ranks.rank, number);
    if (!(*transport)->Start(exchange)) ++wrong;
    for (bool is_over = false; !is_over;) {
      auto result = waiting == Waiting::kAsleep ? (*transport)->Wait(20ms) : (*transport)->Test();
      if (!result) ++wrong;
      is_over = !result || *result;
      if (!is_over && waiting == Waiting::kByTests) std::this_thread::yield();
    }
    CheckReply((*transport)->TakeReply(), exchange, ranks, number, wrong);
  }
}

TEST_CASE("SharedTransport gives what a loop over all ranks gives", "[sync][transport]") {
  const int rank_count = GENERATE(1, 2, 3, 5, 8);
  const int ranks_per_host = GENERATE(1, 2, 3, 8);
  const Waiting waiting = GENERATE(Waiting::kAsleep, Waiting::kByTests);
  std::atomic<int> wrong{0};
  comm::RunAsThreads({.rank_count = rank_count, .ranks_per_host = ranks_per_host},
                     [&](comm::Group& group) { RunExchanges(group, waiting, wrong); });
  CHECK(wrong == 0);
}

TEST_CASE("SharedTransport sleeps until it is woken, called, or a peer has come",
          "[sync][transport]") {
  std::atomic<int> wrong{0};
  std::atomic<bool> is_called{false};
  comm::RunAsThreads({.rank_count = 2}, [&](comm::Group& group) {
    comm::GoodHealth health;
    auto transport = std::move(*SharedTransport::Create(group, health));
    if (group.rank() == 0) {
      // Nobody but the other rank ends these sleeps, and the first exchange.
      transport->Sleep(1h, WakeOn::kOrPeerCame);
      if (!transport->Start({.words = {5}, .bytes = {}})) ++wrong;
      while (!*transport->Wait(1s)) {
      }
      while (!transport->take_ring()) transport->Sleep(1h, WakeOn::kWakeOrRing);
      is_called = true;
      if (!transport->Start({.words = {5}, .bytes = {}})) ++wrong;
      while (!*transport->Wait(1s)) {
      }
    } else {
      if (!transport->Start({.words = {4}, .bytes = {}})) ++wrong;
      while (!*transport->Wait(1s)) {
      }
      if (transport->TakeReply().words != std::vector<uint64_t>{4}) ++wrong;
      if (!transport->Start({.words = {1}, .bytes = {}})) ++wrong;
      while (!*transport->Wait(5ms)) transport->Ring();
      if (!is_called) ++wrong;
      std::thread waker([&] { transport->Wake(); });
      transport->Sleep(1h, WakeOn::kWakeOrRing);
      waker.join();
    }
  });
  CHECK(wrong == 0);
}

class FailingHealth final : public comm::Health {
 public:
  Status Check() override { return Fail(ErrorCode::kPeerFailed, "rank 1 is gone"); }
  void GiveUp(const Error&) override {}
};

TEST_CASE("SharedTransport does not wait for a rank that is gone", "[sync][transport]") {
  const int ranks_per_host = GENERATE(1, 2);
  std::string message;
  comm::RunAsThreads({.rank_count = 2, .ranks_per_host = ranks_per_host}, [&](comm::Group& group) {
    FailingHealth health;
    auto transport = std::move(*SharedTransport::Create(group, health));
    if (group.rank() == 1) {
      static_cast<void>(group.Barrier());
      return;
    }
    if (!transport->Start({.words = {1}, .bytes = {}})) return;
    const auto waited = transport->Wait(10s);
    if (!waited) message = waited.error().message();
    static_cast<void>(group.Barrier());
  });
  CHECK(message == "rank 1 is gone");
}

}  // namespace
}  // namespace lmdbio::sync
