#include "lmdbio/ranks/linked/linked_group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/digest.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/group/host_memory.h"
#include "lmdbio/ranks/group/same_size.h"
#include "lmdbio/ranks/net/peer_address.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

#ifdef __SANITIZE_THREAD__  // the thread sanitizer sees neither fences nor other processes
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace lmdbio::ranks {
namespace {

// Children of one rank in the tree. With 1,000 ranks a value crosses 5 links on its way up.
constexpr int kChildrenMax = 4;
// How often a waiting rank looks for ranks that have ended.
constexpr auto kCheckPeriod = std::chrono::milliseconds(100);
// Between two looks of a rank that has lost a neighbour and wants to know why.
constexpr auto kReasonPause = std::chrono::milliseconds(5);
// Of all ranks together in one message.
constexpr uint64_t kPieceBytesMax = uint64_t{1} << 28;

// Ranks with equal identities share a host: they run under one kernel, and reach the Unix sockets
// of each other.
struct HostIdentity {
  uint64_t boot = 0;               // a digest of the kernel's boot id, or of the host name
  uint64_t network_namespace = 0;  // its inode; if it is unknown, a number of this process
  uint64_t user = 0;
  std::array<char, 64> name{};

  bool IsSameHost(const HostIdentity& other) const {
    return boot == other.boot && network_namespace == other.network_namespace && user == other.user;
  }
};
static_assert(std::is_trivially_copyable_v<HostIdentity>);

std::string BootId() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : 0;
  return {text.data(), got > 0 ? static_cast<size_t>(got) : 0};
}

HostIdentity OwnHost() {
  HostIdentity own;
  ::gethostname(own.name.data(), own.name.size() - 1);
  const std::string boot = BootId();
  own.boot = TextDigest(boot.empty() ? std::string(own.name.data()) : boot);
  own.network_namespace = NetworkNamespace();
  if (own.network_namespace == 0) own.network_namespace = static_cast<uint64_t>(::getpid());
  own.user = static_cast<uint64_t>(::geteuid());
  return own;
}

}  // namespace

enum class LinkedGroup::CollectiveKind : uint32_t { kBarrier = 1, kBroadcast = 2, kAllGather = 3 };

struct LinkedGroup::CallHead {
  CollectiveKind kind{};
  int32_t root = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;  // of each rank
  friend bool operator==(const CallHead&, const CallHead&) = default;
};

TreeNeighbours LinkedGroup::Neighbours(int rank, int size) {
  return NeighboursInTree(rank, size, kChildrenMax);
}

LinkedGroup::LinkedGroup(int rank, int size, std::unique_ptr<PeerLinks> links,
                         std::function<Status()> check)
    : rank_(rank),
      size_(size),
      links_(std::move(links)),
      numbers_(static_cast<size_t>(size)),
      neighbours_(Neighbours(rank, size)),
      check_(std::move(check)) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
  ranks_of_job_ = numbers_;
  hosts_ = numbers_;
}

LinkedGroup::LinkedGroup(const LinkedGroup& whole, std::vector<int> members,
                         std::unique_ptr<PeerLinks> links)
    : rank_(static_cast<int>(std::find(members.begin(), members.end(), whole.rank_) -
                             members.begin())),
      size_(static_cast<int>(members.size())),
      links_(std::move(links)),
      numbers_(std::move(members)),
      own_host_(whole.own_host_),
      neighbours_(Neighbours(rank_, size_)),
      check_(whole.check_),
      watch_(whole.watch_),
      windows_(whole.windows_) {
  bool spans_hosts = false;
  for (const int member : numbers_) {
    ranks_of_job_.push_back(whole.ranks_of_job_[static_cast<size_t>(member)]);
    hosts_.push_back(whole.hosts_[static_cast<size_t>(member)]);
    spans_hosts = spans_hosts || hosts_.back() != hosts_.front();
  }
  if (spans_hosts) host_name_ = own_host_;
}

Status LinkedGroup::FindHosts() {
  const HostIdentity mine = OwnHost();
  LMDBIO_TRY(const auto gathered, AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<HostIdentity> all(static_cast<size_t>(size_));
  std::memcpy(static_cast<void*>(all.data()), gathered.data(), gathered.size());
  // The number of a host is the first of its ranks. Few hosts are compared with each rank.
  std::vector<int> firsts;
  for (int rank = 0; rank < size_; ++rank) {
    const HostIdentity& theirs = all[static_cast<size_t>(rank)];
    const auto first = std::find_if(firsts.begin(), firsts.end(), [&](int other) {
      return theirs.IsSameHost(all[static_cast<size_t>(other)]);
    });
    hosts_[static_cast<size_t>(rank)] = first == firsts.end() ? rank : *first;
    if (first == firsts.end()) firsts.push_back(rank);
  }
  own_host_ = mine.name.data();
  host_name_ = firsts.size() > 1 ? own_host_ : "";
  return {};
}

void LinkedGroup::WatchBy(std::shared_ptr<RankWatch> watch) {
  watch_ = std::move(watch);
  check_ = nullptr;
}

Status LinkedGroup::CheckRanks() {
  if (watch_) return watch_->Check();
  return check_ ? check_() : Status();
}

Status LinkedGroup::CheckRanksWithin(std::chrono::milliseconds limit) {
  if (watch_) return watch_->CheckWithin(limit);
  const auto until = std::chrono::steady_clock::now() + limit;
  Status alive = CheckRanks();
  while (alive && check_ && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kReasonPause);
    alive = CheckRanks();
  }
  return alive;
}

std::string LinkedGroup::WordsOf(const CallHead& head) {
  switch (head.kind) {
    case CollectiveKind::kBarrier:
      return fmt::format("call {}, Barrier", head.number);
    case CollectiveKind::kBroadcast:
      return fmt::format("call {}, Broadcast of {} bytes from rank {}", head.number, head.bytes,
                         head.root);
    case CollectiveKind::kAllGather:
      return fmt::format("call {}, AllGather of {} bytes", head.number, head.bytes);
  }
  return "an unknown call";
}

// The call cannot be completed. The neighbours hear the reason in place of a message, so that no
// rank waits for one that has given up.
Error LinkedGroup::Break(Error reason) {
  if (is_broken_) return reason;
  is_broken_ = true;
  for (const int child : neighbours_.children) links_->PostFailure(number_of(child), reason);
  if (neighbours_.parent) links_->PostFailure(number_of(*neighbours_.parent), reason);
  return reason;
}

// A neighbour has closed its link. If it has died, the watch hears that, too. If it has failed
// because another rank has died, the watch names that one. While ranks connect there is no watch,
// but the meeting place, which tells the same.
Error LinkedGroup::ReasonOfLoss(const Error& loss) {
  const Status found = CheckRanksWithin(kReasonLimit);
  return found ? loss.Copy() : found.error().Copy();
}

Status LinkedGroup::Send(int to, const CallHead& head, Bytes body) {
  const Bytes first = std::as_bytes(std::span(&head, 1));
  std::vector<std::byte> message(first.begin(), first.end());
  message.insert(message.end(), body.begin(), body.end());
  Status sent = links_->Post(number_of(to), message);
  if (!sent) return Fail(Break(ReasonOfLoss(sent.error())));
  return {};
}

// Sends what the connections had no room for.
Status LinkedGroup::SendRest() {
  while (!links_->Progress(std::nullopt, kCheckPeriod)) {
    if (Status alive = CheckRanks(); !alive) return Fail(Break(std::move(alive).error()));
  }
  return {};
}

Result<std::vector<std::byte>> LinkedGroup::Receive(int from, const CallHead& expected) {
  while (!links_->Progress(number_of(from), kCheckPeriod)) {
    if (Status alive = CheckRanks(); !alive) return Fail(Break(std::move(alive).error()));
  }
  const bool is_gone = links_->IsGone(number_of(from));
  auto message = links_->Receive(number_of(from));
  if (!message && is_gone) return Fail(Break(ReasonOfLoss(message.error())));
  if (!message) return Fail(Break(std::move(message).error()));
  CallHead head;
  const std::vector<std::byte>& bytes = **message;
  if (bytes.size() < sizeof head) return MalformedPart(from);
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head != expected) {
    return Fail(Break(
        Error(ErrorCode::kInternal,
              fmt::format("ranks make different collective calls: {} makes {}; rank {} makes {}",
                          links_->NameOf(number_of(from)), WordsOf(head),
                          ranks_of_job_[static_cast<size_t>(rank_)], WordsOf(expected)))));
  }
  return std::vector<std::byte>(bytes.begin() + sizeof head, bytes.end());
}

// Its head is right, so it is of this call. But a size or a rank is not, and nothing may be written
// beside the memory for it.
tl::unexpected<Error> LinkedGroup::MalformedPart(int from) {
  return Fail(Break(
      Error(ErrorCode::kInternal, fmt::format("{} has sent a malformed part of a collective call",
                                              links_->NameOf(number_of(from))))));
}

// Places the parts of all ranks, which are in any order, each with its number in front.
// all  [size_ * bytes of a rank]
// Returns: false if a rank is missing, or there twice
bool LinkedGroup::PlaceParts(Bytes parts, MutableBytes all) const {
  const auto ranks = static_cast<size_t>(size_);
  const size_t bytes = all.size() / ranks;
  if (parts.size() != ranks * (sizeof(int32_t) + bytes)) return false;
  std::vector<bool> has(ranks);
  while (!parts.empty()) {
    int32_t rank = 0;
    std::memcpy(&rank, parts.data(), sizeof rank);
    if (rank < 0 || rank >= size_ || has[static_cast<size_t>(rank)]) return false;
    has[static_cast<size_t>(rank)] = true;
    const Bytes part = parts.subspan(sizeof rank, bytes);
    std::ranges::copy(
        part, all.begin() + static_cast<std::ptrdiff_t>(rank) * static_cast<std::ptrdiff_t>(bytes));
    parts = parts.subspan(sizeof rank + bytes);
  }
  return true;
}

// Up the tree go the bytes of all ranks below, each with its number in front; down the bytes of all
// ranks in order.
Result<std::vector<std::byte>> LinkedGroup::GatherPiece(CollectiveKind kind, Bytes mine) {
  const CallHead head{.kind = kind, .number = call_count_++, .bytes = mine.size()};
  const size_t part_bytes = sizeof(int32_t) + mine.size();
  const auto number = static_cast<int32_t>(rank_);
  const Bytes number_bytes = std::as_bytes(std::span(&number, 1));
  std::vector<std::byte> below(number_bytes.begin(), number_bytes.end());
  below.insert(below.end(), mine.begin(), mine.end());
  for (const int child : neighbours_.children) {
    LMDBIO_TRY(const auto theirs, Receive(child, head));
    const size_t most_bytes = part_bytes * static_cast<size_t>(size_);
    if (theirs.size() % part_bytes != 0 || theirs.size() > most_bytes) return MalformedPart(child);
    below.insert(below.end(), theirs.begin(), theirs.end());
  }
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(size_));
  if (neighbours_.parent) {
    const size_t all_bytes = all.size();
    LMDBIO_TRY_VOID(Send(*neighbours_.parent, head, below));
    LMDBIO_TRY(all, Receive(*neighbours_.parent, head));
    if (all.size() != all_bytes) return MalformedPart(*neighbours_.parent);
  } else if (!PlaceParts(below, all)) {
    return Fail(Break(
        Error(ErrorCode::kInternal, "the parts of a collective call are not one of each rank")));
  }
  for (const int child : neighbours_.children) LMDBIO_TRY_VOID(Send(child, head, all));
  LMDBIO_TRY_VOID(SendRest());
  return all;
}

// The neighbour of this rank on the way to `root`, which is another rank.
int LinkedGroup::TowardsRoot(int root) const {
  int before = root;
  for (int at = root; at > rank_; at = (at - 1) / kChildrenMax) before = at;
  const bool is_below = (before - 1) / kChildrenMax == rank_ && before > rank_;
  return is_below ? before : *neighbours_.parent;
}

Status LinkedGroup::BroadcastPiece(int root, MutableBytes piece) {
  const CallHead head{.kind = CollectiveKind::kBroadcast,
                      .root = root,
                      .number = call_count_++,
                      .bytes = piece.size()};
  std::optional<int> from;
  if (rank_ != root) {
    from = TowardsRoot(root);
    LMDBIO_TRY(const auto bytes, Receive(*from, head));
    if (bytes.size() != piece.size()) return MalformedPart(*from);
    std::ranges::copy(bytes, piece.begin());
  }
  for (const int child : neighbours_.children) {
    if (child != from) LMDBIO_TRY_VOID(Send(child, head, piece));
  }
  if (neighbours_.parent && neighbours_.parent != from) {
    LMDBIO_TRY_VOID(Send(*neighbours_.parent, head, piece));
  }
  return SendRest();
}

Status LinkedGroup::Barrier() {
  // Stores to shared memory before the first fence of one rank are visible after the second fence
  // of another.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  LMDBIO_TRY_VOID(GatherPiece(CollectiveKind::kBarrier, {}));
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return {};
}

Status LinkedGroup::Broadcast(int root, MutableBytes bytes) {
  LMDBIO_CHECK(root >= 0 && root < size_);
  size_t at = 0;
  do {
    const size_t count = std::min<size_t>(bytes.size() - at, kPieceBytesMax);
    LMDBIO_TRY_VOID(BroadcastPiece(root, bytes.subspan(at, count)));
    at += count;
  } while (at < bytes.size());
  return {};
}

Result<std::vector<std::byte>> LinkedGroup::AllGather(Bytes mine) {
  const size_t piece_bytes =
      std::max<size_t>(1, kPieceBytesMax / static_cast<size_t>(size_) - sizeof(int32_t));
  if (mine.size() <= piece_bytes) return GatherPiece(CollectiveKind::kAllGather, mine);
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(size_));
  for (size_t at = 0; at < mine.size(); at += piece_bytes) {
    const Bytes piece = mine.subspan(at, std::min(piece_bytes, mine.size() - at));
    LMDBIO_TRY(const auto pieces, GatherPiece(CollectiveKind::kAllGather, piece));
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      std::memcpy(&all[rank * mine.size() + at], &pieces[rank * piece.size()], piece.size());
    }
  }
  return all;
}

Result<std::unique_ptr<Group>> LinkedGroup::SplitByHost() {
  return Split(hosts_[static_cast<size_t>(rank_)]);
}

// All parts open their links in one collective call of this group.
Result<std::unique_ptr<Group>> LinkedGroup::Split(int color) {
  LMDBIO_TRY(const auto gathered, AllGather(std::as_bytes(std::span(&color, 1))));
  std::vector<int> colors(static_cast<size_t>(size_));
  std::memcpy(colors.data(), gathered.data(), gathered.size());
  std::vector<int> members;
  int rank = 0;
  for (int other = 0; other < size_; ++other) {
    if (colors[static_cast<size_t>(other)] != color) continue;
    if (other == rank_) rank = static_cast<int>(members.size());
    members.push_back(other);
  }
  const TreeNeighbours neighbours = Neighbours(rank, static_cast<int>(members.size()));
  LinkSpec spec;
  for (const int child : neighbours.children) {
    spec.sends_to.push_back(members[static_cast<size_t>(child)]);
  }
  if (neighbours.parent) {
    spec.sends_to.push_back(members[static_cast<size_t>(*neighbours.parent)]);
  }
  spec.receives_from = spec.sends_to;
  spec.known_as = ranks_of_job_[static_cast<size_t>(rank_)];
  LMDBIO_TRY(auto links, PeerLinks::Open(*this, spec));
  return std::unique_ptr<Group>(new LinkedGroup(*this, std::move(members), std::move(links)));
}

Result<std::unique_ptr<SharedMemory>> LinkedGroup::AllocateShared(uint64_t size_bytes) {
  if (size_ == 1) return AllocateAnonymous(size_bytes);
  if (!host_name_.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "shared memory was requested by ranks of several hosts: split the group by host first");
  }
  auto memory = AllocateHostMemory(*this, size_bytes);
  // The code is the same on all ranks.
  const bool is_refused = !memory && memory.error().code() == ErrorCode::kUnsupported;
  if (!is_refused || !windows_) return memory;
  return windows_->Allocate(ranks_of_job_, size_bytes, memory.error().message());
}

Result<std::unique_ptr<SharedMemory>> LinkedGroup::AllocateMpiWindow(uint64_t size_bytes) {
  if (size_ == 1 || !windows_) return AllocateShared(size_bytes);
  LMDBIO_TRY(const auto bytes, AllGather(std::as_bytes(std::span(&size_bytes, 1))));
  std::vector<uint64_t> sizes(static_cast<size_t>(size_));
  std::memcpy(sizes.data(), bytes.data(), bytes.size());
  LMDBIO_TRY_VOID(CheckSameSize(sizes));
  return windows_->Allocate(ranks_of_job_, size_bytes, "");
}

}  // namespace lmdbio::ranks
