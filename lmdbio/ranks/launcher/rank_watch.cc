#include "lmdbio/ranks/launcher/rank_watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::ranks {
namespace {

constexpr auto kLookPeriod = std::chrono::milliseconds(10);

}  // namespace

Result<std::unique_ptr<RankWatch>> RankWatch::Start(std::unique_ptr<PeerLinks> links,
                                                    std::vector<int> neighbours) {
  std::unique_ptr<RankWatch> watch(new RankWatch(std::move(links), std::move(neighbours)));
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
  for (const int neighbour : neighbours_) static_cast<void>(links_->Post(neighbour, {}));
}

void RankWatch::Run() {
  std::vector<int> watched = neighbours_;
  while (!is_stopping_.load()) {
    const std::optional<int> from = links_->AwaitAny(watched);
    if (!from) continue;
    const auto message = links_->Receive(*from);
    if (!message) Record(message.error(), *from);
    // It has left, or failed, or has told that a rank failed. It says nothing more of use.
    std::erase(watched, *from);
  }
}

void RankWatch::Record(const Error& failure, int from) {
  if (has_failed_.load()) return;
  // First, because the process may end as soon as it knows. Its neighbours would then name it.
  for (const int neighbour : neighbours_) {
    if (neighbour != from) links_->PostFailure(neighbour, failure);
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
