// tests/support/lmdb_fixture.h - a catalogue of databases that the library must read. The real
// liblmdb writes each of them, with the same records on every machine.
//
//   for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
//     const TempDir dir;
//     const Fixture fixture = WriteFixture(spec, dir.path());
//     ... read fixture.data_file; compare with LmdbRecords(fixture.data_file, name) ...
//   }
//
// Fixtures of data version 3 are in tests/support/v3_fixture.h.
#ifndef TESTS_SUPPORT_LMDB_FIXTURE_H_
#define TESTS_SUPPORT_LMDB_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/tiny_db.h"

namespace lmdbio::test {

// kSmall is for every test run. kFull has ten times the records if that adds tree levels.
enum class FixtureScale { kSmall, kFull };

// Whether a test may read a whole fixture. A kHuge fixture is sparse and takes little disk, but
// more memory than a test should touch: read only the sizes and ends of its values.
enum class FixtureBulk { kReadable, kHuge };

struct FixtureSpec {
  std::string name;   // "dupfixed-promoted": also a file name
  std::string about;  // its purpose, in one line
  std::function<void(TinyDb&, Random&)> fill;
  TinyDbOptions options = {};
  FixtureBulk bulk = FixtureBulk::kReadable;
  bool is_compacted = false;  // the fixture is a compacted copy of the database of `fill`
  uint64_t seed = 1;
};

struct Fixture {
  std::filesystem::path data_file;
  uint32_t page_size_bytes = 0;
  std::set<std::string> database_names;  // of the named databases
};

// In a fixed order; names are unique.
std::vector<FixtureSpec> FixtureCatalogue(FixtureScale scale);

// The fixture of that name. Throws std::runtime_error if there is none.
FixtureSpec FindFixture(std::string_view name, FixtureScale scale = FixtureScale::kSmall);

// Writes the fixture into the existing directory. Throws std::runtime_error on failure.
Fixture WriteFixture(const FixtureSpec& spec, const std::filesystem::path& directory);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_LMDB_FIXTURE_H_
