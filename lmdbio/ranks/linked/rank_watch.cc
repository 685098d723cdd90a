#include "lmdbio/ranks/linked/rank_watch.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/health/health.h"

namespace lmdbio::ranks {
namespace {

constexpr auto kLookPeriod = std::chrono::milliseconds(10);

// Between two signs of life; less if the limit is short.
constexpr auto kSignPauseMax = std::chrono::milliseconds(400);
constexpr int kSignsPerLimit = 4;
constexpr std::byte kLives{'L'};

}  // namespace

Result<std::unique_ptr<RankWatch>> RankWatch::Start(std::unique_ptr<PeerLinks> links,
                                                    const std::vector<int>& neighbours,
                                                    std::chrono::milliseconds silence_limit) {
  std::unique_ptr<RankWatch> watch(new RankWatch(std::move(links), silence_limit));
  for (const int neighbour : neighbours) watch->neighbours_.push_back({.number = neighbour});
  try {
    watch->thread_ = std::thread([raw = watch.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("no thread: {}", error.what()));
  }
  return watch;
}

// The message of a rank that leaves has no bytes. After a failure the neighbours were told already.
RankWatch::~RankWatch() {
  is_stopping_.store(true);
  links_->Wake();
  if (thread_.joinable()) thread_.join();
  if (has_failed_.load()) return;
  for (const WatchedNeighbour& one : neighbours_) {
    static_cast<void>(links_->Post(one.number, {}));
  }
}

void RankWatch::Run() {
  while (!is_stopping_.load()) {
    std::vector<int> watched;
    for (const WatchedNeighbour& one : neighbours_) {
      if (!one.is_over) watched.push_back(one.number);
    }
    const bool has_signs = silence_limit_.count() > 0 && !has_failed_.load();
    auto limit = std::chrono::milliseconds(-1);
    if (has_signs) {
      SendSigns(Clock::now());
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_sign_ - Clock::now());
      limit = std::max(left, std::chrono::milliseconds(0));
    }
    const std::optional<int> from = links_->AwaitAny(watched, limit);
    if (has_signs) LookForSilence(Clock::now());
    if (from) Hear(*from);
  }
}

void RankWatch::SendSigns(Clock::time_point now) {
  if (now < next_sign_) return;
  next_sign_ =
      now + std::min<std::chrono::milliseconds>(kSignPauseMax, silence_limit_ / kSignsPerLimit);
  for (const WatchedNeighbour& one : neighbours_) {
    // One that is gone is found by its link.
    if (!one.is_over) static_cast<void>(links_->Post(one.number, Bytes(&kLives, 1)));
  }
}

// Reads one message.
void RankWatch::Hear(int from) {
  const auto one = std::ranges::find(neighbours_, from, &WatchedNeighbour::number);
  const auto message = links_->Receive(from);
  if (!message) Record(message.error(), from);
  one->silence = {};
  one->is_over = !message || !*message || (*message)->empty();
}

// A pause of this process counts as short, because its neighbours may have been stopped with it.
// All neighbours of a silent rank must use the same words, so these have no measured time.
void RankWatch::LookForSilence(Clock::time_point now) {
  const auto looked_for =
      std::min<Clock::duration>({now - last_look_, kLookMax, silence_limit_ / 2});
  last_look_ = now;
  for (WatchedNeighbour& one : neighbours_) {
    if (one.is_over) continue;
    one.silence += looked_for;
    if (one.silence <= silence_limit_ || links_->HasMessage(one.number)) continue;
    // The silent rank hears it, too, when it goes on.
    Record(
        Error(ErrorCode::kPeerFailed, WordsOfSilence(links_->NameOf(one.number), silence_limit_)),
        /*from=*/-1);
    one.is_over = true;
  }
}

void RankWatch::Record(const Error& failure, int from) {
  if (has_failed_.load()) return;
  // First, because the process may end as soon as it knows. Its neighbours would then name it.
  for (const WatchedNeighbour& one : neighbours_) {
    if (one.number != from) links_->PostFailure(one.number, failure);
  }
  {
    const std::lock_guard lock(mutex_);
    failure_.emplace(failure.Copy());
  }
  has_failed_.store(true);
}

Status RankWatch::Check() const {
  if (!has_failed_.load()) return {};
  const std::lock_guard lock(mutex_);
  return Fail(failure_->Copy());
}

Status RankWatch::CheckWithin(std::chrono::milliseconds limit) const {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!has_failed_.load() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookPeriod);
  }
  return Check();
}

}  // namespace lmdbio::ranks
