// mutants: looks for damaged files that end a process, hang it, or give records that nobody wrote.
//
//   mutants [--first-seed N] [--seeds N] [--tools FOLDER] FOLDER
//
// Each seed damages a small database in one to three places of its structure (damaged_file.h),
// writes it to FOLDER, and reads it with random options. A signal ends this program, so the caller
// goes on behind the last seed that was begun, which FOLDER/seed names. A record that the sound
// database does not have must be one that liblmdb reads from the same file; liblmdb runs in a
// child, because damage may end it. With --tools, every 50th file is given to lmdbio-stat and
// lmdbio-dump of that folder, too.
//
// Data version 3 has no liblmdb here: unknown records of such files are counted, and not judged.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/plan/option_text.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/campaign/campaign_run.h"
#include "tests/campaign/random_options.h"
#include "tests/file/layout/damaged_file.h"
#include "tests/file/layout/small_files.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/random.h"
#include "tests/support/run_command.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kHangSeconds = 10;
constexpr uint64_t kToolsEvery = 50;  // seeds
constexpr uint64_t kBatchesMax = 40;

using Records = std::set<KeyValue>;

// A small database and what it has.
struct MutantParent {
  std::unique_ptr<DamagedFile> file;
  Records records;
  bool has_oracle = false;  // liblmdb reads its version
};

struct MutantTally {
  uint64_t whole_count = 0;  // all records of the stream came
  uint64_t error_count = 0;
  uint64_t unjudged_count = 0;
};

// The records and errors of all ranks of a loader.
struct MutantReading {
  std::mutex mutex;
  Records records;
  bool has_error = false;
  std::string wrong_error;  // of a code that damage does not explain

  void Add(const Error& error) {
    const std::lock_guard lock(mutex);
    has_error = true;
    if (error.code() == ErrorCode::kInternal) wrong_error = error.message();
  }
};

void ReadAll(const fs::path& path, const load::LoaderOptions& options, ranks::ThreadRanks ranks,
             MutantReading& reading) {
  ranks::RunAsThreads(ranks, [&](ranks::Group& group) {
    const auto loader = load::Loader::Open(group, path.string(), options);
    if (!loader) return reading.Add(loader.error());
    for (uint64_t i = 0; i < kBatchesMax; ++i) {
      const Result<bool> next = (*loader)->Next();
      if (!next) return reading.Add(next.error());
      if (!*next) return;
      const std::lock_guard lock(reading.mutex);
      for (size_t j = 0; j < (*loader)->batch().record_count(); ++j) {
        reading.records.emplace(AsText((*loader)->batch().key(j)),
                                AsText((*loader)->batch().value(j)));
      }
    }
  });
}

// Whether liblmdb finds all of them in the file.
bool LmdbHas(const fs::path& path, const Records& wanted) {
  return InChild([&] {
           ::alarm(kHangSeconds);
           const auto found = LmdbRecords(path);
           const Records records(found.begin(), found.end());
           return std::includes(records.begin(), records.end(), wanted.begin(), wanted.end())
                      ? Verdict::kRight
                      : Verdict::kWrong;
         }) == Verdict::kRight;
}

class Mutants {
 public:
  Mutants(fs::path folder, std::string tools)
      : folder_(std::move(folder)), tools_(std::move(tools)) {
    fs::create_directories(folder_);
    for (const SmallFile& file : SmallFiles()) {
      MutantParent parent;
      parent.file = std::make_unique<DamagedFile>(file);
      parent.has_oracle = !file.name.starts_with("v3-");
      MutantReading sound;
      ReadAll(Write(*parent.file), SoundOptions(), {1, 1}, sound);
      parent.records = std::move(sound.records);
      parents_.push_back(std::move(parent));
    }
  }

  std::string Try(uint64_t seed) {
    Random random(seed);
    MutantParent& parent = parents_[random.Below(parents_.size())];
    std::string damage;
    for (uint64_t count = random.Between(1, 3); count > 0; --count) {
      const auto kind = static_cast<DamageKind>(random.Below(kDamageKindCount));
      if (parent.file->Damage(kind, random)) damage += fmt::format("{}, ", DamageKindName(kind));
    }
    const fs::path path = Write(*parent.file);
    const load::LoaderOptions options = OptionsOf(random);
    const ranks::ThreadRanks ranks{static_cast<int>(random.Between(1, 3)),
                                   static_cast<int>(random.Between(1, 3))};
    MutantReading reading;
    ReadAll(path, options, ranks, reading);
    std::string finding = FindingOf(reading, parent, path);
    if (finding.empty() && !tools_.empty() && seed % kToolsEvery == 0) finding = TryTools(path);
    const std::string name = parent.file->name();
    parent.file->Restore();
    if (finding.empty()) return "";
    return fmt::format("{}: {}{} ranks, {} on a host, {}: {}", name, damage, ranks.rank_count,
                       ranks.ranks_per_host, load::OptionsJson(options), finding);
  }

  const MutantTally& tally() const { return tally_; }

 private:
  static load::LoaderOptions SoundOptions() {
    load::LoaderOptions options;
    options.strategy = load::Strategy::kScan;
    options.layout_cache = "off";
    options.max_batches = kBatchesMax;
    options.global_batch_size = 10'000;
    return options;
  }

  // liblmdb's own walk is not what is tested, and a huge batch reads the same as a large one.
  static load::LoaderOptions OptionsOf(Random& random) {
    load::LoaderOptions options = RandomOptions(random);
    if (options.strategy == load::Strategy::kLmdb) options.strategy = load::Strategy::kAuto;
    if (options.snapshot == load::SnapshotMode::kPinned) {
      options.snapshot = load::SnapshotMode::kImmutable;
    }
    options.global_batch_size = std::min<uint64_t>(options.global_batch_size, 1'000);
    options.max_batches = kBatchesMax;
    return options;
  }

  // A new file each time, so that no map of the last one changes.
  fs::path Write(DamagedFile& file) const {
    const fs::path path = folder_ / "data.mdb";
    fs::remove(path);
    WriteWholeFile(path, file.damaged());
    return path;
  }

  std::string FindingOf(const MutantReading& reading, const MutantParent& parent,
                        const fs::path& path) {
    ++(reading.has_error ? tally_.error_count : tally_.whole_count);
    if (!reading.wrong_error.empty()) return "an internal error: " + reading.wrong_error;
    Records unknown;
    std::set_difference(reading.records.begin(), reading.records.end(), parent.records.begin(),
                        parent.records.end(), std::inserter(unknown, unknown.end()));
    if (unknown.empty()) return "";
    if (!parent.has_oracle) {
      ++tally_.unjudged_count;
      return "";
    }
    if (LmdbHas(path, unknown)) return "";
    return fmt::format("{} records that neither the sound file nor liblmdb has", unknown.size());
  }

  std::string TryTools(const fs::path& path) const {
    for (const char* tool : {"lmdbio-stat", "lmdbio-dump"}) {
      const CommandResult result =
          RunCommand({"timeout", std::to_string(kHangSeconds), tools_ + "/" + tool, path.string()});
      if (result.exit_code <= 2) continue;
      return fmt::format("{} ends with {}: {}", tool, result.exit_code, result.errors);
    }
    return "";
  }

  fs::path folder_;
  std::string tools_;
  std::vector<MutantParent> parents_;
  MutantTally tally_;
};

int Run(const CampaignArguments& arguments) {
  std::string folder;
  std::string tools;
  for (size_t i = 0; i < arguments.rest.size(); ++i) {
    const bool is_tools = arguments.rest[i] == "--tools" && i + 1 < arguments.rest.size();
    (is_tools ? tools : folder) = arguments.rest[is_tools ? ++i : i];
  }
  if (folder.empty()) {
    std::fputs("mutants: expected a folder for the files\n", stderr);
    return 2;
  }
  Mutants mutants(folder, tools);
  const uint64_t finding_count =
      RunSeeds(arguments, folder, kHangSeconds, [&](uint64_t seed) { return mutants.Try(seed); });
  const MutantTally& tally = mutants.tally();
  fmt::print(
      "{} seeds from {} on: {} whole streams, {} errors, {} with unjudged records, {} "
      "findings\n",
      arguments.seed_count, arguments.first_seed, tally.whole_count, tally.error_count,
      tally.unjudged_count, finding_count);
  return finding_count > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  try {
    return lmdbio::test::Run(lmdbio::test::ReadArguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mutants: %s\n", error.what());
    return 2;
  }
}
