#include "tests/sync/rounds/virtual_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::test {

using TimePoint = sync::RoundClock::TimePoint;

// Decides which rank runs, and how far time is. A rank runs until it blocks.
class VirtualTime {
 public:
  explicit VirtualTime(const VirtualJobOptions& options)
      : ranks_(static_cast<size_t>(options.rank_count)), exchange_time_(options.exchange_time) {}

  TimePoint Now() {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  // Blocks a rank until `until`, or until exchange `exchange` is over if it is given.
  void Block(int rank, TimePoint until, std::optional<size_t> exchange = std::nullopt) {
    std::unique_lock lock(mutex_);
    BlockedRank& own = ranks_[static_cast<size_t>(rank)];
    own = {.is_blocked = true, .until = until, .exchange = exchange};
    RunNext();
    turn_.wait(lock, [&] { return !own.is_blocked; });
  }

  // The first block of each rank. The first of them runs when all have come.
  void Enter(int rank) {
    std::unique_lock lock(mutex_);
    BlockedRank& own = ranks_[static_cast<size_t>(rank)];
    own = {.is_blocked = true, .until = now_, .exchange = {}};
    if (++entered_count_ == ranks_.size()) RunNext();
    turn_.wait(lock, [&] { return !own.is_blocked; });
  }

  void Leave(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].has_ended = true;
    RunNext();
  }

  void Join(size_t exchange, const std::vector<uint64_t>& words) {
    const std::lock_guard lock(mutex_);
    if (exchange == meetings_.size())
      meetings_.push_back({.words = words, .arrived_count = 0, .over_at = {}});
    VirtualMeeting& meeting = meetings_.at(exchange);
    LMDBIO_CHECK(meeting.words.size() == words.size());
    for (size_t i = 0; i < words.size(); ++i) meeting.words[i] &= words[i];
    if (++meeting.arrived_count == ranks_.size()) meeting.over_at = now_ + exchange_time_;
  }

  bool IsOver(size_t exchange) {
    const std::lock_guard lock(mutex_);
    const auto over_at = meetings_.at(exchange).over_at;
    return over_at && *over_at <= now_;
  }

  std::vector<uint64_t> WordsOf(size_t exchange) {
    const std::lock_guard lock(mutex_);
    return meetings_.at(exchange).words;
  }

 private:
  struct BlockedRank {
    bool is_blocked = false;
    bool has_ended = false;
    TimePoint until;
    std::optional<size_t> exchange;
  };
  struct VirtualMeeting {
    std::vector<uint64_t> words;
    size_t arrived_count = 0;
    std::optional<TimePoint> over_at;
  };

  TimePoint ReadyAt(const BlockedRank& rank) const {
    if (!rank.exchange) return rank.until;
    const auto over_at = meetings_.at(*rank.exchange).over_at;
    return over_at ? std::min(*over_at, rank.until) : rank.until;
  }

  // Of the ranks that can run first, the lowest does.
  void RunNext() {
    BlockedRank* next = nullptr;
    for (BlockedRank& rank : ranks_) {
      if (rank.has_ended || !rank.is_blocked) continue;
      if (next == nullptr || ReadyAt(rank) < ReadyAt(*next)) next = &rank;
    }
    if (next == nullptr) return;
    now_ = std::max(now_, ReadyAt(*next));
    next->is_blocked = false;
    turn_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable turn_;
  std::vector<BlockedRank> ranks_;
  const std::chrono::microseconds exchange_time_;
  TimePoint now_;
  size_t entered_count_ = 0;
  std::deque<VirtualMeeting> meetings_;
};

VirtualRank::VirtualRank(VirtualTime& time, int rank, const VirtualJobOptions& options)
    : time_(time),
      options_(options),
      ranks_{.rank = rank, .size = options.rank_count, .host_of = {}} {}

void VirtualRank::Note(VirtualSpan::VirtualUse use, TimePoint begin, TimePoint end) {
  if (begin == end) return;
  const auto since_start = [](TimePoint at) {
    return std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch());
  };
  spans_.push_back({use, since_start(begin), since_start(end)});
}

std::chrono::microseconds VirtualRank::TotalOf(VirtualSpan::VirtualUse use) const {
  std::chrono::microseconds total{0};
  for (const VirtualSpan& span : spans_) {
    if (span.use == use) total += span.length();
  }
  return total;
}

void VirtualRank::Compute(std::chrono::microseconds duration) {
  time_.Block(ranks_.rank, time_.Now() + duration);
}

std::chrono::microseconds VirtualRank::elapsed() {
  return std::chrono::duration_cast<std::chrono::microseconds>(time_.Now().time_since_epoch());
}

TimePoint VirtualRank::Now() { return time_.Now(); }

void VirtualRank::SleepFor(std::chrono::microseconds duration) {
  const TimePoint begin = time_.Now();
  const TimePoint asked = begin + duration;
  const TimePoint end = asked + std::exchange(oversleep_, {});
  time_.Block(ranks_.rank, end);
  Note(VirtualSpan::VirtualUse::kSleep, begin, asked);
  Note(VirtualSpan::VirtualUse::kOversleep, asked, end);
}

Status VirtualRank::Start(sync::Exchange exchange) {
  LMDBIO_CHECK(exchange.kind == sync::ExchangeKind::kIntersect);
  time_.Join(static_cast<size_t>(exchange_count_++), exchange.words);
  return {};
}

Result<bool> VirtualRank::Test() {
  ++test_count_;
  return time_.IsOver(static_cast<size_t>(exchange_count_) - 1);
}

Result<bool> VirtualRank::Wait(std::chrono::microseconds limit) {
  ++wait_count_;
  const auto exchange = static_cast<size_t>(exchange_count_) - 1;
  const TimePoint begin = time_.Now();
  if (!time_.IsOver(exchange)) time_.Block(ranks_.rank, begin + limit, exchange);
  Note(VirtualSpan::VirtualUse::kWait, begin, time_.Now());
  return time_.IsOver(exchange);
}

sync::Reply VirtualRank::TakeReply() {
  return {.words = time_.WordsOf(static_cast<size_t>(exchange_count_) - 1),
          .gathered = {},
          .bytes = {}};
}

std::vector<std::unique_ptr<VirtualRank>> RunVirtualJob(
    const VirtualJobOptions& options, const std::function<void(VirtualRank& rank)>& body) {
  VirtualTime time(options);
  std::vector<std::unique_ptr<VirtualRank>> ranks;
  for (int rank = 0; rank < options.rank_count; ++rank) {
    ranks.push_back(std::make_unique<VirtualRank>(time, rank, options));
  }
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks) {
    threads.emplace_back([&time, &body, &rank = *rank] {
      time.Enter(rank.ranks().rank);
      body(rank);
      time.Leave(rank.ranks().rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

}  // namespace lmdbio::test
