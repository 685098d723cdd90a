// The memory: a board with the words of the first failure, then one line for each rank.
#include "lmdbio/ranks/health/host_health.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "lmdbio/ranks/group/rank_names.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWordsBytes = 1000;
// kUnsaid: who wanted to write ended before it had.
enum Failure : uint32_t { kNone, kBeingWritten, kWritten, kUnsaid };
constexpr const char* kUnsaidWords = "a rank has ended before it could say what had failed";

}  // namespace

std::string WordsOfSilence(std::string_view name, std::chrono::nanoseconds silence) {
  return fmt::format("{} has given no sign of life for {:.1f} s: is it stopped?", name,
                     std::chrono::duration<double>(silence).count());
}

struct HostHealth::FailureCell {
  std::atomic<uint32_t> failure;
  std::array<char, kWordsBytes> words;  // ends with 0; written before failure becomes kWritten
};

struct alignas(64) HostHealth::Peer {
  ProcessIdentity process;         // set before the barrier in Create
  std::atomic<uint64_t> sign;      // changes as long as the rank looks at the others
  std::atomic<uint32_t> has_left;  // in good order: nobody waits for it any more
};

HostHealth::FailureCell& HostHealth::board() const {
  return *std::launder(reinterpret_cast<FailureCell*>(memory_->bytes().data()));
}

HostHealth::Peer& HostHealth::peer(size_t index) const {
  constexpr size_t kBoardBytes =
      (sizeof(FailureCell) + alignof(Peer) - 1) / alignof(Peer) * alignof(Peer);
  std::byte* const first = memory_->bytes().data() + kBoardBytes;
  return *std::launder(reinterpret_cast<Peer*>(first + index * sizeof(Peer)));
}

Result<std::unique_ptr<HostHealth>> HostHealth::Create(Group& group,
                                                       std::chrono::milliseconds silence_limit) {
  std::unique_ptr<HostHealth> health(new HostHealth());
  health->silence_limit_ = silence_limit;
  LMDBIO_TRY(const auto host, group.SplitByHost());
  const auto size = static_cast<size_t>(host->size());
  health->own_ = static_cast<size_t>(host->rank());
  // What one host does not have, the others are not to wait for.
  LMDBIO_TRY(health->memory_,
             ForAll(group, host->AllocateShared(sizeof(FailureCell) + alignof(Peer) +
                                                size * sizeof(Peer))));
  const int rank = group.rank();
  LMDBIO_TRY(const auto ranks, host->AllGather(std::as_bytes(std::span(&rank, 1))));
  for (size_t i = 0; i < size; ++i) {
    int theirs = 0;
    std::memcpy(&theirs, &ranks[i * sizeof theirs], sizeof theirs);
    health->names_.push_back(RankName(group, theirs));
  }
  health->peer(health->own_).process = OwnIdentity();
  LMDBIO_TRY_VOID(host->Barrier());
  // The silence limit finds a peer that cannot be watched.
  for (size_t i = 0; i < size; ++i) health->monitor_.Add(health->peer(i).process);
  health->seen_.resize(size);
  health->last_look_ = Clock::now();
  return health;
}

HostHealth::~HostHealth() {
  if (memory_ == nullptr) return;
  peer(own_).has_left.store(1);
  if (board().failure.load() != kNone) memory_->Abandon();
}

void HostHealth::TellAll(const std::string& why) {
  uint32_t none = kNone;
  if (!board().failure.compare_exchange_strong(none, kBeingWritten)) return;
  std::array<char, kWordsBytes>& words = board().words;
  words.fill('\0');
  why.copy(words.data(), words.size() - 1);
  // Who was stopped meanwhile may be too late: the others have said then that nobody knows.
  uint32_t being_written = kBeingWritten;
  board().failure.compare_exchange_strong(being_written, kWritten);
}

// Writing takes no time: who is still at it a while later was killed or stopped.
// Requires: mutex_ is held
void HostHealth::LookAtWriter(std::chrono::nanoseconds looked_for) {
  unsaid_for_ = sees_writer_ ? unsaid_for_ + looked_for : std::chrono::nanoseconds(0);
  sees_writer_ = true;
  uint32_t being_written = kBeingWritten;
  if (unsaid_for_ > kLookMax) {
    board().failure.compare_exchange_strong(being_written, kUnsaid);
  }
}

// Requires: mutex_ is held
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
  const uint32_t found = board().failure.load();
  if (found == kNone || found == kBeingWritten) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    const auto looked_for = std::min<Clock::duration>(now - last_look_, kLookMax);
    last_look_ = now;
    if (found == kBeingWritten) {
      LookAtWriter(looked_for);
    } else if (const std::string failed = FindFailure(looked_for); !failed.empty()) {
      TellAll(failed);
    }
  }
  std::string words = failure();
  if (words.empty()) return {};
  return Fail(ErrorCode::kPeerFailed, std::move(words));
}

std::string HostHealth::failure() const {
  const uint32_t state = board().failure.load();
  if (state == kUnsaid) return kUnsaidWords;
  return state == kWritten ? board().words.data() : "";
}

void HostHealth::GiveUp(const Error& why) {
  TellAll(why.code() == ErrorCode::kPeerFailed
              ? why.message()
              : fmt::format("{}: {}", names_[own_], why.message()));
}

}  // namespace lmdbio::ranks
