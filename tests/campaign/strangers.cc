// strangers: looks for jobs that a port scanner delays, ends, or makes hold memory.
//
//   strangers [--first-seed N] [--seeds N] [--connections N] [--limit SECONDS] FOLDER
//
// Each seed draws a job of 2 to 8 ranks (processes, which meet as those of a launcher do). It
// starts twice: alone, and beside a process that makes up to N connections (5,000) to its ports.
// A finding is an error of a rank, a start that takes SECONDS (1) longer, or a rank that holds
// 16 MiB more. FOLDER keeps the seed that was begun last.
//
// Method: both runs are of this process, one after the other, in a network of their own. Rank 0
// comes to the meeting first, and the others some time later, so that the scanner has its
// connections before they come. The time counts from then on, until the last rank has met, has made
// a collective call, and has links of a part of the group.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/launcher/launched_group.h"
#include "tests/campaign/campaign_run.h"
#include "tests/campaign/port_scanner.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/launcher/launched_ranks.h"
#include "tests/support/random.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kHangSeconds = 120;
constexpr uint64_t kMemoryMax_KiB = 16 << 10;
constexpr int kSkipped = 77;

struct StartBoard {
  std::atomic<int64_t> begin_ns{0};     // of rank 0; 0: not yet
  std::atomic<int64_t> end_ns{0};       // of the slowest rank
  std::atomic<uint64_t> memory_KiB{0};  // of the largest rank
};

int64_t NowNs() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

template <typename T>
void Raise(std::atomic<T>& largest, T value) {
  T seen = largest.load();
  while (seen < value && !largest.compare_exchange_weak(seen, value)) {
  }
}

// The most memory that this process has held (proc(5)); 0 if it is unknown.
uint64_t PeakMemoryKiB() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t value = 0;
  while (status >> word) {
    if (word == "VmHWM:" && status >> value) return value;
  }
  return 0;
}

Status StartRank(uint16_t port, int rank, int size) {
  LMDBIO_TRY(const auto group, ranks::LaunchedGroup(LaunchAt(port, rank, size)));
  LMDBIO_TRY_VOID(group->Barrier());
  LMDBIO_TRY(const auto part, group->Split(rank % 2));
  return part->Barrier();
}

struct JobStart {
  std::string fault;
  double seconds = 0;
  uint64_t memory_KiB = 0;
};

// lag  the other ranks come so much later than rank 0
JobStart StartJob(int size, std::chrono::milliseconds lag) {
  const SharedBytes memory(sizeof(StartBoard));
  auto& board = *new (memory.bytes().data()) StartBoard;
  const uint16_t port = FreePorts(1);
  ForkedJob job(size, size);
  job.Start([&](ranks::Group& forked, ForkedJob& all) -> std::string {
    all.SayReady();
    while (board.begin_ns.load() == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (forked.rank() != 0) std::this_thread::sleep_for(lag);
    const Status started = StartRank(port, forked.rank(), size);
    Raise(board.end_ns, NowNs());
    Raise(board.memory_KiB, PeakMemoryKiB());
    return started ? "" : started.error().message();
  });
  JobStart start;
  if (!job.AwaitReady()) start.fault = "the ranks are not ready";
  board.begin_ns.store(NowNs());
  for (int rank = 0; rank < size; ++rank) {
    const std::string end = job.EndOf(rank);
    if (!end.empty()) start.fault += fmt::format("rank {}: {}; ", rank, end);
  }
  const int64_t counted_ns = board.end_ns.load() - board.begin_ns.load();
  start.seconds = std::chrono::duration<double>(std::chrono::nanoseconds(counted_ns) - lag).count();
  start.memory_KiB = board.memory_KiB.load();
  return start;
}

class Strangers {
 public:
  Strangers(uint64_t connections_max, double limit_s)
      : connections_max_(connections_max), limit_s_(limit_s) {}

  std::string Try(uint64_t seed) {
    Random random(seed);
    const int size = static_cast<int>(random.Between(2, 8));
    const std::chrono::milliseconds lag(random.Below(1500));
    const JobStart alone = StartJob(size, lag);
    std::optional<PortScanner> scanner(std::in_place, random.Below(UINT64_MAX), connections_max_);
    const JobStart beside = StartJob(size, lag);
    connection_count_ += scanner->connection_count();
    scanner.reset();
    const double delay_s = beside.seconds - alone.seconds;
    longest_delay_s_ = std::max(longest_delay_s_, delay_s);
    if (!alone.fault.empty()) return "alone: " + alone.fault;
    if (!beside.fault.empty()) return fmt::format("{} ranks: {}", size, beside.fault);
    if (delay_s > limit_s_) {
      return fmt::format("{} ranks start in {:.3f} s, alone in {:.3f} s", size, beside.seconds,
                         alone.seconds);
    }
    if (beside.memory_KiB > alone.memory_KiB + kMemoryMax_KiB) {
      return fmt::format("{} ranks: one holds {} KiB, alone {} KiB", size, beside.memory_KiB,
                         alone.memory_KiB);
    }
    return "";
  }

  std::string Words() const {
    return fmt::format("{} connections, longest delay {:.3f} s", connection_count_,
                       longest_delay_s_);
  }

 private:
  uint64_t connections_max_;
  double limit_s_;
  uint64_t connection_count_ = 0;
  double longest_delay_s_ = 0;
};

int Run(const CampaignArguments& arguments) {
  std::string folder;
  uint64_t connections_max = 5000;
  double limit_s = 1;
  for (size_t i = 0; i < arguments.rest.size(); ++i) {
    if (arguments.rest[i] == "--connections" && i + 1 < arguments.rest.size()) {
      connections_max = std::stoull(std::string(arguments.rest[++i]));
    } else if (arguments.rest[i] == "--limit" && i + 1 < arguments.rest.size()) {
      limit_s = std::stod(std::string(arguments.rest[++i]));
    } else {
      folder = arguments.rest[i];
    }
  }
  if (folder.empty()) {
    std::fputs("strangers: expected a folder\n", stderr);
    return 2;
  }
  if (!TakeOwnNetwork()) {
    std::fputs("strangers: skipped, because the kernel permits no network of its own\n", stderr);
    return kSkipped;
  }
  std::filesystem::create_directories(folder);
  Strangers strangers(connections_max, limit_s);
  const uint64_t finding_count =
      RunSeeds(arguments, folder, kHangSeconds, [&](uint64_t seed) { return strangers.Try(seed); });
  fmt::print("{} seeds from {} on: {}, {} findings\n", arguments.seed_count, arguments.first_seed,
             strangers.Words(), finding_count);
  return finding_count > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  try {
    return lmdbio::test::Run(lmdbio::test::ReadArguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "strangers: %s\n", error.what());
    return 2;
  }
}
