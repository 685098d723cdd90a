#include "tests/campaign/kills/kills_case.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "tests/campaign/random_options.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBatchesMax = 60;    // of an epoch
constexpr uint64_t kRecordsUsual = 64;  // fewer are drawn seldom
constexpr int kRanksMax = 8;
constexpr std::array<const char*, kKillPhases> kPhaseNames = {
    "meet", "open",      "create",  "first batch", "steady", "submit",
    "save", "epoch end", "restore", "shutdown",    "close"};

template <typename T>
T AnyOf(Random& random, const std::vector<T>& choices) {
  return choices[random.Below(choices.size())];
}

bool Chance(Random& random, uint64_t one_of) { return random.Below(one_of) == 0; }

// From 0 up, each power of two as often.
uint64_t Scattered(Random& random, uint64_t bits_max) {
  return random.Below(uint64_t{1} << random.Between(0, bits_max));
}

bool IsCut(const LoaderOptions& options) {
  return !load::DealsOut(options.order, options.shuffle, options.reuse);
}

// A batch size with which an epoch has at most kBatchesMax batches.
uint64_t DrawBatchSize(Random& random, uint64_t record_count) {
  const uint64_t least = (record_count + kBatchesMax - 1) / kBatchesMax;
  return std::min(least + Scattered(random, Chance(random, 4) ? 9 : 3), record_count);
}

// Memory and reading of a run, which its order leaves open.
LoaderOptions DrawReading(Random& random, const LoaderOptions& order) {
  using load::Strategy;
  LoaderOptions options = RandomOptions(random);
  const bool is_cursor =
      options.strategy == Strategy::kLmdb || options.strategy == Strategy::kLmm ||
      options.strategy == Strategy::kLmmDm || options.strategy == Strategy::kLmmDio;
  if (is_cursor && order.order == load::Order::kShuffle) options.strategy = Strategy::kAuto;
  options.memory_budget_bytes = AnyOf<uint64_t>(random, {4 * kMiB, 16 * kMiB, 64 * kMiB});
  options.keep_bytes = std::min<int64_t>(options.keep_bytes, int64_t{1} << 28);
  options.on_error = load::OnError::kRaise;
  options.snapshot = load::SnapshotMode::kImmutable;
  options.num_shards = 1;
  options.shard_id = 0;
  options.epoch = 0;
  options.max_batches = 0;
  options.global_batch_size = order.global_batch_size;
  options.order = order.order;
  options.shuffle = order.shuffle;
  options.tail = order.tail;
  options.seed = order.seed;
  options.block_records = order.block_records;
  options.group_batches = order.group_batches;
  options.reuse = order.reuse;
  if (!IsCut(order) && options.share == load::Share::kRoundRobin) options.share = order.share;
  return options;
}

LoaderOptions DrawStream(Random& random, uint64_t record_count) {
  LoaderOptions order = RandomOptions(random);
  order.reuse = 1;
  order.global_batch_size = DrawBatchSize(random, record_count);
  order.share = load::Share::kBlock;
  return DrawReading(random, order);
}

sync::SyncOptions DrawSync(Random& random) {
  sync::SyncOptions options;
  options.coordinator =
      AnyOf<std::string>(random, {"topo", "topo", "caramel", "cache", "horovod", "hierarchical"});
  options.pacing = AnyOf<std::string>(random, {"event", "event", "cycle", "gs", "nbcs"});
  options.collective =
      AnyOf<std::string>(random, {"auto", "auto", "auto", "ring", "halving", "direct"});
  if (Chance(random, 4)) options.bucket_bytes = uint64_t{1} << random.Between(12, 20);
  return options;
}

// The phases that the job has. Steady ones are the longest, and come more often.
std::vector<KillPhase> PhasesOf(const KillJob& job, bool opens) {
  std::vector<KillPhase> phases = {KillPhase::kClose};
  if (opens) {
    phases.push_back(KillPhase::kMeet);
    if (job.has_sync) phases.push_back(KillPhase::kCreate);
    if (job.has_loader) phases.push_back(KillPhase::kOpen);
  }
  if (job.has_sync) phases.insert(phases.end(), {KillPhase::kSubmit, KillPhase::kShutdown});
  if (job.has_loader) {
    phases.insert(phases.end(), {KillPhase::kFirst, KillPhase::kSave});
    phases.insert(phases.end(), 4, KillPhase::kSteady);
    if (job.epoch_count > 1) phases.push_back(KillPhase::kEpochEnd);
    if (job.restore_at > 0) phases.push_back(KillPhase::kRestore);
  }
  return phases;
}

KillJob DrawJob(Random& random, const std::vector<KillDatabase>& databases) {
  KillJob job;
  do {
    job.database = &databases[random.Below(databases.size())];
  } while (job.database->digests.size() < kRecordsUsual && !Chance(random, 8));
  const uint64_t kind = random.Below(4);
  job.has_loader = kind > 0;
  job.has_sync = kind < 2;
  job.options = DrawStream(random, job.database->digests.size());
  job.epoch_count = random.Between(1, 2);
  job.save_every = random.Between(1, 6);
  if (Chance(random, 3)) {
    job.restore_to = job.save_every * random.Between(1, 2);
    job.restore_at = job.restore_to + random.Below(2 * job.save_every);
  }
  job.sets_epoch = job.options.tail != load::Tail::kWrap && Chance(random, 2);
  job.pace = std::chrono::microseconds(Scattered(random, 13));
  job.sync = DrawSync(random);
  job.sum_count = random.Between(1, 60);
  job.floats = 1 + Scattered(random, 18);
  return job;
}

void DrawSignal(Random& random, const KillJob& job, const KillChoices& choices, KillRun& run) {
  constexpr std::array kSignals = {KillSignal::kKill, KillSignal::kKill, KillSignal::kKill,
                                   KillSignal::kStop, KillSignal::kPause};
  run.signal = kSignals[random.Below(kSignals.size())];
  if (!choices.stops && run.signal == KillSignal::kStop) run.signal = KillSignal::kKill;
  run.victim = static_cast<int>(random.Below(static_cast<uint64_t>(run.rank_count)));
  run.phase = AnyOf(random, PhasesOf(job, choices.opens));
  // Most phases take some milliseconds; a signal that comes later hits another one, or none.
  const bool is_often = run.phase == KillPhase::kSteady || run.phase == KillPhase::kSubmit;
  run.nth = is_often ? 1 + Scattered(random, 5) : 1;
  if (run.phase == KillPhase::kSave) run.nth = random.Between(1, 4);
  const bool is_short = run.phase == KillPhase::kClose || run.phase == KillPhase::kShutdown;
  run.delay = std::chrono::microseconds(Scattered(random, is_short ? 9 : 15));
  run.pause = std::chrono::milliseconds(random.Between(1, 1500));
}

}  // namespace

const char* KillPhaseName(KillPhase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

uint64_t RecordDigest(std::string_view key, std::string_view value) {
  return TextDigest(value, TextDigest(key));
}

std::string KillRun::Words() const {
  constexpr std::array kSignalNames = {"no signal", "SIGKILL", "SIGSTOP", "a pause"};
  std::string job = fmt::format("{} ranks on {} hosts", rank_count, host_count);
  if (signal == KillSignal::kNone) return job;
  return fmt::format("{}, {} of rank {}, {} {}, after {} us", job,
                     kSignalNames[static_cast<size_t>(signal)], victim, KillPhaseName(phase), nth,
                     delay.count());
}

LoaderOptions SoundOptions(const LoaderOptions& options) {
  LoaderOptions sound;
  sound.layout_cache = "off";
  sound.global_batch_size = options.global_batch_size;
  sound.order = options.order;
  sound.shuffle = options.shuffle;
  sound.tail = options.tail;
  sound.seed = options.seed;
  sound.block_records = options.block_records;
  sound.group_batches = options.group_batches;
  sound.reuse = options.reuse;
  return sound;
}

KillCase DrawKillCase(Random& random, const std::vector<KillDatabase>& databases,
                      const KillChoices& choices) {
  KillCase drawn;
  drawn.job = DrawJob(random, databases);
  const uint64_t lost_count = random.Between(1, 3);
  uint64_t batch_size = drawn.job.options.global_batch_size;
  for (uint64_t i = 0; i <= lost_count; ++i) {
    KillRun run;
    run.rank_count = static_cast<int>(random.Between(1, kRanksMax));
    run.host_count =
        static_cast<int>(random.Between(1, static_cast<uint64_t>(std::min(3, run.rank_count))));
    run.host_count = std::min(run.host_count, choices.hosts_max);
    const bool may_change = IsCut(drawn.job.options) && drawn.job.options.tail != load::Tail::kDrop;
    if (i > 0 && may_change && Chance(random, 3)) {
      batch_size = DrawBatchSize(random, drawn.job.database->digests.size());
    }
    run.options = i == 0 ? drawn.job.options : DrawReading(random, drawn.job.options);
    run.options.global_batch_size = batch_size;
    run.sync = drawn.job.sync;
    if (i < lost_count) DrawSignal(random, drawn.job, choices, run);
    drawn.runs.push_back(std::move(run));
  }
  return drawn;
}

}  // namespace lmdbio::test
