// tests/fuzz/kept_fuzz.cc - any bytes as the layout or the key index that was kept for a database.
//
// Input: byte 0 chooses the kind of file, and whether the rest is all of it or what is behind a
// fingerprint that fits. In the second case byte 1 is the kind in the header.
// Oracle: the sanitizers; a file is refused with one line, or it has the records of the database,
// all of them inside the data file. Time and memory are bounded by the sizes of file and database.
#include <filesystem>
#include <span>
#include <vector>

#include "lmdbio/load/kept/key_index_cache.h"
#include "lmdbio/load/kept/layout_cache.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/input_parts.h"
#include "tests/fuzz/kept_database.h"

namespace lmdbio::test {
namespace {

const KeptDatabase& Kept() {
  static const KeptDatabase kept;
  return kept;
}

std::vector<std::byte> FileFrom(InputParts in, bool is_whole, std::string_view magic) {
  if (is_whole) return {in.rest().begin(), in.rest().end()};
  const uint32_t kind = in.Take<uint8_t>();
  return Kept().FileOf(magic, kind, in.rest());
}

void FindLayout(InputParts in, bool is_whole) {
  static const auto cache = load::LayoutCache::Of(Kept().folder());
  WriteWholeFile(cache->PathOf(Kept().database()), FileFrom(in, is_whole, "LMDBPROV"));
  const auto layout = cache->Find(Kept().database());
  if (!layout) return CheckMessage(layout.error());
  LMDBIO_CHECK(layout->record_count() == KeptDatabase::kRecordCount);
  const file::Snapshot& snapshot = Kept().database().pages().snapshot();
  const uint64_t used_bytes = snapshot.page_count() * snapshot.page_format.page_size_bytes();
  for (uint64_t i = 0; i < layout->record_count(); ++i) {
    const Extent value = layout->Value({i});
    LMDBIO_CHECK(value.offset <= used_bytes && value.length_bytes <= used_bytes - value.offset);
    LMDBIO_CHECK(layout->Key({i}).leaf.value < snapshot.page_count());
  }
}

void FindKeyIndex(InputParts in, bool is_whole) {
  static const load::KeyIndexCache cache(*load::KeptFolder::Of(Kept().folder()));
  WriteWholeFile(cache.PathOf(Kept().database()), FileFrom(in, is_whole, "LMDBKEYS"));
  const auto index = cache.Find(Kept().database(), KeptDatabase::kRecordCount);
  if (!index) return CheckMessage(index.error());
  for (uint64_t i = 0; i < 10; ++i) {
    const std::string key = fmt::format("{:05}", i);
    for (const uint64_t number : index->Candidates(AsBytes(key))) {
      LMDBIO_CHECK(number < KeptDatabase::kRecordCount);
    }
  }
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  static const bool has_folder = std::filesystem::create_directories(test::Kept().folder());
  LMDBIO_CHECK(has_folder);
  const test::InputParts rest(std::as_bytes(std::span(data, size)).subspan(1));
  const bool is_whole = (data[0] & 2) != 0;
  if ((data[0] & 1) == 0) {
    test::FindLayout(rest, is_whole);
  } else {
    test::FindKeyIndex(rest, is_whole);
  }
  return 0;
}
