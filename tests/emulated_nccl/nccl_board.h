// tests/emulated_nccl/nccl_board.h - the memory that the ranks of an emulated communicator share.
#ifndef LMDBIO_TESTS_EMULATED_NCCL_NCCL_BOARD_H_
#define LMDBIO_TESTS_EMULATED_NCCL_NCCL_BOARD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lmdbio/sync/over_nccl/nccl_table.h"

namespace lmdbio::test {

inline constexpr int kBoardRanksMax = 8;
inline constexpr uint64_t kBoardSlots = 2;  // calls of a rank whose values others may read
inline constexpr uint64_t kBoardSlotBytes = uint64_t{64} << 20;

// One call of a rank. All ranks make the same.
struct BoardCall {
  uint64_t count = 0;
  int type = 0;
  int op = -1;    // -1: a broadcast
  int root = -1;  // -1: a reduction

  friend bool operator==(const BoardCall&, const BoardCall&) = default;
};

struct alignas(64) BoardRank {
  std::atomic<int> device = -1;      // its ordinal; -1: the rank is not there yet
  std::atomic<uint64_t> posted = 0;  // calls whose values are in the slots
  std::atomic<uint64_t> read = 0;    // calls for which it has read the values of all
  std::atomic<bool> has_finished = false;
  std::array<BoardCall, kBoardSlots> calls;
};

// Threads: any
class NcclBoard {
 public:
  // A new board, whose file lives until the process ends.
  static sync::NcclId MakeId();
  // Null if the process that has made it is gone.
  static std::shared_ptr<NcclBoard> Open(const sync::NcclId& id);
  ~NcclBoard();
  NcclBoard(const NcclBoard&) = delete;
  NcclBoard& operator=(const NcclBoard&) = delete;

  BoardRank& of(int rank) const { return ranks_[rank]; }
  // The values of a call of a rank.
  std::byte* SlotOf(int rank, uint64_t call) const;

 private:
  explicit NcclBoard(std::byte* memory);

  std::byte* memory_;
  BoardRank* ranks_;  // [kBoardRanksMax]
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_NCCL_NCCL_BOARD_H_
