#include "bench/on_device/repeated_bytes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "bench/on_device/figure_run.h"
#include "lmdbio/sync/reduce/half_bits.h"

namespace lmdbio::figures {
namespace {

using sync::DataType;

// 65,536 pieces of 16 bytes, and 37 more: no power of two of words.
constexpr uint64_t kPeriodBytes = (uint64_t{1} << 20) + 37 * 16;

template <typename T>
void Put(std::vector<std::byte>& bytes, size_t index, T value) {
  std::memcpy(&bytes[index * sizeof(T)], &value, sizeof(T));
}

}  // namespace

std::string SizeText(uint64_t size_bytes) {
  constexpr uint64_t kKibi = 1 << 10;
  if (size_bytes >= kMebi && size_bytes % kMebi == 0) {
    return fmt::format("{} MiB", size_bytes / kMebi);
  }
  if (size_bytes >= kKibi && size_bytes % kKibi == 0) {
    return fmt::format("{} KiB", size_bytes / kKibi);
  }
  return fmt::format("{} B", size_bytes);
}

uint64_t PeriodBytes(uint64_t size_bytes) { return std::min(size_bytes, kPeriodBytes) / 8 * 8; }

std::vector<std::byte> RandomNumbers(DataType type, uint64_t size_bytes, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size_bytes);
  const size_t count = size_bytes / sync::ElementBytes(type);
  std::uniform_real_distribution<double> number(-1000, 1000);
  for (size_t i = 0; i < count; ++i) {
    const auto single = static_cast<float>(number(random));
    switch (type) {
      case DataType::kFloat32:
        Put(bytes, i, single);
        break;
      case DataType::kFloat64:
        Put(bytes, i, number(random));
        break;
      case DataType::kFloat16:
        Put(bytes, i, static_cast<uint16_t>(sync::NarrowFloat16<int32_t>(single)));
        break;
      case DataType::kBFloat16:
        Put(bytes, i, static_cast<uint16_t>(sync::NarrowBFloat16<uint32_t>(single)));
        break;
      case DataType::kInt32:
        Put(bytes, i, static_cast<uint32_t>(random()));
        break;
      default:
        Put(bytes, i, static_cast<uint64_t>(random()));
        break;
    }
  }
  return bytes;
}

void Repeat(Bytes period, MutableBytes into) {
  for (size_t at = 0; at < into.size(); at += period.size()) {
    const size_t size_bytes = std::min(period.size(), into.size() - at);
    std::memcpy(&into[at], period.data(), size_bytes);
  }
}

Status CheckRepeats(Bytes period, Bytes bytes, std::string_view what) {
  for (size_t at = 0; at < bytes.size(); at += period.size()) {
    const Bytes part = bytes.subspan(at, std::min(period.size(), bytes.size() - at));
    if (std::memcmp(part.data(), period.data(), part.size()) == 0) continue;
    const auto wrong = std::mismatch(part.begin(), part.end(), period.begin());
    return Fail(ErrorCode::kInternal,
                fmt::format("{} has a wrong byte at offset {}", what,
                            at + static_cast<size_t>(wrong.first - part.begin())));
  }
  return {};
}

}  // namespace lmdbio::figures
