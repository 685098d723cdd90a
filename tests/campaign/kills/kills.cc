// kills: looks for jobs that hang, blame the wrong rank, leave something behind, or lose or repeat
// a record after a rank is killed or stopped.
//
//   kills [--first-seed N] [--seeds N] [--kills-only] [--opened] [--patience SECONDS] [--show]
//         FOLDER
//
// Each seed draws a job of a loader, a synchronizer or both: a small database of FOLDER, options, 1
// to 8 ranks on 1 to 3 hosts. One rank gets SIGKILL or SIGSTOP, or pauses for a moment, at an
// instant of a phase. The job then runs again from the last state that all ranks have saved, with
// other ranks and options, is hit up to three times, and at last runs to the end of its epochs.
//
//   survivors   each has an error within 5 s that names the rank, and closes within 5 s, or has
//               finished rightly; after a pause nobody has an error
//   afterwards  no process, and no file in /dev/shm and the folder of temporary files
//   records     those before the states, and those of the last run, are each record of the database
//               once in each epoch; liblmdb reads the database
//
// A survivor that has no error after --patience (8 s) is a finding. --kills-only kills the ranks
// that would be stopped, and with --opened signals come when all is open. --show prints the end of
// each rank.
//
// Method: ranks are processes, which meet as those of a launcher does them. With root, ranks of
// several hosts have several users, because such ranks share no memory (docs/launchers.md). Without
// it there is one host.
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/load/plan/option_text.h"
#include "tests/campaign/campaign_databases.h"
#include "tests/campaign/campaign_run.h"
#include "tests/campaign/kills/kills_case.h"
#include "tests/campaign/kills/kills_job.h"
#include "tests/campaign/kills/kills_ledger.h"
#include "tests/campaign/kills/kills_log.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kSeedSeconds = 300;
constexpr uint64_t kFileBytesMax = 16 << 20;

struct KillTally {
  uint64_t run_count = 0;
  uint64_t resume_count = 0;   // runs that began at a state
  uint64_t refused_count = 0;  // runs that were repeated with sound options
  uint64_t over_count = 0;     // streams that were judged as a whole
  std::array<uint64_t, 4> signal_counts{};
  std::array<uint64_t, kKillPhases> phase_counts{};
};

// A /dev/shm that only this process and its children see. False if the kernel does not permit it.
bool TakeOwnSharedMemory() {
  return (::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777") == 0;
}

class Kills {
 public:
  Kills(const fs::path& folder, const KillChoices& choices, const KillLimits& limits, bool shows)
      : choices_(choices),
        limits_(limits),
        shows_(shows),
        temporary_(fs::absolute(folder) / "temporary") {
    for (const CampaignDatabase& one : CampaignDatabases(folder, DatabaseScale::kSmall)) {
      if (fs::file_size(one.data_file) > kFileBytesMax) continue;
      KillDatabase database{one.name, fs::absolute(one.data_file), {}};
      for (const KeyValue& record : LmdbRecords(one.data_file)) {
        database.digests.push_back(RecordDigest(record.first, record.second));
      }
      std::ranges::sort(database.digests);
      if (!database.digests.empty()) databases_.push_back(std::move(database));
    }
    fs::create_directories(temporary_);
    fs::permissions(temporary_, fs::perms::all | fs::perms::sticky_bit);
    ::setenv("TMPDIR", temporary_.c_str(), 1);
    ::setenv("LMDBIO_CACHE", "off", 1);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    has_own_memory_ = TakeOwnSharedMemory();
  }

  std::string Try(uint64_t seed) {
    Random random(seed);
    KillCase drawn = DrawKillCase(random, databases_, choices_);
    StreamLedger ledger(drawn.job);
    std::vector<std::string> findings;
    for (size_t i = 0; i < drawn.runs.size() && findings.empty() && !ledger.is_over(); ++i) {
      RunOnce(drawn.job, drawn.runs[i], ledger, findings);
    }
    if (findings.empty() && drawn.job.has_loader) {
      const std::string wrong = ledger.is_over() ? ledger.Check() : "the epochs are not over";
      if (!wrong.empty()) findings.push_back(wrong);
      ++tally_.over_count;
    }
    return findings.empty() ? "" : fmt::format("{}", fmt::join(findings, "; "));
  }

  const KillTally& tally() const { return tally_; }
  bool has_own_memory() const { return has_own_memory_; }

 private:
  void RunOnce(const KillJob& job, KillRun& run, StreamLedger& ledger,
               std::vector<std::string>& findings) {
    const std::string state = ledger.state();
    for (const bool is_sound : {false, true}) {
      if (is_sound) {
        ++tally_.refused_count;
        run.options = SoundOptions(run.options);
        run.sync = {};
      }
      KillLogs logs(run.rank_count);
      const KillRunResult result = RunKillJob(job, run, state, limits_, logs);
      Count(run, result, !state.empty());
      if (shows_) Show(job, run, result, logs);
      std::string wrong = fmt::format("{}", fmt::join(result.findings, ", "));
      if (wrong.empty() && is_sound && result.is_refused) wrong = "sound options are refused";
      if (wrong.empty()) wrong = TakeLogs(run, ledger, logs);
      if (wrong.empty()) wrong = Left();
      if (!wrong.empty()) {
        findings.push_back(fmt::format(
            "{}: {}{}, {}: {}", job.database->name, job.has_loader ? "loader " : "",
            job.has_sync ? "synchronizer " + run.sync.coordinator : "", run.Words(), wrong));
        if (job.has_loader) findings.back() += "; options " + load::OptionsJson(run.options);
      }
      if (!result.is_refused || !findings.empty()) return;
    }
  }

  // One line for each rank of a run.
  static void Show(const KillJob& job, const KillRun& run, const KillRunResult& result,
                   KillLogs& logs) {
    fmt::print(
        "{}, {}{}\n", job.database->name, run.Words(),
        result.was_signalled || run.signal == KillSignal::kNone ? "" : ", which is too late");
    for (int rank = 0; rank < run.rank_count; ++rank) {
      const KillLog& log = logs.of(rank);
      const KillTimeline timeline = log.timeline();
      std::string end = "no error";
      if (log.end() == KillLog::End::kFailed) {
        const int64_t since_ns = log.end_ns() - logs.of(run.victim).signal_ns();
        end = fmt::format("{:.3f} s: {}", static_cast<double>(since_ns) * 1e-9, log.text());
      }
      fmt::print("  rank {}: {} batches, {} states, {}, {}\n", rank, timeline.batches.size(),
                 timeline.states.size(), KillPhaseName(log.phase()), end);
    }
  }

  static std::string TakeLogs(const KillRun& run, StreamLedger& ledger, KillLogs& logs) {
    std::vector<KillTimeline> ranks;
    ranks.reserve(static_cast<size_t>(run.rank_count));
    for (int rank = 0; rank < run.rank_count; ++rank) ranks.push_back(logs.of(rank).timeline());
    return ledger.Take(ranks);
  }

  void Count(const KillRun& run, const KillRunResult& result, bool is_resumed) {
    ++tally_.run_count;
    if (is_resumed) ++tally_.resume_count;
    if (!result.was_signalled) return;
    ++tally_.signal_counts[static_cast<size_t>(run.signal)];
    ++tally_.phase_counts[static_cast<size_t>(run.phase)];
  }

  // The things that a run has left behind.
  std::string Left() const {
    std::string left;
    if (::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD) left += "a process is left; ";
    for (const fs::path& folder : {temporary_, fs::path("/dev/shm")}) {
      if (folder == "/dev/shm" && !has_own_memory_) continue;
      for (const auto& one : fs::directory_iterator(folder)) {
        left += one.path().string() + " is left; ";
        fs::remove_all(one.path());
      }
    }
    return left;
  }

  KillChoices choices_;
  KillLimits limits_;
  bool shows_;
  fs::path temporary_;
  std::vector<KillDatabase> databases_;
  KillTally tally_;
  bool has_own_memory_ = false;
};

void Print(const CampaignArguments& arguments, const Kills& kills, uint64_t finding_count) {
  const KillTally& tally = kills.tally();
  fmt::print(
      "{} seeds from {} on: {} runs, {} kills, {} stops, {} pauses, {} resumes, {} whole streams, "
      "{} refusals, {} findings\n",
      arguments.seed_count, arguments.first_seed, tally.run_count, tally.signal_counts[1],
      tally.signal_counts[2], tally.signal_counts[3], tally.resume_count, tally.over_count,
      tally.refused_count, finding_count);
  for (size_t phase = 0; phase < kKillPhases; ++phase) {
    fmt::print("{}{} {}", phase == 0 ? "signals: " : ", ",
               KillPhaseName(static_cast<KillPhase>(phase)), tally.phase_counts[phase]);
  }
  fmt::print("\n");
  if (!kills.has_own_memory()) fmt::print("note: /dev/shm is that of all, and was not looked at\n");
}

int Run(const CampaignArguments& arguments) {
  std::string folder;
  KillChoices choices;
  KillLimits limits;
  bool shows = false;
  choices.hosts_max = ::geteuid() == 0 ? 3 : 1;
  for (size_t i = 0; i < arguments.rest.size(); ++i) {
    if (arguments.rest[i] == "--kills-only") {
      choices.stops = false;
    } else if (arguments.rest[i] == "--opened") {
      choices.opens = false;
    } else if (arguments.rest[i] == "--show") {
      shows = true;
    } else if (arguments.rest[i] == "--patience" && i + 1 < arguments.rest.size()) {
      limits.patience_s = std::stod(std::string(arguments.rest[++i]));
    } else {
      folder = arguments.rest[i];
    }
  }
  if (folder.empty()) {
    std::fputs("kills: expected a folder for the databases\n", stderr);
    return 2;
  }
  Kills kills(folder, choices, limits, shows);
  const uint64_t finding_count =
      RunSeeds(arguments, folder, kSeedSeconds, [&](uint64_t seed) { return kills.Try(seed); });
  Print(arguments, kills, finding_count);
  return finding_count > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  try {
    return lmdbio::test::Run(lmdbio::test::ReadArguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kills: %s\n", error.what());
    return 2;
  }
}
