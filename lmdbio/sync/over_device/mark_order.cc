// Streams raise marks in memory that all ranks share, and wait for them:
//
//   offset 128 r       rank r, "ready": its mark, and the count that it has announced
//   offset 128 r + 64  rank r, "done": the same
//   offset 128 P       behind those of P ranks: 1 in place of the count, if marks are poisoned
//
// A mark counts the announcements of its owner. A stream of the owner raises it. The host of the
// owner stores the count beside it when the raise is enqueued, and before it meets the others. So a
// wait is for a count that was announced, whatever calls were declined before.
#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/device/device_mark.h"
#include "lmdbio/device/pinned_bytes.h"
#include "lmdbio/ranks/shm/shared_memory.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "lmdbio/sync/over_device/stream_orders.h"

namespace lmdbio::sync {
namespace {

using device::DeviceMark;
using device::DeviceStream;
using device::MarkWait;
using device::PinnedBytes;

constexpr size_t kPoints = 2;

struct alignas(kCacheLineBytes) MarkLine {
  uint64_t mark = 0;
  std::atomic<uint64_t> announced = 0;
};
static_assert(sizeof(MarkLine) == kCacheLineBytes && offsetof(MarkLine, mark) == 0);

struct RankMark {
  DeviceMark mark;
  std::atomic<uint64_t>* announced;
};

class MarkOrder final : public StreamOrder {
 public:
  // Errors: as DeviceMark::In
  static Result<std::unique_ptr<StreamOrder>> Make(int rank, int rank_count,
                                                   std::unique_ptr<ranks::SharedMemory> memory,
                                                   PinnedBytes pinned) {
    std::vector<RankMark> marks;
    const size_t count = static_cast<size_t>(rank_count) * kPoints;
    auto* const lines = std::launder(reinterpret_cast<MarkLine*>(memory->bytes().data()));
    for (size_t i = 0; i < count; ++i) {
      LMDBIO_TRY(const DeviceMark mark, DeviceMark::In(pinned, i * sizeof(MarkLine)));
      marks.push_back({mark, &lines[i].announced});
    }
    return std::unique_ptr<StreamOrder>(new MarkOrder(rank, std::move(memory), std::move(pinned),
                                                      std::move(marks), lines[count].announced));
  }

  OrderKind kind() const override { return OrderKind::kMark; }

  Status Announce(OrderPoint point, DeviceStream& stream) override {
    const RankMark& own = MarkOf(rank_, point);
    const uint64_t count = own.announced->load(std::memory_order_relaxed) + 1;  // no other writes
    LMDBIO_TRY_VOID(stream.Raise(own.mark, count));
    // The meeting orders it before the loads of others; see Await.
    own.announced->store(count, std::memory_order_release);
    return {};
  }

  Status Await(OrderPoint point, std::span<const int> ranks, DeviceStream& stream) override {
    std::vector<MarkWait> waits;
    waits.reserve(ranks.size());
    for (const int rank : ranks) {
      if (rank == rank_) continue;
      const RankMark& theirs = MarkOf(rank, point);
      waits.push_back({theirs.mark, theirs.announced->load(std::memory_order_acquire)});
    }
    return stream.AwaitAll(waits);
  }

  // A raise of a rank that still works may follow, and take the poison away. But it raises to the
  // last count that was announced, and no stream waits for more.
  // `is_void_` comes first: a thread that finds a wait ended by the poison must see it.
  void Poison() override {
    is_void_.store(1);
    for (const RankMark& one : marks_) one.mark.Poison();
  }

  bool is_void() const override { return is_void_.load() != 0; }

  void CloseOthers() override {}

 private:
  MarkOrder(int rank, std::unique_ptr<ranks::SharedMemory> memory, PinnedBytes pinned,
            std::vector<RankMark> marks, std::atomic<uint64_t>& is_void)
      : rank_(rank),
        memory_(std::move(memory)),
        pinned_(std::move(pinned)),
        marks_(std::move(marks)),
        is_void_(is_void) {}

  const RankMark& MarkOf(int rank, OrderPoint point) const {
    return marks_[static_cast<size_t>(rank) * kPoints + static_cast<size_t>(point)];
  }

  const int rank_;
  const std::unique_ptr<ranks::SharedMemory> memory_;
  const PinnedBytes pinned_;  // of memory_, so it is given back first
  const std::vector<RankMark> marks_;
  std::atomic<uint64_t>& is_void_;  // in memory_
};

}  // namespace

Result<std::unique_ptr<StreamOrder>> MakeMarkOrder(ranks::Group& group, device::Device& gpu) {
  const device::DeviceFacts& facts = gpu.facts();
  Status able;
  if (!facts.can_await_marks) {
    able = Fail(ErrorCode::kUnsupported,
                fmt::format("GPU {} ({}) or its driver has no 64-bit operations of streams",
                            facts.ordinal, facts.name));
  }
  LMDBIO_TRY_VOID(AgreeOnSupport(group, std::move(able)));
  // Whole pages of their own, because a page can be pinned once only.
  const uint64_t size_bytes = AlignUp(
      (static_cast<uint64_t>(group.size()) * kPoints + 1) * sizeof(MarkLine), MemoryPageBytes());
  LMDBIO_TRY(auto memory, group.AllocateShared(size_bytes));
  LMDBIO_TRY(PinnedBytes pinned, ForAllOrNone(group, gpu.Pin(memory->bytes())));
  return MarkOrder::Make(group.rank(), group.size(), std::move(memory), std::move(pinned));
}

}  // namespace lmdbio::sync
