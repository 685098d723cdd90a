#include "bench/loader/bench_read.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lmdbio/base/thread_times.h"
#include "lmdbio/ranks/net/sleeping_barrier.h"

namespace lmdbio::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel counts the reads of a process in units of 512 bytes, whatever the block size of the
// file system.
constexpr uint64_t kBlockBytesOfRusage = 512;

double UnixSecondsNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The figures of one rank. It travels between ranks as bytes, so it holds no pointers.
struct RankResult {
  load::LoaderCounters counters;
  uint64_t checksum = 0;
  uint64_t storage_bytes = 0;  // bytes that storage delivered for this process
  double seconds = 0;
  double first_batch_s = 0;
  double compute_s = 0;
  double cpu_s = 0;
  double meet_s = 0;
  double next_s = 0;
  double asleep_s = 0;
  int host_root = 0;  // the first rank of this rank's host
};

struct Usage {
  double cpu_s = 0;
  uint64_t storage_bytes = 0;
};

Usage UsageNow() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime),
          static_cast<uint64_t>(usage.ru_inblock) * kBlockBytesOfRusage};
}

// Arithmetic with a known time on an idle core. On a busy core it takes longer.
class EmulatedCompute {
 public:
  EmulatedCompute(double seconds, ComputeKind kind) : seconds_(seconds), kind_(kind) {
    if (seconds <= 0 || kind == ComputeKind::kSleep) return;
    // The speed of this core is measured for some tens of milliseconds, before the run. The steps
    // of one batch are scaled from it.
    constexpr uint64_t kSample = 20'000'000;
    const auto start = Clock::now();
    Work(kSample);
    steps_ = static_cast<uint64_t>(static_cast<double>(kSample) * seconds / SecondsSince(start));
  }

  void Run() {
    if (seconds_ <= 0) return;
    if (kind_ == ComputeKind::kSleep) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    } else {
      Work(steps_);
    }
  }

  uint64_t state() const { return state_; }

 private:
  void Work(uint64_t steps) {
    // Each step depends on the one before, so the time grows with the steps alone: no step runs in
    // parallel with another. The volatile state keeps the compiler from removing the loop.
    uint64_t x = state_;
    for (uint64_t i = 0; i < steps; ++i) x = x * 6364136223846793005U + 1442695040888963407U;
    state_ = x;
  }

  double seconds_;
  ComputeKind kind_;
  uint64_t steps_ = 0;
  volatile uint64_t state_ = 1;
};

uint64_t ThreadContextSwitches() {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<uint64_t>(usage.ru_nvcsw + usage.ru_nivcsw);
}

// Seconds in which the watched thread was runnable and had no core; 0 if the kernel does not count
// them.
double RunDelaySeconds(const ThreadWatch& watch) {
  const Result<ThreadUsage> usage = watch.Read();
  return usage ? static_cast<double>(usage->run_delay_ns) * 1e-9 : 0;
}

uint64_t ChecksumOf(const load::Batch& batch, ChecksumKind kind) {
  uint64_t sum = 0;
  for (size_t i = 0; i < batch.record_count(); ++i) {
    if (kind == ChecksumKind::kRecords) {
      sum += RecordChecksum(batch.position(i), batch.key(i), batch.value(i));
    } else if (kind == ChecksumKind::kValues) {
      sum += XXH3_64bits(batch.value(i).data(), batch.value(i).size());
    }
  }
  return sum;
}

struct ReadPass {
  RankResult mine;
  std::vector<float> latencies_s;
  std::string how;
  std::string state;
  std::vector<std::string> notes;
};

// Pins the thread to some cores during the object's life. An empty list pins nothing.
class OnCores {
 public:
  explicit OnCores(const CoreList& cores)
      : is_pinned_(!cores.empty()), status_(PinThisThread(cores)) {}
  ~OnCores() {
    // The cores of the process were read before any thread was pinned, so they are those from
    // before this object.
    const Result<HostCores> before = ProcessCores();
    if (is_pinned_ && before) (void)PinThisThread(before->allowed);
  }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

  Status TakeStatus() { return std::move(status_); }

 private:
  bool is_pinned_;
  Status status_;
};

struct Trainer {
  ranks::Group& group;
  ranks::SleepingBarrier& barrier;
  EmulatedCompute& compute;
};

Status ReadBatches(Trainer trainer, const ReadBenchOptions& request, Clock::time_point start,
                   ReadPass& pass) {
  auto& [group, barrier, compute] = trainer;
  // The clock has started, so the time to open counts. The thread is pinned afterwards, because the
  // loader's threads would inherit its cores.
  LMDBIO_TRY(const auto loader, load::Loader::Open(group, request.path, request.options));
  OnCores on_cores(loader->placement().compute);
  if (!request.options.placement.empty()) {
    LMDBIO_TRY_VOID(ranks::Agree(group, on_cores.TakeStatus()));
  }
  const ThreadWatch watch;
  const double delay_before_s = RunDelaySeconds(watch);
  uint64_t meeting_switches = 0;  // context switches at barriers of the emulated trainers
  // Every rank gets the same number of batches, so the barriers match. A rank whose loader fails
  // still meets the others; they get kPeerFailed there instead of waiting for ever.
  while (true) {
    const auto asked = Clock::now();
    Result<bool> found = loader->Next();
    const auto answered = Clock::now();
    pass.mine.next_s += std::chrono::duration<double>(answered - asked).count();
    // The last batch ends with a barrier, too, even if --meet-every has not come up.
    const bool goes_on = found && *found;
    const uint64_t batch_count = pass.latencies_s.size() + 1;
    if (!goes_on || (request.meet_every > 0 && batch_count % request.meet_every == 0)) {
      const uint64_t switches_before = ThreadContextSwitches();
      LMDBIO_TRY_VOID(barrier.Meet(found ? Status() : Fail(std::move(found).error())));
      meeting_switches += ThreadContextSwitches() - switches_before;
    }
    if (!goes_on) break;
    pass.mine.meet_s += SecondsSince(answered);
    pass.latencies_s.push_back(
        static_cast<float>(std::chrono::duration<double>(answered - asked).count()));
    if (pass.latencies_s.size() == 1) pass.mine.first_batch_s = SecondsSince(start);
    if (request.checksum != ChecksumKind::kNone) {
      pass.mine.checksum += ChecksumOf(loader->batch(), request.checksum);
    }
    const auto computing = Clock::now();
    compute.Run();
    pass.mine.compute_s += SecondsSince(computing);
    // Taken after each batch, so the barrier after the last one does not count.
    pass.mine.seconds = SecondsSince(start);
  }
  pass.how = loader->Describe();
  pass.state = loader->Save();
  pass.mine.counters = loader->counters();
  pass.mine.asleep_s = std::max(0.0, pass.mine.next_s - pass.mine.counters.next_cpu_s -
                                         (RunDelaySeconds(watch) - delay_before_s));
  // Context switches at barriers belong to the emulated trainer, not to the loader.
  pass.mine.counters.context_switches -=
      std::min(meeting_switches, pass.mine.counters.context_switches);
  for (std::string& note : loader->TakeNotes()) pass.notes.push_back(std::move(note));
  return {};
}

template <typename T>
Result<std::vector<T>> Gather(ranks::Group& group, std::span<const T> mine) {
  LMDBIO_TRY(const std::vector<std::byte> bytes, group.AllGather(std::as_bytes(mine)));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// Adds counts of a rank, and takes maxima of its times.
void AddRank(const RankResult& rank, bool is_map, ReadResult& sum) {
  const load::LoaderCounters& counters = rank.counters;
  sum.delivered.record_count += counters.record_count;
  sum.delivered.skipped_count += counters.skipped_count;
  sum.delivered.payload_bytes += counters.payload_bytes;
  // These figures cover all ranks already.
  sum.delivered.epoch_count = std::max(sum.delivered.epoch_count, counters.epoch_count);
  sum.delivered.dropped_count = std::max(sum.delivered.dropped_count, counters.dropped_count);
  sum.delivered.wrapped_count = std::max(sum.delivered.wrapped_count, counters.wrapped_count);
  sum.times.seconds = std::max(sum.times.seconds, rank.seconds);
  sum.times.first_batch_s = std::max(sum.times.first_batch_s, rank.first_batch_s);
  sum.times.seek_s_max = std::max(sum.times.seek_s_max, counters.locate_s);
  sum.times.io_s_max = std::max(sum.times.io_s_max, counters.read_s);
  sum.times.skew_s_max = std::max(sum.times.skew_s_max, counters.wait_s);
  sum.times.turn_s_max = std::max(sum.times.turn_s_max, counters.turn_s);
  // A map has no engine that counts bytes. The kernel charges the process for the page faults that
  // storage served, with their read-ahead.
  sum.costs.bytes_direct += counters.bytes_direct;
  sum.costs.bytes_read += is_map ? rank.storage_bytes : counters.bytes_read;
  sum.costs.bytes_useful += counters.bytes_useful;
  sum.costs.read_requests += counters.read_requests;
  sum.costs.retry_count += counters.retry_count;
  sum.costs.context_switches += counters.context_switches;
  sum.costs.major_faults += counters.major_faults;
  sum.costs.missed_pages += counters.missed_pages;
  sum.costs.redundant_pages += counters.redundant_pages;
  sum.costs.cpu_s += rank.cpu_s;
  const double loader_cpu_s = counters.reader_cpu_s + counters.next_cpu_s;
  sum.costs.loader_cpu_s += loader_cpu_s;
  if (rank.seconds > 0) {
    sum.costs.loader_cpu_share_max =
        std::max(sum.costs.loader_cpu_share_max, loader_cpu_s / rank.seconds);
  }
  sum.costs.memory_bytes_max = std::max(sum.costs.memory_bytes_max, counters.memory_bytes_max);
}

void SetMeans(std::span<const RankResult> ranks, ReadResult& sum) {
  const auto count = static_cast<double>(ranks.size());
  double readers = 0;
  for (const RankResult& rank : ranks) {
    // Ranks that only receive records have no time in the reader, and would lower its means.
    if (rank.counters.read_s > 0 || rank.counters.locate_s > 0) ++readers;
    sum.times.seek_s_mean += rank.counters.locate_s;
    sum.times.io_s_mean += rank.counters.read_s;
    sum.times.skew_s_mean += rank.counters.wait_s / count;
    sum.times.compute_s += rank.compute_s / count;
  }
  if (readers == 0) return;
  sum.times.seek_s_mean /= readers;
  sum.times.io_s_mean /= readers;
}

void SetRankTimes(std::span<const RankResult> ranks, ReadResult& result) {
  std::map<int, int> hosts;  // host numbers by first rank
  for (const RankResult& rank : ranks) {
    const auto host = hosts.try_emplace(rank.host_root, static_cast<int>(hosts.size())).first;
    const load::LoaderCounters& counters = rank.counters;
    result.ranks.push_back({.host = host->second,
                            .seek_s = counters.locate_s,
                            .io_s = counters.read_s,
                            .turn_s = counters.turn_s,
                            .wait_s = counters.wait_s,
                            .meet_s = rank.meet_s,
                            .next_s = rank.next_s,
                            .asleep_s = rank.asleep_s});
  }
  result.hosts = static_cast<int>(hosts.size());
}

}  // namespace

uint64_t RecordChecksum(uint64_t position, Bytes key, Bytes value) {
  // Each hash is the seed of the next, so a value with the key or the position of another record
  // changes the sum.
  const uint64_t key_hash = XXH3_64bits_withSeed(key.data(), key.size(), position);
  return XXH3_64bits_withSeed(value.data(), value.size(), key_hash);
}

Result<ReadResult> MeasureRead(ranks::Group& group, const ReadBenchOptions& request) {
  LMDBIO_TRY(const auto host, group.SplitByHost());
  LMDBIO_TRY(const auto barrier, ranks::SleepingBarrier::Create(group));
  // The work is calibrated and the barrier is created before the clock starts.
  EmulatedCompute compute(request.compute_s, request.compute_kind);
  ReadPass pass;
  LMDBIO_TRY_VOID(group.Barrier());
  const Usage before = UsageNow();
  const double began_unix_s = UnixSecondsNow();
  const auto start = Clock::now();
  Status read = ReadBatches({group, *barrier, compute}, request, start, pass);
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(read)));
  const Usage after = UsageNow();
  pass.mine.cpu_s = after.cpu_s - before.cpu_s;
  pass.mine.storage_bytes = after.storage_bytes - before.storage_bytes;
  // The first rank of a host gives its rank in the job to the others, so equal numbers mean the
  // same host.
  pass.mine.host_root = group.rank();
  LMDBIO_TRY_VOID(host->Broadcast(0, std::as_writable_bytes(std::span(&pass.mine.host_root, 1))));
  LMDBIO_TRY(const auto ranks, Gather<RankResult>(group, std::span(&pass.mine, 1)));
  ReadResult result;
  result.times.began_unix_s = began_unix_s;
  const bool is_map = load::CompositionOf(request.options.strategy).engine ==
                      load::StrategyTraits::EngineChoice::kMmap;
  uint64_t checksum = 0;
  for (const RankResult& rank : ranks) {
    AddRank(rank, is_map, result);
    checksum += rank.checksum;
  }
  if (request.checksum != ChecksumKind::kNone) result.delivered.checksum = checksum;
  SetMeans(ranks, result);
  SetRankTimes(ranks, result);
  // Four bytes for each batch of each rank; every rank gets them, because the group has no gather
  // to one rank.
  LMDBIO_TRY(result.latencies_s, Gather<float>(group, pass.latencies_s));
  result.how = pass.how;
  result.state = pass.state;
  result.notes = pass.notes;
  return result;
}

}  // namespace lmdbio::tools
