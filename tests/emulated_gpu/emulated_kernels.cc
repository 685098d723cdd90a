// A launch runs all at once, because its threads never wait for each other. The seed draws the
// order of the blocks, and of the threads in each.

#include "tests/emulated_gpu/emulated_kernels.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "lmdbio/kernels/kernel_list.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

using namespace kernels;  // the bodies and their tables

// Puts the addresses of the stand-in itself in the place of those of the program. It looks up whole
// ranges, as a kernel may use all of them.
class AddressFinder {
 public:
  AddressFinder(const DeviceTables& memory, int ordinal) : memory_(memory), ordinal_(ordinal) {}

  bool Put(uint64_t& address, uint64_t size_bytes) const {
    if (size_bytes == 0) return true;
    std::byte* const found = memory_.ResolveFor(ordinal_, address, size_bytes);
    address = reinterpret_cast<uint64_t>(found);
    return found != nullptr;
  }

  bool PutAll(ReduceTable& table) {
    bool are_live = true;
    for (uint32_t i = 0; i < table.source_count; ++i) {
      are_live = are_live && Put(table.sources[i], table.size_bytes);
    }
    for (uint32_t i = 0; i < table.target_count; ++i) {
      are_live = are_live && Put(table.targets[i], table.size_bytes);
    }
    return are_live;
  }

  bool PutAll(PackTable& table) {
    bool are_live = true;
    for (uint32_t i = 0; i < table.part_count; ++i) {
      PackPart& part = table.parts[i];
      const uint64_t size_bytes = part.end - (i == 0 ? 0 : table.parts[i - 1].end);
      are_live = are_live && Put(part.from, size_bytes) && Put(part.to, size_bytes);
    }
    return are_live;
  }

  bool PutAll(GatherTable& table) {
    if (!Put(table.pieces, table.piece_count * sizeof(GatherPiece))) return false;
    const auto* const written = reinterpret_cast<const GatherPiece*>(table.pieces);
    if (table.piece_count > 0) pieces_.assign(written, written + table.piece_count);
    for (GatherPiece& piece : pieces_) {
      if (!Put(piece.from, piece.copy_bytes)) return false;
      if (!Put(piece.to, uint64_t{piece.copy_bytes} + piece.fill_bytes)) return false;
    }
    table.pieces = reinterpret_cast<uint64_t>(pieces_.data());
    return true;
  }

 private:
  const DeviceTables& memory_;
  const int ordinal_;
  std::vector<GatherPiece> pieces_;
};

std::vector<uint32_t> Drawn(uint32_t count, Random& random) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  random.Shuffle(order);
  return order;
}

template <typename Table, typename Body>
bool RunAll(const DeviceTables& memory, const std::byte* parameter, const EmulatedLaunch& launch,
            const Body& body) {
  Table table;
  std::memcpy(static_cast<void*>(&table), parameter, sizeof(table));
  AddressFinder finder(memory, launch.ordinal);
  if (!finder.PutAll(table)) return false;
  Random random(launch.seed);
  const std::vector<uint32_t> threads = Drawn(launch.threads, random);
  for (const uint32_t block : Drawn(launch.blocks, random)) {
    for (const uint32_t thread : threads) {
      body(table, KernelPlace{block, launch.blocks, thread, launch.threads});
    }
  }
  return true;
}

#define LMDBIO_EMULATE(NAME, TABLE, BODY)                                                        \
  EmulatedKernel{                                                                                \
      #NAME, sizeof(TABLE),                                                                      \
      [](const DeviceTables& memory, const std::byte* parameter, const EmulatedLaunch& launch) { \
        return RunAll<TABLE>(                                                                    \
            memory, parameter, launch,                                                           \
            [](const TABLE& table, const KernelPlace& place) { BODY(table, place); });           \
      }},

const EmulatedKernel kEmulatedKernels[] = {LMDBIO_FOR_EACH_KERNEL(LMDBIO_EMULATE)};

}  // namespace

const EmulatedKernel* FindEmulatedKernel(std::string_view name) {
  for (const EmulatedKernel& kernel : kEmulatedKernels) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

}  // namespace lmdbio::test
