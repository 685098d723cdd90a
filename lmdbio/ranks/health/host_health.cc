// The shared memory has a cell with the first failure, then one cache line for each rank.
#include "lmdbio/ranks/health/host_health.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/ranks/group/rank_names.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::string WordsOfSilence(std::string_view name, std::chrono::nanoseconds silence) {
  return fmt::format("{} has given no sign of life for {:.1f} s; its process may be stopped", name,
                     std::chrono::duration<double>(silence).count());
}

struct alignas(64) HostHealth::WatchedRank {
  ProcessIdentity process;         // set before the barrier in Create
  std::atomic<uint64_t> sign;      // changes as long as the rank calls Check
  std::atomic<uint32_t> has_left;  // it left regularly: its end and its silence are not failures
};

FailureCell& HostHealth::cell() const {
  return *std::launder(reinterpret_cast<FailureCell*>(memory_->bytes().data()));
}

HostHealth::WatchedRank& HostHealth::peer(size_t index) const {
  std::byte* const first =
      memory_->bytes().data() + AlignUp(sizeof(FailureCell), alignof(WatchedRank));
  return *std::launder(reinterpret_cast<WatchedRank*>(first + index * sizeof(WatchedRank)));
}

Result<std::unique_ptr<HostHealth>> HostHealth::Create(Group& group,
                                                       std::chrono::milliseconds silence_limit) {
  std::unique_ptr<HostHealth> health(new HostHealth());
  health->silence_limit_ = silence_limit;
  LMDBIO_TRY(const auto host, group.SplitByHost());
  const auto size = static_cast<size_t>(host->size());
  health->own_ = static_cast<size_t>(host->rank());
  // If one host has no memory, all ranks fail here, and none waits for another.
  LMDBIO_TRY(health->memory_,
             ForAll(group, host->AllocateShared(sizeof(FailureCell) + alignof(WatchedRank) +
                                                size * sizeof(WatchedRank))));
  health->failure_.emplace(health->cell());
  const int rank = group.rank();
  health->rank_ = rank;
  LMDBIO_TRY(const auto ranks, host->AllGather(std::as_bytes(std::span(&rank, 1))));
  for (size_t i = 0; i < size; ++i) {
    int theirs = 0;
    std::memcpy(&theirs, &ranks[i * sizeof theirs], sizeof theirs);
    health->names_.push_back(RankName(group, theirs));
  }
  health->peer(health->own_).process = OwnIdentity();
  LMDBIO_TRY_VOID(host->Barrier());
  // The silence limit finds a peer that the monitor cannot watch.
  for (size_t i = 0; i < size; ++i) health->monitor_.Add(health->peer(i).process);
  health->seen_.resize(size);
  health->last_look_ = Clock::now();
  return health;
}

HostHealth::~HostHealth() {
  if (memory_ == nullptr) return;
  peer(own_).has_left.store(1);
  if (!cell().is_empty()) memory_->Abandon();
}

void HostHealth::Record(const std::string& text, int error_number) {
  cell().Record(Error(ErrorCode::kPeerFailed, text, error_number), rank_);
}

// Checks each peer: a peer fails if its process has ended, or if its sign has not changed for
// longer than the silence limit. `looked_for` is the time since the last check, at most kLookMax.
// Returns: the text of the failure; "" if there is none. Requires: mutex_ is held
std::string HostHealth::FindFailure(std::chrono::nanoseconds looked_for) {
  for (auto gone = monitor_.FindGone(); gone; gone = monitor_.FindGone(*gone + 1)) {
    if (peer(*gone).has_left.load() != 0) continue;
    return fmt::format("{} has ended unexpectedly", names_[*gone]);
  }
  for (size_t i = 0; i < seen_.size(); ++i) {
    const uint64_t sign = peer(i).sign.load();
    Seen& seen = seen_[i];
    if (i == own_ || sign != seen.sign || peer(i).has_left.load() != 0) {
      seen = {.sign = sign};
      continue;
    }
    seen.silence += looked_for;
    if (seen.silence > silence_limit_) {
      return WordsOfSilence(names_[i], seen.silence);
    }
  }
  return "";
}

Status HostHealth::Check() {
  peer(own_).sign.fetch_add(1);
  if (cell().is_empty()) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    const auto looked_for = std::min<Clock::duration>(now - last_look_, kLookMax);
    last_look_ = now;
    if (const std::string failed = FindFailure(looked_for); !failed.empty()) Record(failed, 0);
  }
  const auto recorded = failure_->Look();
  if (!recorded) return {};
  return Fail(ErrorCode::kPeerFailed, recorded->text, recorded->error_number);
}

std::string HostHealth::failure() {
  const auto recorded = failure_->Look();
  return recorded ? recorded->text : "";
}

// A kPeerFailed names its rank already, so GiveUp does not add the name of this rank.
void HostHealth::GiveUp(const Error& why) {
  Record(why.code() == ErrorCode::kPeerFailed ? why.message()
                                              : fmt::format("{}: {}", names_[own_], why.message()),
         why.error_number());
}

}  // namespace lmdbio::ranks
