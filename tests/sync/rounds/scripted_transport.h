// tests/sync/rounds/scripted_transport.h - a transport of one rank that records its calls and does
// not sleep.
#ifndef LMDBIO_TESTS_SYNC_ROUNDS_SCRIPTED_TRANSPORT_H_
#define LMDBIO_TESTS_SYNC_ROUNDS_SCRIPTED_TRANSPORT_H_

#include <chrono>
#include <utility>

#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::test {

class ScriptedTransport final : public sync::Transport {
 public:
  bool has_wake_ups = true;  // hears_peers
  bool is_called = false;    // the next take_ring
  int ring_count = 0;        // wake-ups that were sent
  int exchange_count = 0;
  sync::Ranks job;

  const sync::Ranks& ranks() const override { return job; }
  Status Start(sync::Exchange exchange) override {
    ++exchange_count;
    reply_ = {.words = std::move(exchange.words), .gathered = {}, .bytes = {}};
    return {};
  }
  Result<bool> Test() override { return true; }
  Result<bool> Wait(std::chrono::microseconds) override { return true; }
  sync::Reply TakeReply() override { return std::move(reply_); }
  void Sleep(std::chrono::microseconds, sync::WakeOn) override {}
  bool hears_peers() const override { return has_wake_ups; }
  void Wake() override {}
  void Ring() override { ++ring_count; }
  bool take_ring() override { return std::exchange(is_called, false); }

 private:
  sync::Reply reply_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ROUNDS_SCRIPTED_TRANSPORT_H_
