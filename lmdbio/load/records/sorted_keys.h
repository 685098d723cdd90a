// lmdbio/load/records/sorted_keys.h - the keys of one call, each once, in the database's order.
#ifndef LMDBIO_LOAD_RECORDS_SORTED_KEYS_H_
#define LMDBIO_LOAD_RECORDS_SORTED_KEYS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "lmdbio/file/format/key_order.h"

namespace lmdbio::load {

// Lifetime: the bytes of the keys must outlive this
class SortedKeys {
 public:
  // wanted  in any order; a key may come several times
  SortedKeys(file::KeyOrder order, std::span<const Bytes> wanted) : place_of_(wanted.size()) {
    std::vector<size_t> by_key(wanted.size());
    std::iota(by_key.begin(), by_key.end(), size_t{0});
    std::ranges::sort(by_key, [&](size_t a, size_t b) {
      return file::CompareKeys(order, wanted[a], wanted[b]) < 0;
    });
    keys_.reserve(wanted.size());
    for (const size_t i : by_key) {
      const bool is_new = keys_.empty() || file::CompareKeys(order, keys_.back(), wanted[i]) != 0;
      if (is_new) keys_.push_back(wanted[i]);
      place_of_[i] = keys_.size() - 1;
    }
  }

  std::span<const Bytes> keys() const { return keys_; }
  // The values of keys() in the order of the wanted keys.
  // values  [keys()]
  // Returns: [wanted]
  template <typename T>
  std::vector<T> InWantedOrder(const std::vector<T>& values) const {
    std::vector<T> of_wanted;
    of_wanted.reserve(place_of_.size());
    for (const size_t place : place_of_) of_wanted.push_back(values[place]);
    return of_wanted;
  }

 private:
  std::vector<Bytes> keys_;
  std::vector<size_t> place_of_;  // [wanted]
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_SORTED_KEYS_H_
