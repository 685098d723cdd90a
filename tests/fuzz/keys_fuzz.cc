// tests/fuzz/keys_fuzz.cc - any bytes as a key index, a template of keys, and a tree that is
// searched.
//
// Input: byte 0 chooses the kind of input. The rest is the file of an index, whose size and
// checksum are corrected so that the input reaches the decoder; a template and a key; or a data
// file.
// Oracle: the sanitizers; what was decoded encodes to the same; a cursor finds a key where the
// search does.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/file/keys/key_index.h"
#include "lmdbio/file/keys/key_search.h"
#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/provenance/sealed_file.h"
#include "lmdbio/load/view/key_template.h"
#include "tests/fixtures/memory_source.h"
#include "tests/fuzz/mutate_pages.h"
#include "tests/fuzz/touch_bytes.h"

namespace lmdbio::test {
namespace {

using file::Database;
using Key = std::vector<std::byte>;

enum InputKind : uint8_t { kIndex = 0, kTemplate = 1, kTree = 2 };  // byte 0
constexpr uint8_t kKinds = 3;

std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void CheckMessage(const Error& error) {
  LMDBIO_CHECK(!error.message().empty() && error.message().find('\n') == std::string::npos);
}

void DecodeIndex(Bytes input) {
  std::vector<std::byte> file(input.begin(), input.end());
  (void)file::KeyIndex::Decode(file);
  file::Reseal(file);
  const auto decoded = file::KeyIndex::Decode(file);
  if (!decoded) return CheckMessage(decoded.error());
  const auto& [index, fingerprint] = *decoded;
  LMDBIO_CHECK(index.Encode(fingerprint) == file);
  for (const char* key : {"", "0", "7"}) {
    for (const uint64_t number : index.Candidates(std::as_bytes(std::span(key, 1)))) {
      LMDBIO_CHECK(number < index.record_count());
    }
  }
}

// The size of the template, the template, a key.
void ParseTemplate(Bytes input) {
  if (input.empty()) return;
  const size_t size = std::min<size_t>(std::to_integer<uint8_t>(input[0]), input.size() - 1);
  const std::string_view key = TextOf(input.subspan(1 + size));
  LMDBIO_CHECK(load::KeyWords(key).find('\n') == std::string::npos);
  const auto parsed = load::KeyTemplate::Parse(TextOf(input.subspan(1, size)));
  if (!parsed) return CheckMessage(parsed.error());
  const auto number = parsed->NumberOf(key);
  LMDBIO_CHECK(!number || parsed->KeyOf(*number) == key);
  for (const uint64_t any : {uint64_t{0}, uint64_t{key.size()}, UINT64_MAX}) {
    LMDBIO_CHECK(parsed->NumberOf(parsed->KeyOf(any)) == any);
  }
}

// Keys of the database, and keys that are likely absent; each once, in the order of a search.
std::vector<Key> KeysToFind(const Database& database) {
  constexpr size_t kKeysMax = 300;  // limits the time of an input; the library has no limit
  std::set<Key> keys;
  file::Cursor cursor(database);
  for (auto more = cursor.First(); more && *more && keys.size() < kKeysMax;
       more = cursor.NextKey()) {
    Key key(cursor.key().begin(), cursor.key().end());
    keys.insert(key);
    if (key.empty()) continue;
    key.back() ^= std::byte{1};
    keys.insert(key);
    if (database.key_order() == file::KeyOrder::kInteger) continue;  // all keys have one size
    key.pop_back();
    keys.insert(key);
  }
  std::vector<Key> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted, [&](const Key& a, const Key& b) {
    return file::CompareKeys(database.key_order(), a, b) < 0;
  });
  return sorted;
}

// Both go down the same path. On it, a cursor that finds nothing moves on to the next leaf page,
// whose first key may be the wanted one if the page is damaged.
void CompareWithCursor(const Database& database, const Key& key, bool is_hit) {
  file::Cursor cursor(database);
  const Result<bool> found = cursor.SeekKey(key);
  if (!found) return;
  const bool is_there = *found && file::CompareKeys(database.key_order(), cursor.key(), key) == 0;
  LMDBIO_CHECK(is_there || !is_hit);
  if (!is_there || is_hit) return;
  const file::CursorPosition position = cursor.position();
  LMDBIO_CHECK(position.path[position.depth - 1].index == 0);
}

void SearchDatabase(const Database& database) {
  if (database.record().empty()) return;
  const std::vector<Key> keys = KeysToFind(database);
  const std::vector<Bytes> wanted(keys.begin(), keys.end());
  file::KeptBranches kept;
  for (int pass = 0; pass < 2; ++pass) {  // the second by kept branch pages
    std::set<size_t> hits;
    const Status searched =
        file::KeySearch(database, kept).Find(wanted, [&](const file::FoundLeaf& leaf) -> Status {
          TouchBytes(leaf.bytes);
          for (const file::KeyHit& hit : leaf.hits) LMDBIO_CHECK(hits.insert(hit.key).second);
          return {};
        });
    if (!searched) return CheckMessage(searched.error());
    for (size_t i = 0; i < keys.size(); ++i) CompareWithCursor(database, keys[i], hits.contains(i));
  }
}

void SearchFile(Bytes input) {
  constexpr size_t kDatabasesMax = 16;
  const MemorySource source({input.begin(), input.end()});
  const Result<file::Environment> environment = file::Environment::Open(source);
  if (!environment) return CheckMessage(environment.error());
  SearchDatabase(environment->Main());
  const Result<std::vector<std::string>> names = environment->Names();
  for (size_t i = 0; names && i < names->size() && i < kDatabasesMax; ++i) {
    const Result<Database> named = environment->Named((*names)[i]);
    if (named) SearchDatabase(*named);
  }
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  const Bytes rest = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % test::kKinds) {
    case test::kIndex:
      test::DecodeIndex(rest);
      break;
    case test::kTemplate:
      test::ParseTemplate(rest);
      break;
    default:
      test::SearchFile(rest);
  }
  return 0;
}

#ifdef LMDBIO_WITH_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  const size_t mutated = LLVMFuzzerMutate(data, size, size_max);
  if (mutated > 1 && data[0] % lmdbio::test::kKinds == lmdbio::test::kTree) {
    lmdbio::test::MutatePages(std::as_writable_bytes(std::span(data, mutated)).subspan(1), seed);
  }
  return mutated;
}
#endif
