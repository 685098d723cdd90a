// tests/sync/over_wire/forged_wire.h - a wire whose other ranks send what a test wants.
#ifndef LMDBIO_TESTS_SYNC_OVER_WIRE_FORGED_WIRE_H_
#define LMDBIO_TESTS_SYNC_OVER_WIRE_FORGED_WIRE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_wire/wire_agreement.h"

namespace lmdbio::test {

class ForgedWire final : public sync::Wire {
 public:
  // Fills in the next message from a rank.
  using Source = std::function<void(int from, MutableBytes message)>;

  ForgedWire(int rank, int size, Source source)
      : rank_(rank), size_(size), source_(std::move(source)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status StartSend(int /*to*/, Bytes /*bytes*/) override { return {}; }
  Status StartReceive(int from, MutableBytes bytes) override {
    if (!bytes.empty()) source_(from, bytes);
    return {};
  }
  Status AwaitSend(int /*to*/) override { return {}; }
  Status AwaitReceive(int /*from*/) override { return {}; }
  Result<bool> IsSent(int /*to*/) override { return true; }
  Result<bool> IsReceived(int /*from*/) override { return true; }
  void Stop(const Error& /*why*/) override {}

 private:
  int rank_;
  int size_;
  Source source_;
};

// The head of a call between hosts, as it travels.
struct ForgedCallHead {
  uint64_t digest = 0;
  sync::CallShape shape;
  uint32_t is_declined = 0;
  uint32_t payload_bytes = 0;
};
static_assert(sizeof(ForgedCallHead) == 40);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_WIRE_FORGED_WIRE_H_
