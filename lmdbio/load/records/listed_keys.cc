#include "lmdbio/load/records/listed_keys.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lmdbio::load {
namespace {

// The number of values that a key has in a file: 0 if the file lacks it.
uint64_t ValuesOf(const KeyNumber& found) { return found.value_count; }
uint64_t ValuesOf(uint64_t count) { return count; }

}  // namespace

void ListedKeys::Add(std::unique_ptr<KeyLookup> keys, uint64_t record_count) {
  const uint64_t first = files_.empty() ? 0 : files_.back().range.first + files_.back().range.count;
  files_.push_back({std::move(keys), {first, record_count}});
}

// Without keys, only the first file is asked.
template <typename Value, typename LookUp>
Result<std::vector<Value>> ListedKeys::InEachFile(std::span<const Bytes> keys,
                                                  const LookUp& look_up) const {
  std::vector<Value> all(keys.size());
  std::vector<size_t> left(keys.size());  // those that no file has yet
  std::iota(left.begin(), left.end(), size_t{0});
  for (const KeysOfFile& file : files_) {
    std::vector<Bytes> wanted;
    wanted.reserve(left.size());
    for (const size_t i : left) wanted.push_back(keys[i]);
    LMDBIO_TRY(const std::vector<Value> found,
               look_up(file, SortedKeys(file.keys->database().key_order(), wanted)));
    std::vector<size_t> absent;
    for (size_t i = 0; i < left.size(); ++i) {
      all[left[i]] = found[i];
      if (ValuesOf(found[i]) == 0) absent.push_back(left[i]);
    }
    left = std::move(absent);
    if (left.empty()) break;
  }
  return all;
}

Result<std::vector<KeyNumber>> ListedKeys::Find(std::span<const Bytes> keys) const {
  const auto look_up = [](const KeysOfFile& file,
                          const SortedKeys& wanted) -> Result<std::vector<KeyNumber>> {
    LMDBIO_TRY(std::vector<KeyNumber> found, file.keys->Find(wanted));
    for (KeyNumber& one : found) {
      if (one.value_count > 0) one.first += file.range.first;
    }
    return found;
  };
  return InEachFile<KeyNumber>(keys, look_up);
}

Result<std::vector<uint64_t>> ListedKeys::CountValues(std::span<const Bytes> keys) const {
  const auto look_up = [](const KeysOfFile& file, const SortedKeys& wanted) {
    return file.keys->CountValues(wanted);
  };
  return InEachFile<uint64_t>(keys, look_up);
}

Result<KeyList> ListedKeys::ReadKeys(RecordIndex first, uint64_t count) const {
  if (files_.size() == 1) return files_.front().keys->ReadKeys(first, count);
  KeyList all;
  const uint64_t end = first.value + count;
  for (const KeysOfFile& file : files_) {
    const uint64_t begin = std::max(first.value, file.range.first);
    const uint64_t stop = std::min(end, file.range.first + file.range.count);
    if (begin >= stop) continue;
    LMDBIO_TRY(const KeyList some, file.keys->ReadKeys({begin - file.range.first}, stop - begin));
    for (size_t i = 0; i < some.size(); ++i) all.Add(some[i]);
  }
  return all;
}

Result<KeyList> ListedKeys::ReadKeysOf(std::span<const uint64_t> records) const {
  KeyList all;
  auto next = records.begin();
  for (const KeysOfFile& file : files_) {
    std::vector<uint64_t> of_file;
    for (; next != records.end() && *next < file.range.first + file.range.count; ++next) {
      of_file.push_back(*next - file.range.first);
    }
    if (of_file.empty()) continue;
    LMDBIO_TRY(const KeyList found, file.keys->ReadKeysOf(of_file));
    for (size_t k = 0; k < found.size(); ++k) all.Add(found[k]);
  }
  return all;
}

}  // namespace lmdbio::load
