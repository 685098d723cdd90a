#include "bench/sync/sleep_lateness.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <mutex>

namespace lmdbio::bench {
namespace {

// A class holds values with the same leading five bits: kParts classes for each power of two.
constexpr int kLeadingBits = 5;
constexpr uint64_t kParts = uint64_t{1} << (kLeadingBits - 1);

// The sleeps of one thread. Relaxed is enough: a reader needs the numbers only, and a sleep that
// ends meanwhile may count or not.
struct ThreadSleeps {
  std::array<std::atomic<uint64_t>, LatenessCounts::kClassCount> counts{};
};

// The sleeps of all threads by their numbers. A new thread may get the number of one that has
// ended; it adds to the same counts, of which readers use differences.
struct SleepTable {
  std::mutex mutex;
  std::map<pid_t, ThreadSleeps> of_thread;
};

// Never destroyed, because threads may sleep while the program ends.
SleepTable& Table() {
  static auto* const table = new SleepTable;
  return *table;
}

ThreadSleeps& SleepsOfThisThread() {
  thread_local ThreadSleeps* sleeps = nullptr;
  if (sleeps == nullptr) {
    const std::lock_guard lock(Table().mutex);
    sleeps = &Table().of_thread[::gettid()];
  }
  return *sleeps;
}

void RecordSleep(std::chrono::nanoseconds late) {
  const auto late_ns = static_cast<uint64_t>(std::max<int64_t>(0, late.count()));
  SleepsOfThisThread().counts[LatenessCounts::ClassOf(late_ns)].fetch_add(
      1, std::memory_order_relaxed);
}

}  // namespace

// Small values are classes of their own. A larger one has a power of two and leading bits.
size_t LatenessCounts::ClassOf(uint64_t late_ns) {
  if (late_ns < 2 * kParts) return late_ns;
  const int shift = static_cast<int>(std::bit_width(late_ns)) - kLeadingBits;
  return std::min<size_t>(kParts * static_cast<uint64_t>(shift) + (late_ns >> shift),
                          kClassCount - 1);
}

LatenessCounts LatenessCounts::operator-(const LatenessCounts& before) const {
  LatenessCounts difference;
  for (size_t i = 0; i < kClassCount; ++i) difference.counts_[i] = counts_[i] - before.counts_[i];
  return difference;
}

uint64_t LatenessCounts::sleep_count() const {
  uint64_t sum = 0;
  for (const uint64_t count : counts_) sum += count;
  return sum;
}

double LatenessCounts::QuantileNs(double q) const {
  const double wanted = std::max(1.0, std::ceil(q * static_cast<double>(sleep_count())));
  uint64_t passed = 0;
  for (size_t place = 0; place < kClassCount; ++place) {
    passed += counts_[place];
    if (static_cast<double>(passed) < wanted) continue;
    if (place < 2 * kParts) return static_cast<double>(place);
    const uint64_t shift = place / kParts - 1;
    return (static_cast<double>(place - kParts * shift) + 0.5) * std::exp2(shift);
  }
  return 0;
}

LatenessCounts LatenessOf(const std::vector<pid_t>& threads) {
  LatenessCounts sum;
  const std::lock_guard lock(Table().mutex);
  for (const pid_t thread : threads) {
    const auto found = Table().of_thread.find(thread);
    if (found == Table().of_thread.end()) continue;
    for (size_t i = 0; i < LatenessCounts::kClassCount; ++i) {
      sum.AddToClass(i, found->second.counts[i].load(std::memory_order_relaxed));
    }
  }
  return sum;
}

}  // namespace lmdbio::bench

// Takes the place of the function of the C library, for all libraries of this process. The C
// library sleeps in the same way, and clock_nanosleep returns its error instead of setting errno.
extern "C" int nanosleep(const timespec* asked, timespec* left) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const int error = ::clock_nanosleep(CLOCK_MONOTONIC, 0, asked, left);
  if (error != 0) {
    errno = error;
    return -1;
  }
  lmdbio::bench::RecordSleep(Clock::now() - began - std::chrono::seconds(asked->tv_sec) -
                             std::chrono::nanoseconds(asked->tv_nsec));
  return 0;
}
