// tests/sync/over_device_wire/rank_on_hosts.h - a rank of several hosts, with a GPU of the stand-in
// (tests/emulated_gpu).
#ifndef LMDBIO_TESTS_SYNC_OVER_DEVICE_WIRE_RANK_ON_HOSTS_H_
#define LMDBIO_TESTS_SYNC_OVER_DEVICE_WIRE_RANK_ON_HOSTS_H_

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmdbio/sync/over_device/device_collectives.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "tests/sync/over_device_wire/rank_on_wire.h"

namespace lmdbio::test {

struct HostsSetup {
  sync::OrderKind order = sync::OrderKind::kHost;
  sync::WireAlgorithm algorithm = sync::WireAlgorithm::kRing;
  ranks::Health* health = nullptr;  // null: no rank fails
  WatchedMeetings::Watch watch = nullptr;
};

// One rank. Throws std::runtime_error where it cannot go on.
class RankOnHosts {
 public:
  static constexpr uint64_t kArenaBytes = 16 << 10;

  // Collective over `group`.
  RankOnHosts(ranks::Group& group, std::shared_ptr<::lmdbio::device::Device> gpu, HostsSetup setup)
      : setup_(std::move(setup)),
        gpu_(std::move(gpu)),
        meetings_(Good(sync::WireCollectives(Good(sync::OpenLinkWire(group, health(), {})),
                                             {.table = sync::UsualWireTable()})),
                  setup_.watch, 0) {}

  // Collective.
  // Errors: as sync::DeviceCollectives::Make
  Status Make(ranks::Group& group) {
    const auto check = [this] { return health().Check(); };
    const auto make_between =
        [&](ranks::Group& roots) -> Result<std::unique_ptr<sync::BetweenHosts>> {
      LMDBIO_TRY(auto wire, sync::OpenLinkWire(roots, health(), {.known_as = group.rank()}));
      return sync::DeviceWire::Make(roots, std::move(wire), {*gpu_, *kernels_, check, group.rank()},
                                    {.table = sync::OneWireAlgorithm(setup_.algorithm, 256, 2)});
    };
    LMDBIO_TRY(made_, sync::DeviceCollectives::Make(
                          group, {*gpu_, kernels_.get(), meetings_, check, make_between},
                          {.arena_bytes = kArenaBytes,
                           .order = setup_.order,
                           .one_shot_bytes = kArenaBytes},  // not used with several hosts
                          notes_));
    return {};
  }

  sync::DeviceCollectives* made() { return made_.get(); }
  sync::Collectives& meetings() { return meetings_; }
  ranks::Health& health() { return setup_.health != nullptr ? *setup_.health : solo_; }
  ::lmdbio::device::Device& gpu() { return *gpu_; }
  ::lmdbio::device::DeviceStream& stream() { return stream_; }
  const std::vector<std::string>& notes() const { return notes_; }

  // Writes these bytes into the arena, reduces them, and reads the result; all of it is enqueued.
  Result<sync::CallOutcome> ReduceLater(const sync::DeviceValues& values, const std::string& mine,
                                        const sync::Reduction& reduction) {
    std::memcpy(in_pinned_.bytes().data(), mine.data(), mine.size());
    const ::lmdbio::device::DeviceAddress begin = made_->arena().begin + values.offset;
    Must(stream_.CopyIn(begin, in_pinned_, 0, mine.size()));
    LMDBIO_TRY(const auto outcome, made_->AllReduce({}, values, reduction, stream_));
    Must(stream_.CopyOut(out_pinned_, 0, begin, mine.size()));
    return outcome;
  }
  // The result, when the stream is done.
  std::string Found(size_t size_bytes) const { return Read(out_pinned_, size_bytes); }

  // Waits without a call of the driver that waits. False: it is not done in time.
  bool Drain(std::chrono::milliseconds limit) {
    return Good(sync::LookUntil([this] { return stream_.IsDone(); },
                                std::chrono::steady_clock::now() + limit, {}));
  }
  // Collective.
  void Leave() {
    Must(stream_.Synchronize());
    if (made_ != nullptr) Must(made_->LeaveInPeace());
  }
  // Without leaving.
  void Drop() { made_.reset(); }

 private:
  const HostsSetup setup_;
  ranks::SoloHealth solo_;
  const std::shared_ptr<::lmdbio::device::Device> gpu_;
  SharedBytes in_{kArenaBytes};
  SharedBytes out_{kArenaBytes};
  ::lmdbio::device::PinnedBytes in_pinned_ = Good(gpu_->Pin(in_.bytes()));
  ::lmdbio::device::PinnedBytes out_pinned_ = Good(gpu_->Pin(out_.bytes()));
  ::lmdbio::device::DeviceStream stream_ = Good(gpu_->MakeStream());
  WatchedMeetings meetings_;
  const std::unique_ptr<kernels::DeviceKernels> kernels_ =
      Good(kernels::DeviceKernels::Load(*gpu_, EmulatedKernelImage()));
  std::vector<std::string> notes_;
  std::unique_ptr<sync::DeviceCollectives> made_;
  // The stand-in works on only in calls of the process, and a GPU at any time. A root waits for
  // work of ranks that are in a meeting.
  std::jthread pace_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      static_cast<void>(stream_.IsDone());
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }};
};

// Numbers from -2 to 2, so that every order of a reduction gives the same bits.
inline std::string WholeValues(sync::DataType type, size_t count, Random& random) {
  const size_t element_bytes = sync::ElementBytes(type);
  std::string bytes(count * element_bytes, '\0');
  for (size_t i = 0; i < count; ++i) {
    const auto number = static_cast<int64_t>(random.Below(5)) - 2;
    char* const at = bytes.data() + i * element_bytes;
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    if (type == sync::DataType::kFloat32) put(static_cast<float>(number));
    if (type == sync::DataType::kFloat64) put(static_cast<double>(number));
    if (type == sync::DataType::kFloat16) put(Encode(kHalf, static_cast<double>(number)));
    if (type == sync::DataType::kBFloat16) put(Encode(kBrainHalf, static_cast<double>(number)));
    if (type == sync::DataType::kInt32) put(static_cast<int32_t>(number));
    if (type == sync::DataType::kInt64) put(number);
  }
  return bytes;
}

// Reduces once. "" if the result is right.
inline std::string ReduceOnHosts(RankOnHosts& rank, const ranks::Group& group,
                                 const sync::DeviceValues& values, const sync::Reduction& reduction,
                                 uint64_t seed) {
  ValuesOfRanks all(group.size(), values, seed);
  Random random(seed);
  for (std::string& one : all.of) one = WholeValues(values.type, values.count, random);
  const std::string& mine = all.of[static_cast<size_t>(group.rank())];
  const auto outcome = rank.ReduceLater(values, mine, reduction);
  if (!outcome) return outcome.error().message();
  if (*outcome != sync::CallOutcome::kDone) return "declined";
  Must(rank.stream().Synchronize());
  return all.Compare(rank.Found(mine.size()), reduction);
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_DEVICE_WIRE_RANK_ON_HOSTS_H_
