// tests/support/random.h - the same "random" numbers on every machine and compiler, from a seed,
// and checks of many random cases.
//
// Fixtures do not use the distributions of <random>, because they differ between standard
// libraries. The generator is Vigna's SplitMix64.
#ifndef LMDBIO_TESTS_SUPPORT_RANDOM_H_
#define LMDBIO_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lmdbio::test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  // A number in [0, bound). The bias towards small numbers does not matter in a test.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

  // A number in [first, last].
  uint64_t Between(uint64_t first, uint64_t last) { return first + Below(last - first + 1); }

  std::string BytesOf(uint64_t size_bytes) {
    std::string bytes(size_bytes, '\0');
    for (uint64_t offset = 0; offset < size_bytes; offset += sizeof(uint64_t)) {
      const uint64_t word = Next();
      const uint64_t left_bytes = size_bytes - offset;
      std::memcpy(bytes.data() + offset, &word,
                  left_bytes < sizeof(word) ? left_bytes : sizeof(word));
    }
    return bytes;
  }

  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (uint64_t count = items.size(); count > 1; --count) {
      std::swap(items[count - 1], items[Below(count)]);
    }
  }

 private:
  uint64_t state_;
};

// Runs `check` for a number of seeds. Throws at the first that does not return "", which fails a
// test. LMDBIO_TEST_SEED=N runs seed N alone; LMDBIO_TEST_SEEDS=N runs N seeds.
inline void ForSeeds(uint64_t seed_count, const std::function<std::string(uint64_t seed)>& check) {
  const char* only = std::getenv("LMDBIO_TEST_SEED");
  const char* count = std::getenv("LMDBIO_TEST_SEEDS");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 0;
  if (only != nullptr) seed_count = 1;
  if (only == nullptr && count != nullptr) seed_count = std::strtoull(count, nullptr, 10);
  for (uint64_t seed = first; seed < first + seed_count; ++seed) {
    const std::string problem = check(seed);
    if (problem.empty()) continue;
    throw std::runtime_error("LMDBIO_TEST_SEED=" + std::to_string(seed) + ": " + problem);
  }
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_RANDOM_H_
