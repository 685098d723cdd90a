// lmdbio/file/provenance/number_codec.h - compresses a list of numbers.
//
// The list is split into byte planes: all lowest bytes, all second bytes, and so on. Each plane is
// compressed separately. Sizes and page numbers have low bytes that look random and high bytes that
// rarely change. In a plane of their own, the high bytes compress to almost nothing.
//
//   u8 plane count, then for each plane: u32 length, zstd frame of [count] bytes
#ifndef LMDBIO_FILE_PROVENANCE_NUMBER_CODEC_H_
#define LMDBIO_FILE_PROVENANCE_NUMBER_CODEC_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::file {

// The longest list. It bounds the allocation of a decoder for any file content.
inline constexpr size_t kNumbersMax = size_t{1} << 21;

// Maps a difference of small magnitude and either sign to a small number.
inline uint64_t ZigZag(uint64_t difference) {
  return (difference << 1) ^ (uint64_t{0} - (difference >> 63));
}
inline uint64_t UnZigZag(uint64_t code) { return (code >> 1) ^ (uint64_t{0} - (code & 1)); }

// Requires: numbers.size() <= kNumbersMax
void EncodeNumbers(std::span<const uint64_t> numbers, ByteWriter& out);

// Reads a list of `count` numbers into `numbers`, which is resized.
// Errors: kCorruption
Status DecodeNumbers(ByteReader& in, size_t count, std::vector<uint64_t>& numbers);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_NUMBER_CODEC_H_
