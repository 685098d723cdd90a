// tests/sync/over_device/rank_on_device.h - a rank with a GPU of the stand-in (tests/emulated_gpu),
// and values whose reduction is known.
#ifndef LMDBIO_TESTS_SYNC_OVER_DEVICE_RANK_ON_DEVICE_H_
#define LMDBIO_TESTS_SYNC_OVER_DEVICE_RANK_ON_DEVICE_H_

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/over_device/device_collectives.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_memory/host_collectives.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/support/random.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::test {

inline constexpr std::array kOrders{sync::OrderKind::kHost, sync::OrderKind::kEvent,
                                    sync::OrderKind::kMark};

// Meetings that tell a test of each barrier.
class WatchedMeetings final : public sync::ForwardedCollectives {
 public:
  enum class BarrierSide { kBefore, kAfter };
  using Watch = std::function<void(int barrier, BarrierSide side)>;  // barriers count from 1

  // declined  the barrier that this rank finds declined; 0: none
  WatchedMeetings(std::unique_ptr<sync::Collectives> inner, Watch watch, int declined)
      : ForwardedCollectives(std::move(inner)), watch_(std::move(watch)), declined_(declined) {}

  Result<sync::CallOutcome> Barrier(const sync::CallTag& tag) override {
    ++barrier_;
    if (watch_) watch_(barrier_, BarrierSide::kBefore);
    const auto outcome = ForwardedCollectives::Barrier(tag);
    if (watch_ && outcome) watch_(barrier_, BarrierSide::kAfter);
    if (outcome && barrier_ == declined_) return sync::CallOutcome::kDeclined;
    if (outcome) return *outcome;
    return Fail(outcome.error().Copy());
  }

 private:
  const Watch watch_;
  const int declined_;
  int barrier_ = 0;
};

struct RankSetup {
  // Collective.
  using Maker = std::function<Result<std::unique_ptr<sync::ArenaCollectives>>(
      ranks::Group& group, const sync::DeviceCollectiveParts& parts)>;

  sync::DeviceCollectiveOptions options{.arena_bytes = 64 << 10};
  bool has_kernels = true;
  ranks::Health* health = nullptr;  // null: no rank fails
  WatchedMeetings::Watch watch = nullptr;
  int declined_barrier = 0;
  Maker make = nullptr;  // empty: DeviceCollectives
};

// One rank. Throws std::runtime_error where it cannot go on.
class RankOnDevice {
 public:
  // Writes that are under way at the same time have a slot of pinned memory each.
  static constexpr size_t kSlots = 4;

  // Collective over `group`.
  RankOnDevice(ranks::Group& group, std::shared_ptr<::lmdbio::device::Device> gpu, RankSetup setup)
      : setup_(std::move(setup)),
        gpu_(std::move(gpu)),
        meetings_(Good(sync::HostCollectives(group, health(), {.staging_bytes = 4096})),
                  setup_.watch, setup_.declined_barrier) {
    if (setup_.has_kernels) {
      kernels_ = Good(kernels::DeviceKernels::Load(*gpu_, EmulatedKernelImage()));
    }
  }

  // Collective.
  // Errors: as sync::DeviceCollectives::Make, or as the maker
  Status Make(ranks::Group& group) {
    const sync::DeviceCollectiveParts parts{*gpu_, kernels_.get(), meetings_,
                                            [this] { return health().Check(); }};
    if (setup_.make) {
      LMDBIO_TRY(made_, setup_.make(group, parts));
      return {};
    }
    LMDBIO_TRY(made_, sync::DeviceCollectives::Make(group, parts, setup_.options, notes_));
    return {};
  }

  // Null if the ranks cannot reduce on GPUs.
  sync::ArenaCollectives* made() { return made_.get(); }
  sync::Collectives& meetings() { return meetings_; }
  ranks::Health& health() { return setup_.health != nullptr ? *setup_.health : solo_; }
  ::lmdbio::device::Device& gpu() { return *gpu_; }
  ::lmdbio::device::DeviceStream& stream() { return stream_; }
  const std::vector<std::string>& notes() const { return notes_; }

  // Enqueues a copy of these bytes into the arena.
  void WriteLater(uint64_t offset, const std::string& bytes, size_t slot = 0) {
    if (bytes.empty()) return;
    const uint64_t from = PlaceOf(offset, slot);
    std::memcpy(in_pinned_.bytes().data() + from, bytes.data(), bytes.size());
    Must(stream_.CopyIn(made_->arena().begin + offset, in_pinned_, from, bytes.size()));
  }
  // Enqueues a copy out of the arena.
  void ReadLater(uint64_t offset, size_t size_bytes, size_t slot = 0) {
    Must(stream_.CopyOut(out_pinned_, PlaceOf(offset, slot), made_->arena().begin + offset,
                         size_bytes));
  }
  // Enqueues a copy of the result of the last call, in place of ReadLater.
  void ReadResultLater(const sync::DeviceValues& values, size_t size_bytes, size_t slot = 0) {
    Must(stream_.CopyOut(out_pinned_, PlaceOf(values.offset, slot), made_->ResultOf(values),
                         size_bytes));
  }
  // The bytes that ReadLater has read, when the stream is done.
  std::string BytesRead(uint64_t offset, size_t size_bytes, size_t slot = 0) const {
    return {reinterpret_cast<const char*>(out_pinned_.bytes().data()) + PlaceOf(offset, slot),
            size_bytes};
  }
  std::string ReadNow(uint64_t offset, size_t size_bytes) {
    ReadLater(offset, size_bytes);
    Must(stream_.Synchronize());
    return BytesRead(offset, size_bytes);
  }

  Result<sync::CallOutcome> AllReduce(const sync::CallTag& tag, const sync::DeviceValues& values,
                                      const sync::Reduction& reduction) {
    return made_->AllReduce(tag, values, reduction, stream_);
  }

  Result<sync::CallOutcome> Broadcast(const sync::CallTag& tag, const sync::DeviceValues& values,
                                      int root) {
    return made_->Broadcast(tag, values, root, stream_);
  }

  // Waits without a call of the driver that waits.
  void Drain() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    if (!Good(sync::LookUntil([this] { return stream_.IsDone(); }, limit, {}))) {
      throw std::runtime_error("the stream is not done");
    }
  }

  // Collective.
  void Leave() {
    Must(stream_.Synchronize());
    if (made_ != nullptr) Must(made_->LeaveInPeace());
  }
  // Without leaving.
  void Drop() { made_.reset(); }

 private:
  uint64_t PlaceOf(uint64_t offset, size_t slot) const {
    return slot * setup_.options.arena_bytes + offset;
  }

  const RankSetup setup_;
  ranks::SoloHealth solo_;
  const std::shared_ptr<::lmdbio::device::Device> gpu_;
  SharedBytes in_{kSlots * setup_.options.arena_bytes};
  SharedBytes out_{kSlots * setup_.options.arena_bytes};
  ::lmdbio::device::PinnedBytes in_pinned_ = Good(gpu_->Pin(in_.bytes()));
  ::lmdbio::device::PinnedBytes out_pinned_ = Good(gpu_->Pin(out_.bytes()));
  ::lmdbio::device::DeviceStream stream_ = Good(gpu_->MakeStream());
  WatchedMeetings meetings_;
  std::unique_ptr<kernels::DeviceKernels> kernels_;
  std::vector<std::string> notes_;
  std::unique_ptr<sync::ArenaCollectives> made_;
};

// Runs `body` on threads that are ranks. Returns every complaint.
inline std::vector<std::string> RunRanksOnDevice(
    int rank_count, const std::function<void(ranks::Group& group, Complaints& complaints)>& body,
    int ranks_per_host = 1 << 20) {
  std::vector<Complaints> complaints(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({.rank_count = rank_count, .ranks_per_host = ranks_per_host},
                      [&](ranks::Group& group) {
                        Complaints& mine = complaints[static_cast<size_t>(group.rank())];
                        try {
                          body(group, mine);
                        } catch (const std::exception& error) {
                          mine.Expect(false, error.what());
                        }
                      });
  std::vector<std::string> list;
  for (const Complaints& one : complaints) {
    list.insert(list.end(), one.list().begin(), one.list().end());
  }
  return list;
}

// --- Values ------------------------------------------------------------------------------------

// Numbers about 1, and a few bits of any kind: infinities, NaN, denormals.
inline std::string RandomValues(sync::DataType type, size_t count, Random& random) {
  const size_t element_bytes = sync::ElementBytes(type);
  std::string bytes = random.BytesOf(count * element_bytes);
  for (size_t i = 0; i < count && sync::IsFloating(type); ++i) {
    if (random.Below(8) == 0) continue;
    const double number = (static_cast<double>(random.Below(4001)) - 2000) / 700;
    char* const at = bytes.data() + i * element_bytes;
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    if (type == sync::DataType::kFloat32) put(static_cast<float>(number));
    if (type == sync::DataType::kFloat64) put(number);
    if (type == sync::DataType::kFloat16) put(Encode(kHalf, number));
    if (type == sync::DataType::kBFloat16) put(Encode(kBrainHalf, number));
  }
  return bytes;
}

// The values of all ranks in one call, the same on every rank.
struct ValuesOfRanks {
  ValuesOfRanks(int rank_count, const sync::DeviceValues& all, uint64_t seed) : values(all) {
    Random random(seed);
    for (int rank = 0; rank < rank_count; ++rank) {
      of.push_back(RandomValues(values.type, values.count, random));
    }
  }

  // "" if these bytes are the reduction, to the bit but for those of a NaN.
  std::string Compare(const std::string& found, const sync::Reduction& reduction) const {
    std::vector<const std::byte*> sources;
    for (const std::string& one : of) {
      sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
    }
    const auto expected = ReduceSlowly(values.type, reduction, sources, values.count);
    const size_t wrong =
        FirstDifference(values.type, reinterpret_cast<const std::byte*>(found.data()),
                        expected.data(), values.count);
    if (wrong == values.count) return "";
    return fmt::format("{} {} x {} at {}, scaled by {}: element {} is wrong",
                       sync::NameOf(reduction.op), sync::NameOf(values.type), values.count,
                       values.offset, reduction.scale, wrong);
  }

  sync::DeviceValues values;
  std::vector<std::string> of;  // [ranks] bytes
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_DEVICE_RANK_ON_DEVICE_H_
