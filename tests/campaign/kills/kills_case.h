// tests/campaign/kills/kills_case.h - a job that is to lose a rank: what it does, and when which
// rank is ended or stopped. All of it is drawn from a seed.
#ifndef LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_CASE_H_
#define LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_CASE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/load/plan/options.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "tests/support/random.h"

namespace lmdbio::test {

// The work of a rank at a time.
enum class KillPhase : uint32_t {
  kMeet,      // the ranks find each other
  kOpen,      // of the loader, also at a saved state
  kCreate,    // of the synchronizer
  kFirst,     // the first batch
  kSteady,    // a later batch
  kSubmit,    // a sum of gradients
  kSave,      // the state of the stream
  kEpochEnd,  // between two epochs
  kRestore,   // back to a state that was saved in this run
  kShutdown,  // of the synchronizer
  kClose,     // of everything
};
inline constexpr size_t kKillPhases = 11;
const char* KillPhaseName(KillPhase phase);

// A database, and a digest of each of its records (RecordDigest), sorted.
struct KillDatabase {
  std::string name;
  std::filesystem::path data_file;
  std::vector<uint64_t> digests;
};

// The work of the job, in each of its runs.
struct KillJob {
  const KillDatabase* database = nullptr;
  bool has_loader = true;
  bool has_sync = false;
  load::LoaderOptions options;  // of the first run
  uint64_t epoch_count = 1;
  uint64_t save_every = 1;  // batches
  // After this many batches of a run, it goes back to the state after restore_to: once in a run.
  uint64_t restore_at = 0;            // 0: never
  uint64_t restore_to = 0;            // a multiple of save_every
  bool sets_epoch = false;            // calls SetEpoch between epochs
  std::chrono::microseconds pace{0};  // a rank computes so long with a batch
  sync::SyncOptions sync;
  uint64_t sum_count = 0;  // without a loader: the sums of the job
  uint64_t floats = 1;     // of a sum
};

enum class KillSignal { kNone, kKill, kStop, kPause };

// One run of the job.
struct KillRun {
  int rank_count = 1;
  int host_count = 1;  // neighbours share a host
  load::LoaderOptions options;
  sync::SyncOptions sync;
  KillSignal signal = KillSignal::kNone;
  int victim = 0;
  KillPhase phase = KillPhase::kMeet;
  uint64_t nth = 1;                    // the victim begins the phase for the nth time
  std::chrono::microseconds delay{0};  // since then
  std::chrono::milliseconds pause{0};  // of kPause: then it goes on

  int host_of(int rank) const { return rank * host_count / rank_count; }
  std::string Words() const;
};

// The digest of a record.
uint64_t RecordDigest(std::string_view key, std::string_view value);

struct KillChoices {
  bool stops = true;  // without: each rank that would be stopped is killed
  bool opens = true;  // without: signals come when all is open
  int hosts_max = 1;
};

// The job and the runs that lose a rank, at most three. The last of them is the first that loses
// none. Options are drawn together and may contradict each other (SoundOptions).
struct KillCase {
  KillJob job;
  std::vector<KillRun> runs;
};
KillCase DrawKillCase(Random& random, const std::vector<KillDatabase>& databases,
                      const KillChoices& choices);

// The same stream, with defaults for all that does not belong to its order.
load::LoaderOptions SoundOptions(const load::LoaderOptions& options);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_CASE_H_
