// Goal: an index proposes the record of each of its keys, and its bytes give the same index.
#include "lmdbio/file/keys/key_index.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "lmdbio/file/provenance/sealed_file.h"
#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

using file::KeyIndex;
using file::KeyIndexBuilder;

Bytes Of(const std::string& key) { return std::as_bytes(std::span(key)); }

KeyIndex Index(uint64_t count) {
  KeyIndexBuilder builder(count);
  for (uint64_t i = 0; i < count; ++i) builder.Add(Of(fmt::format("key {}", i)), i);
  return std::move(builder).Finish();
}

TEST_CASE("KeyIndex proposes the record of each key", "[keys][key_index]") {
  for (const uint64_t count : {0U, 1U, 2U, 3U, 1000U, 65'536U, 65'537U}) {
    const KeyIndex index = Index(count);
    REQUIRE(index.key_count() == count);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const auto numbers = index.Candidates(Of(fmt::format("key {}", i)));
      if (std::ranges::find(numbers, i) == numbers.end()) ++wrong;
    }
    CHECK(wrong == 0);
    uint64_t proposed = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
      proposed += index.Candidates(Of(fmt::format("absent {}", i))).size();
    }
    CHECK(proposed == 0);
  }
}

TEST_CASE("KeyIndex is decoded as it was encoded", "[keys][key_index]") {
  for (const uint64_t count : {0U, 1U, 1000U}) {
    file::Fingerprint fingerprint;
    fingerprint.transaction_id = 7;
    fingerprint.database_name = "images";
    const std::vector<std::byte> bytes = Index(count).Encode(fingerprint);
    const auto decoded = KeyIndex::Decode(bytes);
    REQUIRE(decoded);
    CHECK(decoded->second.transaction_id == 7);
    CHECK(decoded->second.database_name == "images");
    CHECK(decoded->first.record_count() == count);
    CHECK(decoded->first.Encode(fingerprint) == bytes);
  }
}

TEST_CASE("KeyIndex refuses damaged bytes", "[keys][key_index]") {
  const std::vector<std::byte> sound = Index(100).Encode({});
  for (size_t size = 0; size < sound.size(); ++size) {
    const auto cut = KeyIndex::Decode(Bytes(sound).first(size));
    REQUIRE_FALSE(cut);
    REQUIRE(cut.error().code() == ErrorCode::kCorruption);
  }
  for (size_t at = 0; at < sound.size(); ++at) {
    std::vector<std::byte> flipped = sound;
    flipped[at] ^= std::byte{4};
    const auto decoded = KeyIndex::Decode(flipped);
    REQUIRE_FALSE(decoded);
    REQUIRE((decoded.error().code() == ErrorCode::kCorruption ||
             (at >= 8 && at < 12 && decoded.error().code() == ErrorCode::kUnsupported)));
  }
  // Forged with a checksum that fits: counts, order and numbers are checked.
  const size_t entries_at = sound.size() - 100 * 8;
  for (size_t at = entries_at - 16; at < sound.size(); ++at) {
    std::vector<std::byte> forged = sound;
    forged[at] ^= std::byte{0x80};
    file::Reseal(forged);
    const auto decoded = KeyIndex::Decode(forged);
    // Another number of records, which the user of the index compares, may be possible.
    if (at >= entries_at - 8 && at < entries_at) REQUIRE_FALSE(decoded);
    if (!decoded) continue;
    for (uint64_t i = 0; i < 100; ++i) {
      for (const uint64_t number : decoded->first.Candidates(Of(fmt::format("key {}", i)))) {
        REQUIRE(number < decoded->first.record_count());
      }
    }
  }
  std::vector<std::byte> exchanged = sound;
  std::swap_ranges(exchanged.end() - 16, exchanged.end() - 8, exchanged.end() - 8);
  file::Reseal(exchanged);
  CHECK_FALSE(KeyIndex::Decode(exchanged));
  std::vector<std::byte> other_kind = sound;
  other_kind[12] = std::byte{1};
  file::Reseal(other_kind);
  CHECK(KeyIndex::Decode(other_kind).error().message() == "key index: unknown kind 1");
  std::vector<std::byte> cut = sound;
  cut.resize(cut.size() - 8);
  file::Reseal(cut);
  CHECK_FALSE(KeyIndex::Decode(cut));
}

}  // namespace
}  // namespace lmdbio::test
