#include "tests/emulated_nccl/emulated_communicator.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::test {
namespace {

using sync::DataType;
using sync::NcclCode;
using sync::ReduceOp;
namespace codes = nccl_codes;

constexpr std::byte kAbortedPattern{0xA7};

std::mutex words_mutex;
std::string last_words;  // of the mutex

// The size of an element; 0: no such type.
uint64_t BytesOfType(int type) {
  constexpr uint64_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? kBytes[type] : 0;
}

// Those that can be reduced here.
bool FindType(int type, DataType& found) {
  constexpr std::pair<int, DataType> kTypes[] = {{2, DataType::kInt32},   {4, DataType::kInt64},
                                                 {6, DataType::kFloat16}, {7, DataType::kFloat32},
                                                 {8, DataType::kFloat64}, {9, DataType::kBFloat16}};
  for (const auto& [number, one] : kTypes) {
    if (number != type) continue;
    found = one;
    return true;
  }
  return false;
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin};

// The work of one call. Copies of it are enqueued.
struct CallWork {
  std::shared_ptr<NcclBoard> board;
  std::shared_ptr<std::atomic<bool>> is_aborted;
  int rank;
  int size;
  uint64_t number;
  BoardCall call;

  uint64_t size_bytes() const { return call.count * BytesOfType(call.type); }
  // Every rank has done so many calls.
  bool HaveAll(std::atomic<uint64_t> BoardRank::*counter, uint64_t calls) const {
    for (int one = 0; one < size; ++one) {
      if ((board->of(one).*counter).load() < calls) return false;
    }
    return true;
  }

  bool MayPost() const {
    return is_aborted->load() || number < kBoardSlots ||
           HaveAll(&BoardRank::read, number + 1 - kBoardSlots);
  }
  void Post(const std::byte* from) const {
    BoardRank& mine = board->of(rank);
    if (from != nullptr) std::memcpy(board->SlotOf(rank, number), from, size_bytes());
    mine.calls[number % kBoardSlots] = call;
    mine.posted.store(number + 1);
  }

  bool MayRead() const { return is_aborted->load() || HaveAll(&BoardRank::posted, number + 1); }
  void Read(std::byte* to) const {
    for (int one = 0; one < size; ++one) {
      if (board->of(one).calls[number % kBoardSlots] == call) continue;
      std::fprintf(stderr, "emulated NCCL: ranks %d and %d make different calls\n", rank, one);
      std::abort();
    }
    const int first = call.root >= 0 ? call.root : size - 1;
    std::memcpy(to, board->SlotOf(first, number), size_bytes());
    DataType type{};
    for (int one = size - 2; one >= 0 && call.root < 0 && FindType(call.type, type); --one) {
      sync::Reduce(type, kOps[call.op], to, board->SlotOf(one, number), call.count);
    }
    board->of(rank).read.store(number + 1);
  }
};

}  // namespace

const EmulatedControl& GpuControl() {
  static const EmulatedControl& control = *[] {
    using Get = decltype(&lmdbio_emulated_gpu_control);
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto get = library != nullptr
                         ? reinterpret_cast<Get>(::dlsym(library, "lmdbio_emulated_gpu_control"))
                         : nullptr;
    if (get == nullptr) {
      std::fprintf(stderr, "the emulated NCCL needs the emulated driver\n");
      std::abort();
    }
    return get();
  }();
  return control;
}

NcclCode FailWith(NcclCode code, const char* words) {
  const std::lock_guard lock(words_mutex);
  last_words = words;
  return code;
}

const char* LastWords() {
  const std::lock_guard lock(words_mutex);
  thread_local std::string copy;
  copy = last_words;
  return copy.c_str();
}

EmulatedCommunicator::EmulatedCommunicator(std::shared_ptr<NcclBoard> board, int rank, int size,
                                           int device)
    : board_(std::move(board)), rank_(rank), size_(size), device_(device) {
  board_->of(rank).device.store(device);
}

NcclCode EmulatedCommunicator::Begin(PendingCall call) {
  if (state_ == sync::nccl_code::kInProgress) {
    return FailWith(codes::kInvalidArgument, "the last call is still in progress");
  }
  if (state_ != sync::nccl_code::kSuccess) return state_;
  const bool is_at_once =
      call.looks_left == 0 && !call.is_endless && call.fails_with == sync::nccl_code::kSuccess;
  pending_ = std::move(call);
  state_ = sync::nccl_code::kInProgress;
  return is_at_once ? Look() : state_;
}

NcclCode EmulatedCommunicator::Look() {
  if (state_ != sync::nccl_code::kInProgress || pending_.is_endless) return state_;
  if (pending_.looks_left > 0) {
    --pending_.looks_left;
  } else if (pending_.fails_with != sync::nccl_code::kSuccess) {
    state_ = FailWith(pending_.fails_with, "a fault of the test");
  } else {
    state_ = pending_.step();
  }
  return state_;
}

NcclCode EmulatedCommunicator::Meet() const {
  for (int rank = 0; rank < size_; ++rank) {
    const int device = board_->of(rank).device.load();
    if (device < 0) return sync::nccl_code::kInProgress;
    if (rank != rank_ && device == device_) {
      return FailWith(codes::kInvalidUsage, "Duplicate GPU detected");
    }
  }
  return sync::nccl_code::kSuccess;
}

NcclCode EmulatedCommunicator::Finish() const {
  board_->of(rank_).has_finished.store(true);
  for (int rank = 0; rank < size_; ++rank) {
    if (!board_->of(rank).has_finished.load()) return sync::nccl_code::kInProgress;
  }
  return sync::nccl_code::kSuccess;
}

NcclCode EmulatedCommunicator::Enqueue(const char* name, const BoardCall& call, uint64_t from,
                                       uint64_t to, device::StreamHandle stream) {
  const CallWork work{board_, is_aborted_, rank_, size_, call_count_++, call};
  if (work.size_bytes() > kBoardSlotBytes) {
    return FailWith(codes::kInternalError, "more values than the stand-in takes");
  }
  const bool brings_values = call.root < 0 || call.root == rank_;
  using MemoryAt = ForeignWork::MemoryAt;
  const auto post = [work, from, brings_values](const MemoryAt& memory_at) {
    if (work.is_aborted->load()) return;
    const std::byte* const values = brings_values ? memory_at(from, work.size_bytes()) : nullptr;
    if (values != nullptr || !brings_values) work.Post(values);
  };
  const auto read = [work, to](const MemoryAt& memory_at) {
    std::byte* const values = memory_at(to, work.size_bytes());
    if (values == nullptr) return;
    if (work.HaveAll(&BoardRank::posted, work.number + 1) && !work.is_aborted->load()) {
      work.Read(values);
    } else {
      std::memset(values, static_cast<int>(kAbortedPattern), work.size_bytes());
    }
  };
  const auto enqueue = [&](std::function<bool()> may_run,
                           std::function<void(const MemoryAt&)> run) {
    return GpuControl().Enqueue(name, stream, {std::move(may_run), std::move(run)}) == 0;
  };
  if (enqueue([work] { return work.MayPost(); }, post) &&
      enqueue([work] { return work.MayRead(); }, read)) {
    return sync::nccl_code::kSuccess;
  }
  return FailWith(codes::kUnhandledCudaError, "the driver refuses the kernel");
}

}  // namespace lmdbio::test
