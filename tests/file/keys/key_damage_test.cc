// Goal: a search in a damaged file gives an error that names the file, or the places of the sound
// file. It never crashes or reads without end.
// Method: the small files of damage_test.cc, with all keys of a database in one search, and each
// key in one of its own.
#include <algorithm>

#include <fmt/format.h>

#include "tests/file/keys/found_keys.h"
#include "tests/file/layout/damaged_file.h"
#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

using file::Database;
using file::Environment;
using file::KeptBranches;

// Damage to pages, page numbers and the structure of nodes. Bytes of keys are left out: LMDB has no
// checksums, so another byte is another key.
constexpr DamageKind kKinds[] = {DamageKind::kTruncated,      DamageKind::kTreeHeaderByte,
                                 DamageKind::kSlotByte,       DamageKind::kBranchNodeByte,
                                 DamageKind::kNodeSizesByte,  DamageKind::kChildRedirected,
                                 DamageKind::kPagesExchanged, DamageKind::kPageZeroed,
                                 DamageKind::kPageRandom,     DamageKind::kBranchKeyByte};
constexpr int kMutations = 60;  // of each kind and file

struct SoundDatabase {
  std::string name;
  FoundKeys found;
};

std::vector<SoundDatabase> SoundDatabases(const DamagedFile& file) {
  const MemorySource source(file.sound());
  const Environment environment = Value(Environment::Open(source));
  std::vector<SoundDatabase> databases;
  const auto add = [&](const Database& database) {
    if (!database.record().empty()) databases.push_back({database.name(), ScanKeys(database)});
  };
  add(environment.Main());
  for (const std::string& name : Value(environment.Names())) add(Value(environment.Named(name)));
  return databases;
}

void CheckError(const Error& error, const std::string& name) {
  INFO(error.message());
  REQUIRE((error.code() == ErrorCode::kCorruption || error.code() == ErrorCode::kIo));
  REQUIRE_THAT(error.message(), ContainsSubstring(name));
  REQUIRE(error.message().find('\n') == std::string::npos);
}

struct SearchTally {
  uint64_t errors = 0;
  uint64_t same = 0;
  uint64_t stale = 0;  // a page of an older snapshot, which is sound
};

void SearchDamaged(DamagedFile& file, const SoundDatabase& sound, DamageKind kind,
                   SearchTally& tally) {
  MemorySource& source = file.source();
  const Result<Environment> environment = Environment::Open(source);
  if (!environment) return CheckError(environment.error(), file.name());
  Result<Database> database = environment->Main();
  if (!sound.name.empty()) database = environment->Named(sound.name);
  // A byte of the name may be damaged, or the record of the named database.
  if (!database) return;
  const uint64_t before = source.counters().request_count;
  KeptBranches kept;
  const Result<FoundKeys> found = FindKeys(*database, kept, KeysOf(sound.found));
  CHECK(source.counters().request_count - before <= sound.found.size() * database->record().depth);
  if (!found) {
    ++tally.errors;
    return CheckError(found.error(), file.name());
  }
  if (*found == sound.found) {
    ++tally.same;
    return;
  }
  // A free page may be an older version of the right one, or a page of another database with keys
  // in the same range; a key of a branch page may have moved. Then places differ, but those that
  // were found hold their keys, as the search compares them.
  ++tally.stale;
  REQUIRE((kind == DamageKind::kChildRedirected || kind == DamageKind::kBranchNodeByte ||
           kind == DamageKind::kNodeSizesByte || kind == DamageKind::kBranchKeyByte ||
           kind == DamageKind::kPagesExchanged));
}

TEST_CASE("KeySearch survives damaged files", "[keys][damage]") {
  std::map<DamageKind, SearchTally> tallies;
  uint64_t seed = 0;
  for (const SmallFile& small : SmallFiles()) {
    DamagedFile file(small);
    const std::vector<SoundDatabase> databases = SoundDatabases(file);
    for (const DamageKind kind : kKinds) {
      Random random(++seed);
      for (int i = 0; i < kMutations; ++i) {
        if (!file.Damage(kind, random)) break;
        INFO(small.name << ": " << DamageKindName(kind) << " " << i);
        for (const SoundDatabase& sound : databases) {
          SearchDamaged(file, sound, kind, tallies[kind]);
        }
        file.Restore();
      }
    }
  }
  std::string table;
  for (const auto& [kind, tally] : tallies) {
    table += fmt::format("{:30} error {:6} same {:6} other place {:4}\n", DamageKindName(kind),
                         tally.errors, tally.same, tally.stale);
  }
  INFO(table);
  for (const auto& [kind, tally] : tallies) CHECK(tally.errors > 0);
}

}  // namespace
}  // namespace lmdbio::test
