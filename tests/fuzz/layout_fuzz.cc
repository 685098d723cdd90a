// tests/fuzz/layout_fuzz.cc - any bytes as a data file, read through every interface.
//
// Oracle: the sanitizers; the cursor compared with the page walk, which share little code; and the
// size of the file, which bounds every extent and every pass.
#include <array>
#include <optional>

#include "lmdbio/base/check.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/layout/record_scan.h"
#include "tests/fixtures/memory_source.h"
#include "tests/fuzz/mutate_pages.h"
#include "tests/fuzz/touch_bytes.h"

namespace lmdbio::test {
namespace {

using file::Cursor;
using file::Database;
using file::Layout;

// The extents of all values in one pass. Nothing if the pass ended with an error.
using Places = std::optional<std::vector<Extent>>;

void CheckInside(const Database& database, Extent value) {
  const uint64_t file_bytes = database.pages().snapshot().file_size_bytes;
  LMDBIO_CHECK(value.offset <= file_bytes && value.length_bytes <= file_bytes - value.offset);
}

void CheckMessage(const Error& error) {
  LMDBIO_CHECK(!error.message().empty() && error.message().find('\n') == std::string::npos);
}

// Touches the record under the cursor; false if it cannot be read.
bool ReadRecord(const Database& database, Cursor& cursor, std::vector<Extent>& places) {
  TouchBytes(cursor.key());
  const Result<Extent> place = cursor.ValueExtent();
  if (!place) return false;
  CheckInside(database, *place);
  places.push_back(*place);
  const Result<Bytes> value = cursor.Value();
  if (!value) return false;
  LMDBIO_CHECK(value->size() == place->length_bytes);
  TouchBytes(*value);
  return true;
}

Places Scan(const Database& database) {
  file::RecordScan scan(database);
  std::vector<Extent> places;
  for (;;) {
    const Result<bool> found = scan.Next();
    if (!found) CheckMessage(found.error());
    if (!found) return std::nullopt;
    LMDBIO_CHECK(!database.counts_exactly() || scan.record_count() <= database.entry_count());
    if (!*found) return places;
    if (!ReadRecord(database, scan.cursor(), places)) return std::nullopt;
  }
}

// A single cursor does not detect that two branches share a page, so it may find many more records
// than the file holds. This function stops early; other tests check that such a pass terminates.
Places ScanBackwards(const Database& database) {
  constexpr size_t kRecordsMax = 20'000;
  Cursor cursor(database);
  std::vector<Extent> places;
  Result<bool> found = cursor.Last();
  while (found && *found && places.size() < kRecordsMax) {
    if (!ReadRecord(database, cursor, places)) return std::nullopt;
    found = cursor.Prev();
  }
  if (!found) CheckMessage(found.error());
  if (!found || *found) return std::nullopt;
  return Places(std::in_place, places.rbegin(), places.rend());
}

Places Walk(const Database& database) {
  file::LayoutBuilder builder;
  const Result<std::vector<PageNo>> leaves = file::WalkDatabase(database, builder);
  if (!leaves) CheckMessage(leaves.error());
  if (!leaves) return std::nullopt;
  const Layout found = builder.Finish();
  LMDBIO_CHECK(database.AcceptsRecordCount(found.record_count()));
  std::vector<Extent> places;
  for (uint64_t i = 0; i < found.record_count(); ++i) {
    places.push_back(found.Value({i}));
    CheckInside(database, places.back());
  }
  return places;
}

// A record found by its number must be found again by its position, with the same value.
void Seek(const Database& database, uint64_t ordinal) {
  Cursor cursor(database);
  Cursor other(database);
  const Result<bool> found = cursor.SeekOrdinal({ordinal});
  if (!found || !*found) return;
  const file::CursorPosition position = cursor.position();
  LMDBIO_CHECK(other.SeekPosition(position).has_value());
  const Result<Extent> place = cursor.ValueExtent();
  const Result<Extent> again = other.ValueExtent();
  LMDBIO_CHECK(place.has_value() == again.has_value() && (!place || *place == *again));
  const std::vector<std::byte> key(cursor.key().begin(), cursor.key().end());
  (void)other.SeekKey(key);
  file::CursorPosition bent = position;
  bent.path[bent.depth - 1].index ^= 1;
  bent.duplicate_path[0].index += static_cast<uint32_t>(ordinal);
  if (other.SeekPosition(bent)) TouchBytes(other.key());
}

void ReadDatabase(const Database& database) {
  const Places scanned = Scan(database);
  const Places walked = Walk(database);
  const Places backwards = ScanBackwards(database);
  LMDBIO_CHECK(!scanned || database.AcceptsRecordCount(scanned->size()));
  LMDBIO_CHECK(!scanned || !walked || *scanned == *walked);
  LMDBIO_CHECK(!scanned || !backwards || *scanned == *backwards);
  for (const uint64_t ordinal :
       {uint64_t{0}, uint64_t{7}, database.entry_count() / 2, database.entry_count() - 1}) {
    Seek(database, ordinal);
  }
  Cursor cursor(database);
  (void)cursor.SeekKey(std::as_bytes(std::span("00000042", 8)));
}

void ReadFile(const ByteSource& source) {
  constexpr size_t kDatabasesMax = 16;  // limits the time of an input; the library has no limit
  const Result<file::Environment> environment = file::Environment::Open(source);
  if (!environment) return CheckMessage(environment.error());
  ReadDatabase(environment->Main());
  if (const Result<Database> free_list = environment->FreeList()) ReadDatabase(*free_list);
  const Result<std::vector<std::string>> names = environment->Names();
  for (size_t i = 0; names && i < names->size() && i < kDatabasesMax; ++i) {
    const Result<Database> named = environment->Named((*names)[i]);
    if (named) ReadDatabase(*named);
  }
  (void)environment->CheckHolds();
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const lmdbio::Bytes input = std::as_bytes(std::span(data, size));
  lmdbio::test::ReadFile(lmdbio::test::MemorySource({input.begin(), input.end()}));
  return 0;
}

#ifdef LMDBIO_WITH_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  const size_t mutated = LLVMFuzzerMutate(data, size, size_max);
  lmdbio::test::MutatePages(std::as_writable_bytes(std::span(data, mutated)), seed);
  return mutated;
}
#endif
