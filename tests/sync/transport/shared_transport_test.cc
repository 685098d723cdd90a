#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/transport/shared_transport.h"
#include "tests/support/catch.h"
#include "tests/sync/transport/exchange_checks.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

using test::ExchangeWait;

void RunExchanges(ranks::Group& group, uint32_t tree_arity, ExchangeWait waiting,
                  std::atomic<int>& wrong) {
  ranks::SoloHealth health;
  auto transport = SharedTransport::Create(group, health, tree_arity);
  wrong += transport ? test::WrongExchanges(**transport, waiting) : 1;
}

TEST_CASE("SharedTransport gives the same replies as a loop over all ranks", "[sync][transport]") {
  const int rank_count = GENERATE(1, 2, 3, 5, 8);
  const int ranks_per_host = GENERATE(1, 2, 3, 8);
  const uint32_t tree_arity = GENERATE(0U, 1U, 2U, 100U);
  const ExchangeWait waiting = GENERATE(ExchangeWait::kAsleep, ExchangeWait::kByTests);
  std::atomic<int> wrong{0};
  ranks::RunAsThreads(
      {.rank_count = rank_count, .ranks_per_host = ranks_per_host},
      [&](ranks::Group& group) { RunExchanges(group, tree_arity, waiting, wrong); });
  CHECK(wrong == 0);
}

TEST_CASE("SharedTransport sleeps until a wake-up, or until a peer joins an exchange",
          "[sync][transport]") {
  std::atomic<int> wrong{0};
  std::atomic<bool> is_called{false};
  ranks::RunAsThreads({.rank_count = 2}, [&](ranks::Group& group) {
    ranks::SoloHealth health;
    auto transport = std::move(*SharedTransport::Create(group, health));
    if (group.rank() == 0) {
      // Only the other rank ends these sleeps, and the first exchange.
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

class FailedHealth final : public ranks::Health {
 public:
  Status Check() override { return Fail(ErrorCode::kPeerFailed, "rank 1 is gone"); }
  void GiveUp(const Error&) override {}
};

TEST_CASE("SharedTransport does not wait for a rank that is gone", "[sync][transport]") {
  const int ranks_per_host = GENERATE(1, 2);
  std::string message;
  ranks::RunAsThreads({.rank_count = 2, .ranks_per_host = ranks_per_host},
                      [&](ranks::Group& group) {
                        FailedHealth health;
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

// Exchanges of a rank until one fails. Returns the error.
std::string ErrorOf(SharedTransport& transport, const Exchange& exchange) {
  for (int i = 0; i < 1000; ++i) {
    if (const Status started = transport.Start(exchange); !started)
      return started.error().message();
    for (bool is_over = false; !is_over;) {
      const auto waited = transport.Wait(10s);
      if (!waited) return waited.error().message();
      is_over = *waited;
    }
    transport.TakeReply();
    std::this_thread::sleep_for(1ms);  // for the reply of the kernel to bytes that nobody reads
  }
  return "no error";
}

TEST_CASE("A root that gives up names the rank that is gone, and not itself", "[sync][transport]") {
  // Rank 2 waits for rank 1, or comes when rank 1 is gone and sends to it.
  const bool is_late = GENERATE(false, true);
  std::string first, second;
  ranks::RunAsThreads({.rank_count = 3, .ranks_per_host = 1}, [&](ranks::Group& group) {
    ranks::SoloHealth health;
    auto transport = std::move(*SharedTransport::Create(group, health, 1));
    if (group.rank() == 0) transport.reset();
    if (group.rank() == 1) {
      Exchange exchange{.words = {1}, .bytes = {}};
      if (is_late) exchange = {ExchangeKind::kBroadcast, ExchangeScope::kParent, {}, {}};
      first = ErrorOf(*transport, exchange);
      transport->Abandon(Error(ErrorCode::kPeerFailed, first));
      transport.reset();
    }
    if (group.rank() == 2 && !is_late) second = ErrorOf(*transport, {.words = {1}, .bytes = {}});
    static_cast<void>(group.Barrier());
    if (group.rank() == 2 && is_late) {
      second = ErrorOf(*transport, {ExchangeKind::kGather, ExchangeScope::kParent, {}, {}});
    }
    static_cast<void>(group.Barrier());
  });
  CHECK(first == "rank 0 on host-0 has ended unexpectedly");
  CHECK(second == first);
}

}  // namespace
}  // namespace lmdbio::sync
