#include "tests/emulated_nccl/nccl_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::test {
namespace {

constexpr uint64_t kHeadBytes = uint64_t{1} << 16;
static_assert(sizeof(BoardRank) * kBoardRanksMax <= kHeadBytes);
constexpr uint64_t kBoardBytes = kHeadBytes + kBoardRanksMax * kBoardSlots * kBoardSlotBytes;

std::byte* MapBoard(int file) {
  void* const mapped =
      ::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (mapped == MAP_FAILED) {
    std::perror("the memory of the emulated NCCL");
    std::abort();
  }
  return static_cast<std::byte*>(mapped);
}

}  // namespace

sync::NcclId NcclBoard::MakeId() {
  const int file = ::memfd_create("lmdbio-emulated-nccl", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(kBoardBytes)) != 0) {
    std::perror("the file of the emulated NCCL");
    std::abort();
  }
  std::byte* const memory = MapBoard(file);
  for (int rank = 0; rank < kBoardRanksMax; ++rank) {
    ::new (memory + static_cast<size_t>(rank) * sizeof(BoardRank)) BoardRank();
  }
  ::munmap(memory, kBoardBytes);
  sync::NcclId id = {};
  std::snprintf(id.bytes, sizeof(id.bytes), "/proc/%d/fd/%d", ::getpid(), file);
  return id;
}

std::shared_ptr<NcclBoard> NcclBoard::Open(const sync::NcclId& id) {
  const UniqueFd file(::open(id.bytes, O_RDWR | O_CLOEXEC));
  if (file.get() < 0) return nullptr;
  return std::shared_ptr<NcclBoard>(new NcclBoard(MapBoard(file.get())));
}

NcclBoard::NcclBoard(std::byte* memory)
    : memory_(memory), ranks_(std::launder(reinterpret_cast<BoardRank*>(memory))) {}

NcclBoard::~NcclBoard() { ::munmap(memory_, kBoardBytes); }

std::byte* NcclBoard::SlotOf(int rank, uint64_t call) const {
  const uint64_t slot = static_cast<uint64_t>(rank) * kBoardSlots + call % kBoardSlots;
  return memory_ + kHeadBytes + slot * kBoardSlotBytes;
}

}  // namespace lmdbio::test
