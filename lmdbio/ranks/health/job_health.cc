// A message is a word, and for kFailed what has failed behind it.
#include "lmdbio/ranks/health/job_health.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSignPause = std::chrono::milliseconds(400);

constexpr std::string_view kLives = "L";
constexpr std::string_view kLeaves = "Q";
constexpr std::string_view kFailed = "F";

}  // namespace

Result<std::unique_ptr<JobHealth>> JobHealth::Create(Group& group,
                                                     std::chrono::milliseconds silence_limit) {
  std::unique_ptr<JobHealth> health(new JobHealth());
  health->silence_limit_ = silence_limit;
  LMDBIO_TRY(health->host_, HostHealth::Create(group, silence_limit));
  LMDBIO_TRY(const auto host, group.SplitByHost());
  if (host->size() == group.size()) return health;
  LMDBIO_TRY(const auto same_tier, group.Split(host->rank() == 0 ? 0 : 1));
  Status linked;
  if (host->rank() == 0) {
    LinkSpec plan;
    plan.known_as = group.rank();
    for (int root = 0; root < same_tier->size(); ++root) {
      if (root != same_tier->rank()) plan.sends_to.push_back(root);
    }
    plan.receives_from = plan.sends_to;
    auto links = PeerLinks::Open(*same_tier, plan);
    if (links) {
      for (const int root : plan.sends_to) health->roots_[root].name = (*links)->NameOf(root);
      health->links_ = std::move(*links);
    } else {
      linked = Fail(std::move(links).error());
    }
  }
  LMDBIO_TRY_VOID(Agree(group, std::move(linked)));
  health->last_look_ = Clock::now();
  return health;
}

JobHealth::~JobHealth() {
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return;
  PassOn();
  if (!is_passed_on_) Say(kLeaves);
}

// To all other roots, and never waits: so little fits into any buffer on the way.
void JobHealth::Say(std::string_view message) {
  for (const auto& [number, root] : roots_) {
    // Who is gone is found by who listens.
    if (!root.has_left) static_cast<void>(links_->Post(number, std::as_bytes(std::span(message))));
  }
}

// What has failed on this host, once. Requires: mutex_ is held
void JobHealth::PassOn() {
  const std::string words = host_->failure();
  if (links_ == nullptr || is_passed_on_ || words.empty()) return;
  is_passed_on_ = true;
  Say(std::string(kFailed) + words);
}

// What root `number` has said since the last call. Returns what has failed; "" if nothing has.
std::string JobHealth::Hear(int number, Root& root) {
  while (!root.has_left && links_->HasMessage(number)) {
    const auto message = links_->Receive(number);
    if (!message) return message.error().message();
    if (!*message) return "";
    root.silence = {};
    const std::string_view text(reinterpret_cast<const char*>((*message)->data()),
                                (*message)->size());
    if (text.substr(0, 1) == kFailed) return std::string(text.substr(1));
    root.has_left = text == kLeaves;
  }
  return "";
}

// Requires: mutex_ is held
std::string JobHealth::Look() {
  const auto now = Clock::now();
  const auto looked_for = std::min<Clock::duration>(now - last_look_, kLookMax);
  last_look_ = now;
  if (now - last_sign_ >= kSignPause) {
    last_sign_ = now;
    Say(kLives);
  }
  for (auto& [number, root] : roots_) {
    root.silence += looked_for;
    std::string failed = Hear(number, root);
    if (!failed.empty()) return failed;
    if (root.has_left || root.silence <= silence_limit_) continue;
    return WordsOfSilence(root.name, root.silence);
  }
  return "";
}

Status JobHealth::Check() {
  Status status = host_->Check();
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return status;
  if (status) {
    const std::string failed = Look();
    if (failed.empty()) return {};
    host_->GiveUp(Error(ErrorCode::kPeerFailed, failed));
    status = host_->Check();
  }
  PassOn();
  return status;
}

void JobHealth::GiveUp(const Error& why) {
  host_->GiveUp(why);
  const std::lock_guard lock(mutex_);
  PassOn();
}

}  // namespace lmdbio::ranks
