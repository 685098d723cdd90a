// lmdbio/kernels/kernel_words.h - the parts that all kernel bodies share: their place in a launch,
// memory in words of 16 bytes, and bytes that a word begins at any offset.
//
// A kernel body is plain C++ for one thread. nvcc compiles it for GPUs, and the host's compiler for
// tests. Threads never wait for each other, so a test may run them in any order.
#ifndef LMDBIO_KERNELS_KERNEL_WORDS_H_
#define LMDBIO_KERNELS_KERNEL_WORDS_H_

#include <cstddef>
#include <cstdint>

#include "lmdbio/sync/reduce/host_device.h"

#ifdef __CUDACC__
#define LMDBIO_KERNEL_UNROLL _Pragma("unroll")
#define LMDBIO_KERNEL_UNROLL_BY_2 _Pragma("unroll 2")
#else
#define LMDBIO_KERNEL_UNROLL
#define LMDBIO_KERNEL_UNROLL_BY_2
#endif

namespace lmdbio::kernels {

// Four such blocks fill a multiprocessor, if a thread has 32 registers.
inline constexpr uint32_t kBlockThreads = 512;

// One thread of a launch.
struct KernelPlace {
  uint32_t block = 0;
  uint32_t blocks = 0;
  uint32_t thread = 0;  // in its block
  uint32_t threads = 0;

  LMDBIO_HOST_DEVICE uint64_t index() const { return uint64_t{block} * threads + thread; }
  LMDBIO_HOST_DEVICE uint64_t count() const { return uint64_t{blocks} * threads; }
};

// The widest access of a GPU's thread.
struct alignas(16) KernelWord {
  uint64_t low = 0;
  uint64_t high = 0;
};
inline constexpr uint64_t kWordBytes = sizeof(KernelWord);

// The memory at an address. nvcc is told that it is global memory, which allows better accesses.
// With a conversion by __cvta_global_to_generic, nvcc 13.0 compiles the copies without end.
LMDBIO_HOST_DEVICE std::byte* PointerOf(uint64_t address) {
  auto* const at = reinterpret_cast<std::byte*>(address);
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(at));
#endif
  return at;
}

LMDBIO_HOST_DEVICE uint64_t PastWord(const std::byte* at) {
  return reinterpret_cast<uint64_t>(at) % kWordBytes;
}

// A GPU ends the context at an access that is not aligned. So does the host, to show it in tests.
LMDBIO_HOST_DEVICE void RequireAligned([[maybe_unused]] const std::byte* at) {
#ifndef __CUDA_ARCH__
  if (PastWord(at) != 0) __builtin_trap();
#endif
}

// at  aligned to 16 bytes, as for StoreWord
LMDBIO_HOST_DEVICE KernelWord LoadWord(const std::byte* at) {
  RequireAligned(at);
#ifdef __CUDA_ARCH__
  const ulonglong2 word = *reinterpret_cast<const ulonglong2*>(at);
  return {word.x, word.y};
#else
  KernelWord word;
  __builtin_memcpy(&word, at, sizeof(word));
  return word;
#endif
}

LMDBIO_HOST_DEVICE void StoreWord(std::byte* at, const KernelWord& word) {
  RequireAligned(at);
#ifdef __CUDA_ARCH__
  *reinterpret_cast<ulonglong2*>(at) = make_ulonglong2(word.low, word.high);
#else
  __builtin_memcpy(at, &word, sizeof(word));
#endif
}

// The 16 bytes that begin `shift` bytes after the begin of `first`, which `second` follows.
// shift  [0, 16)
LMDBIO_HOST_DEVICE KernelWord ShiftedWord(const KernelWord& first, const KernelWord& second,
                                          uint64_t shift) {
  const bool is_in_low = shift < 8;
  const uint64_t a = is_in_low ? first.low : first.high;
  const uint64_t b = is_in_low ? first.high : second.low;
  const uint64_t c = is_in_low ? second.low : second.high;
  const uint64_t bits = shift % 8 * 8;
  if (bits == 0) return {a, b};
  return {a >> bits | b << (64 - bits), b >> bits | c << (64 - bits)};
}

// An element at any address. Bits is an unsigned integer of its size.
template <typename Bits>
LMDBIO_HOST_DEVICE Bits LoadBits(const std::byte* at) {
  if (reinterpret_cast<uint64_t>(at) % sizeof(Bits) == 0) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const Bits*>(at);
#else
    Bits bits = 0;
    __builtin_memcpy(&bits, at, sizeof(bits));
    return bits;
#endif
  }
  uint64_t bits = 0;
  LMDBIO_KERNEL_UNROLL
  for (unsigned i = 0; i < sizeof(Bits); ++i) bits |= static_cast<uint64_t>(at[i]) << (8 * i);
  return static_cast<Bits>(bits);
}

template <typename Bits>
LMDBIO_HOST_DEVICE void StoreBits(std::byte* at, Bits bits) {
  if (reinterpret_cast<uint64_t>(at) % sizeof(Bits) == 0) {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<Bits*>(at) = bits;
#else
    __builtin_memcpy(at, &bits, sizeof(bits));
#endif
    return;
  }
  LMDBIO_KERNEL_UNROLL
  for (unsigned i = 0; i < sizeof(Bits); ++i) {
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(bits) >> (8 * i) & 0xFF);
  }
}

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_KERNEL_WORDS_H_
