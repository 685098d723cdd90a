// tests/sync/over_device_wire/rank_on_wire.h - a rank with a GPU of the stand-in
// (tests/emulated_gpu) and a wire to the other ranks.
#ifndef LMDBIO_TESTS_SYNC_OVER_DEVICE_WIRE_RANK_ON_WIRE_H_
#define LMDBIO_TESTS_SYNC_OVER_DEVICE_WIRE_RANK_ON_WIRE_H_

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device_wire/device_wire.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::test {

// A wire that tells a test of each message.
class WatchedWire final : public sync::Wire {
 public:
  enum class WireStep { kStartSend, kStartReceive, kAwaitSend, kAwaitReceive };
  enum class StepSide { kBefore, kAfter };
  using Watch = std::function<void(WireStep step, StepSide side)>;

  WatchedWire(std::unique_ptr<sync::Wire> inner, Watch watch)
      : inner_(std::move(inner)), watch_(std::move(watch)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status StartSend(int to, Bytes bytes) override {
    return Watched(WireStep::kStartSend, [&] { return inner_->StartSend(to, bytes); });
  }
  Status StartReceive(int from, MutableBytes bytes) override {
    return Watched(WireStep::kStartReceive, [&] { return inner_->StartReceive(from, bytes); });
  }
  Status AwaitSend(int to) override {
    return Watched(WireStep::kAwaitSend, [&] { return inner_->AwaitSend(to); });
  }
  Status AwaitReceive(int from) override {
    return Watched(WireStep::kAwaitReceive, [&] { return inner_->AwaitReceive(from); });
  }
  Result<bool> IsSent(int to) override { return inner_->IsSent(to); }
  Result<bool> IsReceived(int from) override { return inner_->IsReceived(from); }
  bool writes_after_failure() const override { return writes_after_failure_; }
  void Stop(const Error& why) override { inner_->Stop(why); }

  void set_writes_after_failure() { writes_after_failure_ = true; }

 private:
  template <typename Call>
  Status Watched(WireStep step, const Call& call) {
    if (watch_) watch_(step, StepSide::kBefore);
    Status status = call();
    if (watch_ && status) watch_(step, StepSide::kAfter);
    return status;
  }

  const std::unique_ptr<sync::Wire> inner_;
  const Watch watch_;
  bool writes_after_failure_ = false;
};

struct WireRankSetup {
  sync::DeviceWireOptions options;
  WatchedWire::Watch watch = nullptr;
  ranks::Health* health = nullptr;  // null: no rank fails
};

// One rank. Throws std::runtime_error where it cannot go on.
class RankOnWire {
 public:
  static constexpr uint64_t kValueBytes = 128 << 10;
  // Calls that are under way at the same time have a slot of pinned memory each.
  static constexpr size_t kSlots = 3;

  // Collective over `group`.
  RankOnWire(ranks::Group& group, std::shared_ptr<::lmdbio::device::Device> gpu,
             WireRankSetup setup)
      : setup_(std::move(setup)),
        gpu_(std::move(gpu)),
        wire_(std::make_unique<WatchedWire>(Good(sync::OpenLinkWire(group, health(), {})),
                                            setup_.watch)) {}

  // Collective. Once.
  // Errors: as sync::DeviceWire::Make
  Status Make(ranks::Group& group) {
    watched_ = wire_.get();
    LMDBIO_TRY(made_, sync::DeviceWire::Make(
                          group, std::move(wire_),
                          {*gpu_, *kernels_, [this] { return health().Check(); }, group.rank()},
                          setup_.options));
    return {};
  }

  sync::DeviceWire& made() { return *made_; }
  WatchedWire& wire() { return *watched_; }
  ::lmdbio::device::Device& gpu() { return *gpu_; }
  ::lmdbio::device::DeviceStream& stream() { return stream_; }
  ranks::Health& health() { return setup_.health != nullptr ? *setup_.health : solo_; }

  sync::DeviceArray ArrayOf(const sync::DeviceValues& values) const {
    return {memory_.begin() + values.offset, values.count, values.type};
  }

  // Enqueues a copy of these bytes into the values.
  void WriteLater(uint64_t offset, const std::string& bytes, size_t slot = 0) {
    if (bytes.empty()) return;
    const uint64_t from = slot * kValueBytes + offset;
    std::memcpy(in_pinned_.bytes().data() + from, bytes.data(), bytes.size());
    Must(stream_.CopyIn(memory_.begin() + offset, in_pinned_, from, bytes.size()));
  }
  // Enqueues a copy out of the values.
  void ReadLater(uint64_t offset, size_t size_bytes, size_t slot = 0) {
    Must(stream_.CopyOut(out_pinned_, slot * kValueBytes + offset, memory_.begin() + offset,
                         size_bytes));
  }
  // The bytes that ReadLater has read, when the stream is done.
  std::string BytesRead(uint64_t offset, size_t size_bytes, size_t slot = 0) const {
    return {reinterpret_cast<const char*>(out_pinned_.bytes().data()) + slot * kValueBytes + offset,
            size_bytes};
  }
  std::string ReadNow(uint64_t offset, size_t size_bytes) {
    ReadLater(offset, size_bytes);
    Must(stream_.Synchronize());
    return BytesRead(offset, size_bytes);
  }

  Status AllReduce(const sync::DeviceValues& values, const sync::Reduction& reduction) {
    return made_->AllReduce(ArrayOf(values), reduction, stream_);
  }

  // Waits without a call of the driver that waits.
  void Drain() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    if (!Good(sync::LookUntil([this] { return stream_.IsDone(); }, limit, {}))) {
      throw std::runtime_error("the stream is not done");
    }
  }
  // Requires: the stream is done
  void Drop() { made_.reset(); }

 private:
  const WireRankSetup setup_;
  ranks::SoloHealth solo_;
  const std::shared_ptr<::lmdbio::device::Device> gpu_;
  std::unique_ptr<WatchedWire> wire_;  // until Make
  WatchedWire* watched_ = nullptr;
  SharedBytes in_{kSlots * kValueBytes};
  SharedBytes out_{kSlots * kValueBytes};
  ::lmdbio::device::PinnedBytes in_pinned_ = Good(gpu_->Pin(in_.bytes()));
  ::lmdbio::device::PinnedBytes out_pinned_ = Good(gpu_->Pin(out_.bytes()));
  ::lmdbio::device::DeviceMemory memory_ = Good(gpu_->Allocate(kValueBytes));
  ::lmdbio::device::DeviceStream stream_ = Good(gpu_->MakeStream());
  const std::unique_ptr<kernels::DeviceKernels> kernels_ =
      Good(kernels::DeviceKernels::Load(*gpu_, EmulatedKernelImage()));
  std::unique_ptr<sync::DeviceWire> made_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_DEVICE_WIRE_RANK_ON_WIRE_H_
