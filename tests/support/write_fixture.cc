// Writes one fixture of the catalogue, for a look at it with other tools.
//
// usage: write_fixture --list
//        write_fixture NAME DIRECTORY [SEED]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "tests/support/lmdb_fixture.h"

namespace {

using lmdbio::test::FixtureScale;
using lmdbio::test::FixtureSpec;

int List() {
  for (const FixtureSpec& spec : lmdbio::test::FixtureCatalogue(FixtureScale::kSmall)) {
    std::printf("%-24s %s\n", spec.name.c_str(), spec.about.c_str());
  }
  return EXIT_SUCCESS;
}

int Write(const char* name, const char* directory, const char* seed) {
  FixtureSpec spec = lmdbio::test::FindFixture(name);
  if (seed != nullptr) spec.seed = std::strtoull(seed, nullptr, 10);
  std::filesystem::create_directories(directory);
  std::puts(lmdbio::test::WriteFixture(spec, directory).data_file.c_str());
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--list") return List();
    if (argc == 3 || argc == 4) return Write(argv[1], argv[2], argc == 4 ? argv[3] : nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_fixture: %s\n", error.what());
    return EXIT_FAILURE;
  }
  std::fputs("usage: write_fixture --list | NAME DIRECTORY [SEED]\n", stderr);
  return 2;
}
