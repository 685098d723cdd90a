// tests/sync/over_library/emulated_library.h - a library that reduces in the memory of GPUs of the
// stand-in (tests/emulated_gpu), for ranks that are threads or processes.
//
// As with MPI, a call waits for all ranks, and for ever if one of them is gone. It needs a current
// context, and reads what the memory holds at that time.
#ifndef LMDBIO_TESTS_SYNC_OVER_LIBRARY_EMULATED_LIBRARY_H_
#define LMDBIO_TESTS_SYNC_OVER_LIBRARY_EMULATED_LIBRARY_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "lmdbio/sync/over_library/library_collectives.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/sync/over_device/exact_values.h"

namespace lmdbio::test {

// Memory that the ranks of a job share. Made before they begin.
class LibraryBoard {
 public:
  static constexpr int kRanksMax = 4;
  static constexpr size_t kSlotBytes = 256 << 10;

  explicit LibraryBoard(int rank_count)
      : size_(rank_count), arrived_(*new (shared_.bytes().data()) std::atomic<uint64_t>(0)) {}

  int size() const { return size_; }
  std::byte* SlotOf(int rank) const {
    return shared_.bytes().data() + 64 + static_cast<size_t>(rank) * kSlotBytes;
  }
  // Returns when all ranks have come so often.
  void Meet(uint64_t nth) const {
    arrived_.fetch_add(1);
    while (arrived_.load() < nth * static_cast<uint64_t>(size_)) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  const int size_;
  const SharedBytes shared_{64 + kRanksMax * kSlotBytes};
  std::atomic<uint64_t>& arrived_;
};

class EmulatedLibrary final : public sync::BlockingLibrary {
 public:
  // Called in the thread of each call before it begins; an error ends the call.
  using Hook = std::function<Status(int call)>;  // from 1

  // board  outlives this
  EmulatedLibrary(const LibraryBoard& board, int rank, Hook hook = nullptr)
      : board_(board), rank_(rank), hook_(std::move(hook)) {}

  bool Reduces(sync::DataType type, sync::ReduceOp) const override {
    return type != sync::DataType::kFloat16;
  }
  Status AllReduce(const sync::DeviceArray& values, sync::ReduceOp op) override {
    LMDBIO_TRY_VOID(Begin({values.begin, values.size_bytes()}));
    // From the last rank on: nobody may count on the order of the host.
    std::string sum(SlotText(board_.size() - 1, values.size_bytes()));
    for (int rank = board_.size() - 2; rank >= 0; --rank) {
      sync::Reduce(values.type, op, reinterpret_cast<std::byte*>(sum.data()), board_.SlotOf(rank),
                   values.count);
    }
    return End(values.begin, sum);
  }
  Status Broadcast(const ::lmdbio::device::DeviceSpan& bytes, int root) override {
    LMDBIO_TRY_VOID(Begin(bytes));
    return End(bytes.begin, SlotText(root, bytes.size_bytes));
  }
  std::string_view name() const override { return "the stand-in"; }
  std::string_view refused_values() const override { return "float16"; }

  int call_count() const { return call_count_.load(); }

 private:
  std::string SlotText(int rank, uint64_t size_bytes) const {
    return {reinterpret_cast<const char*>(board_.SlotOf(rank)), size_bytes};
  }
  Status Begin(const ::lmdbio::device::DeviceSpan& bytes) {
    const int call = ++call_count_;
    if (hook_) LMDBIO_TRY_VOID(hook_(call));
    if (Control().CurrentDevice() < 0) return Fail(ErrorCode::kInternal, "no context is current");
    if (!Control().Peek(board_.SlotOf(rank_), bytes.begin.value, bytes.size_bytes)) {
      return Fail(ErrorCode::kInternal, "no memory of a device");
    }
    board_.Meet(++meeting_);
    return {};
  }
  Status End(::lmdbio::device::DeviceAddress to, const std::string& bytes) {
    board_.Meet(++meeting_);  // all have read
    if (Control().Poke(to.value, bytes.data(), bytes.size())) return {};
    return Fail(ErrorCode::kInternal, "no memory of a device");
  }

  const LibraryBoard& board_;
  const int rank_;
  const Hook hook_;
  std::atomic<int> call_count_ = 0;
  uint64_t meeting_ = 0;
};

inline RankSetup::Maker ByLibrary(std::shared_ptr<sync::BlockingLibrary> library,
                                  uint64_t arena_bytes = 64 << 10) {
  return [library, arena_bytes](ranks::Group& group, const sync::DeviceCollectiveParts& parts)
             -> Result<std::unique_ptr<sync::ArenaCollectives>> {
    return sync::LibraryCollectives::Make(group,
                                          {.gpu = parts.gpu,
                                           .kernels = parts.kernels,
                                           .meetings = parts.meetings,
                                           .check = parts.check,
                                           .library = library},
                                          arena_bytes);
  };
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_LIBRARY_EMULATED_LIBRARY_H_
