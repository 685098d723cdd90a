// lmdbio/kernels/reduce_body.h - the kernel that reduces several arrays to one.
//
// Each thread takes words of 16 bytes, reads them from all sources in their order, and writes the
// result to all targets. So a target may be one of the sources.
#ifndef LMDBIO_KERNELS_REDUCE_BODY_H_
#define LMDBIO_KERNELS_REDUCE_BODY_H_

#include <cstdint>

#include "lmdbio/kernels/kernel_numbers.h"
#include "lmdbio/kernels/kernel_words.h"
#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::kernels {

inline constexpr uint32_t kReduceSourcesMax = 64;
inline constexpr uint32_t kReduceTargetsMax = 64;

// The parameter of the kernel. PlanReduce fills it.
struct ReduceTable {
  uint64_t size_bytes = 0;  // of each array
  uint64_t head_bytes = 0;  // before the first word; all of them if there are no words
  uint64_t words = 0;       // each aligned in all arrays
  uint32_t source_count = 0;
  uint32_t target_count = 0;
  KernelScale scale;
  uint64_t sources[kReduceSourcesMax] = {};  // addresses
  uint64_t targets[kReduceTargetsMax] = {};
};
static_assert(sizeof(ReduceTable) <= 4096, "the parameters of a kernel for any driver");

// Words of a thread that are on their way at once: a use of the first waits for the memory.
inline constexpr uint32_t kSourcesAtOnce = 4;
struct SourceWords {
  KernelWord words[kSourcesAtOnce];  // of sources `first` and later, as far as there are
};

LMDBIO_HOST_DEVICE SourceWords LoadSources(const ReduceTable& table, uint32_t first,
                                           uint64_t offset) {
  SourceWords loaded;
  LMDBIO_KERNEL_UNROLL
  for (uint32_t k = 0; k < kSourcesAtOnce; ++k) {
    if (first + k >= table.source_count) break;
    loaded.words[k] = LoadWord(PointerOf(table.sources[first + k]) + offset);
  }
  return loaded;
}

// Adds sources `first + k` and later of those that were loaded.
template <typename Operation, typename Numbers>
LMDBIO_HOST_DEVICE void ReduceLoaded(const ReduceTable& table, const SourceWords& loaded,
                                     uint32_t first, uint32_t k, Numbers& sums) {
  LMDBIO_KERNEL_UNROLL
  for (; k < kSourcesAtOnce; ++k) {
    if (first + k >= table.source_count) break;
    const Numbers next(loaded.words[k]);
    LMDBIO_KERNEL_UNROLL
    for (unsigned i = 0; i < Numbers::kCount; ++i) {
      sums.values[i] = Operation::Of(sums.values[i], next.values[i]);
    }
  }
}

template <typename Number, typename Operation>
LMDBIO_HOST_DEVICE void ReduceWord(const ReduceTable& table, uint64_t offset) {
  SourceWords loaded = LoadSources(table, 0, offset);
  WordNumbers<Number> sums(loaded.words[0]);
  ReduceLoaded<Operation>(table, loaded, 0, 1, sums);
  for (uint32_t s = kSourcesAtOnce; s < table.source_count; s += kSourcesAtOnce) {
    loaded = LoadSources(table, s, offset);
    ReduceLoaded<Operation>(table, loaded, s, 0, sums);
  }
  if (table.scale.is_one == 0) sums.Scale(table.scale);
  const KernelWord word = sums.Word();
  for (uint32_t t = 0; t < table.target_count; ++t) {
    StoreWord(PointerOf(table.targets[t]) + offset, word);
  }
}

template <typename Number, typename Operation>
LMDBIO_HOST_DEVICE void ReduceElement(const ReduceTable& table, uint64_t offset) {
  using Bits = typename Number::Bits;
  auto sum = Number::Widen(LoadBits<Bits>(PointerOf(table.sources[0]) + offset));
  for (uint32_t s = 1; s < table.source_count; ++s) {
    const auto next = Number::Widen(LoadBits<Bits>(PointerOf(table.sources[s]) + offset));
    sum = Operation::Of(sum, next);
  }
  if (table.scale.is_one == 0) sum = Number::Scaled(sum, table.scale);
  const Bits bits = Number::Narrow(sum);
  for (uint32_t t = 0; t < table.target_count; ++t) {
    StoreBits(PointerOf(table.targets[t]) + offset, bits);
  }
}

template <typename Number, typename Operation>
LMDBIO_HOST_DEVICE void ReduceBody(const ReduceTable& table, const KernelPlace& place) {
  constexpr uint64_t kElementBytes = sizeof(typename Number::Bits);
  for (uint64_t w = place.index(); w < table.words; w += place.count()) {
    ReduceWord<Number, Operation>(table, table.head_bytes + w * kWordBytes);
  }
  const uint64_t in_words = table.words * kWordBytes;
  const uint64_t elements = (table.size_bytes - in_words) / kElementBytes;
  for (uint64_t i = place.index(); i < elements; i += place.count()) {
    const uint64_t offset = i * kElementBytes;
    ReduceElement<Number, Operation>(table, offset < table.head_bytes ? offset : offset + in_words);
  }
}

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_REDUCE_BODY_H_
