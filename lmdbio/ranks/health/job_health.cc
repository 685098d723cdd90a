// A message is one letter. After kFailed the words of the failure follow.
//
// Each root floods a failure: it sends the words to all its neighbours once, and ignores later
// ones. In a tree every root is reached on one path, so flooding needs one message for each edge
// and direction. A living part of the tree that is cut off by dead roots has one of them as a
// neighbour, and starts a flood of its own.
#include "lmdbio/ranks/health/job_health.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/group/host_topology.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kLives = "L";
constexpr std::string_view kLeaves = "Q";
constexpr std::string_view kFailed = "F";

// Between two signs of life; less if the watch limit is short.
constexpr auto kSignPauseMax = std::chrono::milliseconds(400);
constexpr int kSignsPerLimit = 4;

// The number of edges from the top of a tree of `host_count` roots to its lowest root.
int TreeDepth(int host_count) {
  int depth = 0;
  for (int root = host_count - 1; root > 0; root = (root - 1) / kHealthChildrenMax) ++depth;
  return depth;
}

}  // namespace

std::chrono::milliseconds WatchLimit(std::chrono::milliseconds silence_limit, int host_count) {
  // A report climbs to the top and down again. Each root on the way forwards it at its next check.
  const auto travel = 2 * TreeDepth(host_count) * kHealthNap;
  return silence_limit - std::min<std::chrono::milliseconds>(travel, silence_limit / 4);
}

Result<std::unique_ptr<JobHealth>> JobHealth::Create(Group& group,
                                                     std::chrono::milliseconds silence_limit) {
  std::unique_ptr<JobHealth> health(new JobHealth());
  LMDBIO_TRY(const auto host, group.SplitByHost());
  LMDBIO_TRY(const HostTopology topology, FindHostPlaces(group, *host));
  health->watch_limit_ = WatchLimit(silence_limit, topology.host_count());
  LMDBIO_TRY(health->host_, HostHealth::Create(group, health->watch_limit_));
  if (topology.host_count() == 1) return health;
  const bool is_root = host->rank() == 0;
  LMDBIO_TRY(const auto same_tier, group.Split(is_root ? 0 : 1));
  Status joined = is_root ? health->JoinTree(*same_tier, group.rank()) : Status();
  LMDBIO_TRY_VOID(Agree(group, std::move(joined)));
  health->last_look_ = Clock::now();
  return health;
}

// Collective over the roots.
Status JobHealth::JoinTree(Group& roots, int known_as) {
  const TreeNeighbours tree = NeighboursInTree(roots, kHealthChildrenMax);
  LinkSpec spec;
  spec.known_as = known_as;
  spec.sends_to = tree.children;
  if (tree.parent) spec.sends_to.push_back(*tree.parent);
  spec.receives_from = spec.sends_to;
  LMDBIO_TRY(links_, PeerLinks::Open(roots, spec));
  for (const int root : spec.sends_to) neighbours_[root].name = links_->NameOf(root);
  return {};
}

JobHealth::~JobHealth() {
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return;
  PassOnFailure();
  if (!is_passed_on_) SendToNeighbours(kLeaves);
}

// Never waits: the messages are short, so the buffers of the connection have room for them.
// A neighbour that is gone is not an error here; FindFailure reports it.
void JobHealth::SendToNeighbours(std::string_view message) {
  for (const auto& [root, neighbour] : neighbours_) {
    if (neighbour.has_left) continue;
    static_cast<void>(links_->Post(root, std::as_bytes(std::span(message))));
  }
}

// Sends the failure that this host knows to all neighbours, once. Requires: mutex_ is held
void JobHealth::PassOnFailure() {
  const std::string words = host_->failure();
  if (links_ == nullptr || is_passed_on_ || words.empty()) return;
  is_passed_on_ = true;
  SendToNeighbours(std::string(kFailed) + words);
}

// Reads all messages that have arrived from a neighbour.
// Returns: the words of a failure; "" if there is none
std::string JobHealth::ReceiveFrom(int root, Neighbour& neighbour) {
  while (!neighbour.has_left && links_->HasMessage(root)) {
    const auto message = links_->Receive(root);
    if (!message) return message.error().message();
    if (!*message) return "";
    neighbour.silence = {};
    const std::string_view text(reinterpret_cast<const char*>((*message)->data()),
                                (*message)->size());
    if (text.substr(0, 1) == kFailed) return std::string(text.substr(1));
    neighbour.has_left = text == kLeaves;
  }
  return "";
}

// Sends a sign of life if one is due, and looks for a failure at all neighbours.
// Returns: its words; "" if there is none. Requires: mutex_ is held
std::string JobHealth::FindFailure() {
  const auto now = Clock::now();
  const auto looked_for = std::min<Clock::duration>(now - last_look_, kLookMax);
  last_look_ = now;
  const auto sign_pause =
      std::min<std::chrono::milliseconds>(kSignPauseMax, watch_limit_ / kSignsPerLimit);
  if (now - last_sign_ >= sign_pause) {
    last_sign_ = now;
    SendToNeighbours(kLives);
  }
  for (auto& [root, neighbour] : neighbours_) {
    neighbour.silence += looked_for;
    std::string failed = ReceiveFrom(root, neighbour);
    if (!failed.empty()) return failed;
    if (neighbour.has_left || neighbour.silence <= watch_limit_) continue;
    // All neighbours of a silent root must use the same words, so these have no measured time.
    return WordsOfSilence(neighbour.name, watch_limit_);
  }
  return "";
}

Status JobHealth::Check() {
  Status status = host_->Check();
  const std::lock_guard lock(mutex_);
  if (links_ == nullptr) return status;
  if (status) {
    const std::string failed = FindFailure();
    if (failed.empty()) return {};
    host_->GiveUp(Error(ErrorCode::kPeerFailed, failed));
    status = host_->Check();
  }
  PassOnFailure();
  return status;
}

void JobHealth::GiveUp(const Error& why) {
  host_->GiveUp(why);
  const std::lock_guard lock(mutex_);
  PassOnFailure();
}

}  // namespace lmdbio::ranks
