// tests/file/layout/whole_reading.h - reads a whole data file through one interface ("door") and
// gives three numbers.
//
// A whole file is the main database, the named ones and the list of free pages.
#ifndef LMDBIO_TESTS_FILE_LAYOUT_WHOLE_READING_H_
#define LMDBIO_TESTS_FILE_LAYOUT_WHOLE_READING_H_

#include <cstdint>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"

namespace lmdbio::test {

enum class Door : uint8_t {
  kScan,       // RecordScan
  kWalk,       // WalkDatabase, then the values through PageReader, as a loader does it
  kBackwards,  // a Cursor by itself, from the last record to the first
};
inline constexpr Door kDoors[] = {Door::kScan, Door::kWalk, Door::kBackwards};

// Two readings through the same door are equal if and only if the records are, except for hash
// collisions.
struct WholeReading {
  uint64_t record_count = 0;
  uint64_t shape = 0;    // hash of the number and sizes of all keys and values
  uint64_t content = 0;  // hash of their bytes too
  friend bool operator==(const WholeReading&, const WholeReading&) = default;
};

// Errors: the first error of the library
Result<WholeReading> ReadWhole(const ByteSource& source, Door door);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_LAYOUT_WHOLE_READING_H_
