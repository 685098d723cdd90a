#include "tests/support/lmdb_fixture.h"

#include <stdexcept>

#include <unistd.h>

#include "tests/support/fixture_groups.h"

namespace lmdbio::test {
namespace {

uint32_t PageSizeBytes(const TinyDbOptions& options) {
  return options.page_size_bytes != 0 ? options.page_size_bytes
                                      : static_cast<uint32_t>(::sysconf(_SC_PAGESIZE));
}

Fixture FillAt(const FixtureSpec& spec, const std::filesystem::path& path,
               const std::filesystem::path& compacted_directory) {
  TinyDb db(path, spec.options);
  Random random(spec.seed);
  if (spec.fill) spec.fill(db, random);
  db.Commit();
  if (spec.is_compacted) db.CopyCompacted(compacted_directory);
  return {.data_file = db.data_file(),
          .page_size_bytes = PageSizeBytes(spec.options),
          .database_names = db.database_names()};
}

}  // namespace

std::vector<FixtureSpec> FixtureCatalogue(FixtureScale scale) {
  std::vector<FixtureSpec> catalogue;
  for (const FixtureGroup& group : {PlainFixtures(scale), NamedFixtures(scale),
                                    DuplicateFixtures(scale), PageSizeFixtures(), FileFixtures()}) {
    catalogue.insert(catalogue.end(), group.begin(), group.end());
  }
  return catalogue;
}

FixtureSpec FindFixture(std::string_view name, FixtureScale scale) {
  for (const FixtureSpec& spec : FixtureCatalogue(scale)) {
    if (spec.name == name) return spec;
  }
  throw std::runtime_error("no fixture is called " + std::string(name));
}

Fixture WriteFixture(const FixtureSpec& spec, const std::filesystem::path& directory) {
  if (spec.is_compacted) {
    const std::filesystem::path original = directory / "original";
    std::filesystem::create_directory(original);
    Fixture fixture = FillAt(spec, original, directory);
    std::filesystem::remove_all(original);
    fixture.data_file = directory / "data.mdb";
    return fixture;
  }
  const bool is_single_file = (spec.options.environment_flags & MDB_NOSUBDIR) != 0;
  return FillAt(spec, is_single_file ? directory / (spec.name + ".lmdb") : directory, {});
}

}  // namespace lmdbio::test
