// tests/sync/over_device/exact_values.h - values of which each order of sums gives the same bits.
#ifndef LMDBIO_TESTS_SYNC_OVER_DEVICE_EXACT_VALUES_H_
#define LMDBIO_TESTS_SYNC_OVER_DEVICE_EXACT_VALUES_H_

#include <cstring>
#include <string>

#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::test {

// Small whole numbers: sums, products and extremes of eight ranks are exact in each type.
inline std::string ExactValues(sync::DataType type, size_t count, Random& random) {
  const size_t element_bytes = sync::ElementBytes(type);
  std::string bytes(count * element_bytes, '\0');
  for (size_t i = 0; i < count; ++i) {
    const auto number = static_cast<int>(random.Below(5)) - 2;
    char* const at = bytes.data() + i * element_bytes;
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    switch (type) {
      case sync::DataType::kFloat32:
        put(static_cast<float>(number));
        break;
      case sync::DataType::kFloat64:
        put(static_cast<double>(number));
        break;
      case sync::DataType::kFloat16:
        put(Encode(kHalf, number));
        break;
      case sync::DataType::kBFloat16:
        put(Encode(kBrainHalf, number));
        break;
      case sync::DataType::kInt32:
        put(static_cast<int32_t>(number));
        break;
      case sync::DataType::kInt64:
        put(static_cast<int64_t>(number));
        break;
    }
  }
  return bytes;
}

// As ValuesOfRanks, with exact values.
inline ValuesOfRanks ExactValuesOfRanks(int rank_count, const sync::DeviceValues& values,
                                        uint64_t seed) {
  ValuesOfRanks all(rank_count, values, seed);
  Random random(seed);
  for (std::string& one : all.of) one = ExactValues(values.type, values.count, random);
  return all;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_DEVICE_EXACT_VALUES_H_
