// Goal: a rank that is killed or stopped at any moment of Open, SetEpoch, Restore or the end of a
// loader is an error on all others within 5 s, which names it.
#include <signal.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "lmdbio/load/loader/loader.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/ranks/launcher/struck_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::Loader;
using load::LoaderOptions;
using load::Strategy;

// Opens a loader, reads a little, moves in the stream in both ways, and closes the loader. A rank
// that closes early may be an error on others, so all come to the end first.
Status UseLoader(ranks::Group& group, const std::string& path, const LoaderOptions& options) {
  LMDBIO_TRY(const auto loader, Loader::Open(group, path, options));
  for (int i = 0; i < 3; ++i) LMDBIO_TRY_VOID(loader->Next());
  const std::string state = loader->Save();
  LMDBIO_TRY_VOID(loader->SetEpoch(2));
  LMDBIO_TRY_VOID(loader->Next());
  LMDBIO_TRY_VOID(loader->Restore(state));
  LMDBIO_TRY_VOID(loader->Next());
  return group.Barrier();
}

LoaderOptions OptionsOf(Strategy strategy, uint32_t reader_count) {
  LoaderOptions options;
  options.strategy = strategy;
  options.global_batch_size = 30;
  options.readers_per_host = reader_count;
  options.layout_cache = "off";
  options.memory_budget_bytes = 1 << 20;
  return options;
}

TEST_CASE("A rank that is killed while others open or close is named within 5 s",
          "[loader][deadline]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillMixed(db);
  db.Commit();
  const LoaderOptions options =
      GENERATE(OptionsOf(Strategy::kAuto, 1), OptionsOf(Strategy::kScan, 2),
               OptionsOf(Strategy::kLmmDio, 2));
  CAPTURE(static_cast<int>(options.strategy));
  const auto script = [&](ranks::Group& group) {
    return UseLoader(group, db.data_file().string(), options);
  };
  CHECK(StrikeAll(3, SIGKILL, 2, script) == std::vector<std::string>());
}

TEST_CASE("A rank that is stopped while others open or close is named within 5 s",
          "[loader][deadline]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillMixed(db);
  db.Commit();
  REQUIRE(::setenv("LMDBIO_RANK_SILENCE_LIMIT_MS", "1000", 1) == 0);
  const LoaderOptions options = OptionsOf(Strategy::kScan, 2);
  const auto script = [&](ranks::Group& group) {
    return UseLoader(group, db.data_file().string(), options);
  };
  CHECK(StrikeAll(3, SIGSTOP, 9, script) == std::vector<std::string>());
  ::unsetenv("LMDBIO_RANK_SILENCE_LIMIT_MS");
}

}  // namespace
}  // namespace lmdbio::test
