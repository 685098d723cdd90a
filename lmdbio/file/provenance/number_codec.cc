#include "lmdbio/file/provenance/number_codec.h"

#include <zstd.h>

#include <bit>

#include "lmdbio/base/check.h"

namespace lmdbio::file {
namespace {

// A higher level does not make the frames of such data smaller.
constexpr int kCompressionLevel = 9;
constexpr uint32_t kPlanesMax = 8;

void EncodePlane(std::span<const std::byte> plane, ByteWriter& out) {
  std::vector<std::byte> frame(ZSTD_compressBound(plane.size()));
  const size_t size =
      ZSTD_compress(frame.data(), frame.size(), plane.data(), plane.size(), kCompressionLevel);
  LMDBIO_CHECK(ZSTD_isError(size) == 0U);  // the frame has the largest size that zstd can need
  out.Put(static_cast<uint32_t>(size));
  out.PutBytes(Bytes(frame).first(size));
}

tl::unexpected<Error> Corrupt() {
  return Fail(ErrorCode::kCorruption, "a list of numbers cannot be unpacked");
}

}  // namespace

// Planes above the highest byte in use are left out. A list of zeros has no plane at all.
void EncodeNumbers(std::span<const uint64_t> numbers, ByteWriter& out) {
  LMDBIO_CHECK(numbers.size() <= kNumbersMax);
  uint64_t any = 0;
  for (const uint64_t number : numbers) any |= number;
  const auto plane_count = static_cast<uint8_t>((std::bit_width(any) + 7) / 8);
  out.Put(plane_count);
  std::vector<std::byte> plane(numbers.size());
  for (uint32_t p = 0; p < plane_count; ++p) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      plane[i] = static_cast<std::byte>(numbers[i] >> (8 * p));
    }
    EncodePlane(plane, out);
  }
}

Status DecodeNumbers(ByteReader& in, size_t count, std::vector<uint64_t>& numbers) {
  if (count > kNumbersMax) return Corrupt();
  numbers.assign(count, 0);
  const uint32_t plane_count = in.Get<uint8_t>();
  if (!in.ok() || plane_count > kPlanesMax) return Corrupt();
  std::vector<std::byte> plane(count);
  for (uint32_t p = 0; p < plane_count; ++p) {
    const Bytes frame = in.GetBytes(in.Get<uint32_t>());
    if (!in.ok()) return Corrupt();
    // The destination has exactly `count` bytes, so zstd refuses a frame that would expand to more.
    if (ZSTD_decompress(plane.data(), count, frame.data(), frame.size()) != count) {
      return Corrupt();
    }
    for (size_t i = 0; i < count; ++i) {
      numbers[i] |= std::to_integer<uint64_t>(plane[i]) << (8 * p);
    }
  }
  return {};
}

}  // namespace lmdbio::file
