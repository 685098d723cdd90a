// lmdbio/kernels/copy_body.h - threads that copy bytes from any address to any other together.
//
// A store of a word is aligned. Its bytes come from one word of the source, or from two that are
// shifted together, so reads are always aligned words, too. No byte outside the source is read: a
// word of the source that is not all inside is read byte by byte.
//
//   source       ..|....aaa|AAAAAAAA|BBBBBBBB|CCCCC...|      words of the source
//   destination        .aaa A|AAAAAAAB|BBBBBBBC|CCCC...|     words of the destination
//                      head   \_shifted together_/ tail
#ifndef LMDBIO_KERNELS_COPY_BODY_H_
#define LMDBIO_KERNELS_COPY_BODY_H_

#include <cstddef>
#include <cstdint>

#include "lmdbio/kernels/kernel_numbers.h"
#include "lmdbio/kernels/kernel_words.h"
#include "lmdbio/sync/reduce/host_device.h"

namespace lmdbio::kernels {

// Threads that copy together.
struct CopyTeam {
  uint32_t thread = 0;
  uint32_t threads = 0;
};

// Bytes of a copy: `head`, then whole words of the destination, then the rest.
struct CopySplit {
  uint64_t head = 0;
  uint64_t words = 0;
  uint64_t shift = 0;  // bytes of a source's word before the first that is wanted
};

// unit  bytes of an element, which no part divides
LMDBIO_HOST_DEVICE CopySplit SplitCopy(const std::byte* to, const std::byte* from,
                                       uint64_t size_bytes, uint64_t unit) {
  CopySplit split;
  split.head = (kWordBytes - PastWord(to)) % kWordBytes;
  split.shift = PastWord(from + split.head);
  // The word of the source that the first word needs may begin before the source.
  if (split.shift > split.head) split.head += kWordBytes;
  const uint64_t needed = split.head + (split.shift == 0 ? 0 : kWordBytes - split.shift);
  if (split.head % unit != 0 || needed > size_bytes) return {size_bytes, 0, 0};
  split.words = (size_bytes - needed) / kWordBytes;
  return split;
}

// Copies as they are.
struct PlainCopy {
  static constexpr uint64_t kUnitBytes = 1;
  static constexpr unsigned kWordsAtOnce = 4;  // loads that a thread has under way
  LMDBIO_HOST_DEVICE KernelWord OfWord(const KernelWord& word) const { return word; }
  LMDBIO_HOST_DEVICE void OfUnit(std::byte* to, const std::byte* from) const { *to = *from; }
};

// Multiplies each number by a scale.
template <typename Number>
struct ScaledCopy {
  static constexpr uint64_t kUnitBytes = sizeof(typename Number::Bits);
  static constexpr unsigned kWordsAtOnce = 2;  // more of them make much machine code
  const KernelScale& scale;

  LMDBIO_HOST_DEVICE KernelWord OfWord(const KernelWord& word) const {
    WordNumbers<Number> numbers(word);
    numbers.Scale(scale);
    return numbers.Word();
  }
  LMDBIO_HOST_DEVICE void OfUnit(std::byte* to, const std::byte* from) const {
    const auto number = Number::Widen(LoadBits<typename Number::Bits>(from));
    StoreBits(to, Number::Narrow(Number::Scaled(number, scale)));
  }
};

// Word number `index` of the destination, from one or two words of the source.
// source  aligned: the word of which the first byte for word 0 is part
LMDBIO_HOST_DEVICE KernelWord SourceWord(const std::byte* source, uint64_t index, uint64_t shift) {
  const std::byte* const at = source + index * kWordBytes;
  const KernelWord first = LoadWord(at);
  return shift == 0 ? first : ShiftedWord(first, LoadWord(at + kWordBytes), shift);
}

// Copies `size_bytes`, a multiple of Copy::kUnitBytes.
// to, from  apart, or the same
template <typename Copy>
LMDBIO_HOST_DEVICE void CopyTogether(std::byte* to, const std::byte* from, uint64_t size_bytes,
                                     const Copy& copy, const CopyTeam& team) {
  constexpr unsigned kWordsAtOnce = Copy::kWordsAtOnce;
  const CopySplit split = SplitCopy(to, from, size_bytes, Copy::kUnitBytes);
  std::byte* const words = to + split.head;
  const std::byte* const source = from + split.head - split.shift;
  for (uint64_t w = team.thread; w < split.words; w += uint64_t{kWordsAtOnce} * team.threads) {
    KernelWord loaded[kWordsAtOnce];
    LMDBIO_KERNEL_UNROLL
    for (unsigned k = 0; k < kWordsAtOnce; ++k) {
      const uint64_t index = w + uint64_t{k} * team.threads;
      if (index < split.words) loaded[k] = SourceWord(source, index, split.shift);
    }
    LMDBIO_KERNEL_UNROLL
    for (unsigned k = 0; k < kWordsAtOnce; ++k) {
      const uint64_t index = w + uint64_t{k} * team.threads;
      if (index < split.words) StoreWord(words + index * kWordBytes, copy.OfWord(loaded[k]));
    }
  }
  const uint64_t in_words = split.words * kWordBytes;
  const uint64_t units = (size_bytes - in_words) / Copy::kUnitBytes;
  for (uint64_t u = team.thread; u < units; u += team.threads) {
    const uint64_t at = u * Copy::kUnitBytes;
    const uint64_t offset = at < split.head ? at : at + in_words;
    copy.OfUnit(to + offset, from + offset);
  }
}

// Fills with zeros.
LMDBIO_HOST_DEVICE void ClearTogether(std::byte* to, uint64_t size_bytes, const CopyTeam& team) {
  const uint64_t to_word = (kWordBytes - PastWord(to)) % kWordBytes;
  const uint64_t head = to_word < size_bytes ? to_word : size_bytes;
  const uint64_t words = (size_bytes - head) / kWordBytes;
  for (uint64_t w = team.thread; w < words; w += team.threads) {
    StoreWord(to + head + w * kWordBytes, {});
  }
  const uint64_t in_words = words * kWordBytes;
  for (uint64_t i = team.thread; i < size_bytes - in_words; i += team.threads) {
    to[i < head ? i : i + in_words] = std::byte{0};
  }
}

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_COPY_BODY_H_
