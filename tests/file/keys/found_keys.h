// tests/file/keys/found_keys.h - searches keys, given as strings, and collects the hits.
#ifndef LMDBIO_TESTS_FILE_KEYS_FOUND_KEYS_H_
#define LMDBIO_TESTS_FILE_KEYS_FOUND_KEYS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/file/keys/key_search.h"
#include "lmdbio/file/layout/cursor.h"
#include "tests/file/layout/open_database.h"

namespace lmdbio::test {

// The leaf page and node of each key that is there.
using FoundKeys = std::map<std::string, std::pair<uint64_t, uint32_t>>;

// keys  in any order, each once
inline Result<FoundKeys> FindKeys(const file::Database& database, file::KeptBranches& kept,
                                  const std::vector<std::string>& keys) {
  std::vector<Bytes> sorted;
  for (const std::string& key : keys) sorted.push_back(std::as_bytes(std::span(key)));
  std::ranges::sort(
      sorted, [&](Bytes a, Bytes b) { return file::CompareKeys(database.key_order(), a, b) < 0; });
  FoundKeys found;
  LMDBIO_TRY_VOID(
      file::KeySearch(database, kept).Find(sorted, [&](const file::FoundLeaf& leaf) -> Status {
        for (const file::KeyHit& hit : leaf.hits) {
          found[Text(sorted[hit.key])] = {leaf.page_no.value, hit.node};
        }
        return {};
      }));
  return found;
}

// The same by a cursor over all keys, for a sound database.
inline FoundKeys ScanKeys(const file::Database& database) {
  FoundKeys found;
  file::Cursor cursor(database);
  for (bool more = Value(cursor.First()); more; more = Value(cursor.NextKey())) {
    const file::CursorPosition position = cursor.position();
    const file::PathStep& leaf = position.path[position.depth - 1];
    found[Text(cursor.key())] = {leaf.page, leaf.index};
  }
  return found;
}

inline std::vector<std::string> KeysOf(const FoundKeys& found) {
  std::vector<std::string> keys;
  for (const auto& [key, place] : found) keys.push_back(key);
  return keys;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_KEYS_FOUND_KEYS_H_
