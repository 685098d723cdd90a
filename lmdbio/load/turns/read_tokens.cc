#include "lmdbio/load/turns/read_tokens.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lmdbio::load {
namespace {

constexpr int kChildrenMax = 4;

// Adds `rank` unless `peers` contains it or it is this rank.
void AddPeer(const ranks::Group& readers, int rank, std::vector<int>& peers) {
  if (rank == readers.rank()) return;
  if (std::find(peers.begin(), peers.end(), rank) == peers.end()) peers.push_back(rank);
}

}  // namespace

struct ReadTokens::Message {
  enum TokenMessage : uint64_t {
    kWish = 1,    // a request for the token of `set`
    kToken = 2,   // the token of `set`
    kRates = 3,   // sum over the sender and the readers below it in the tree
    kChoice = 4,  // `set` is the chosen token count
    kLeave = 5,   // the sender leaves, or forwards that a reader leaves
  };
  TokenMessage kind = kWish;
  uint64_t set = 0;
  StaggerRates rates;
};

Result<std::unique_ptr<ReadTokens>> ReadTokens::Create(ranks::Group& readers,
                                                       std::span<const uint32_t> token_counts,
                                                       int known_as) {
  static_assert(std::is_trivially_copyable_v<Message>);
  std::vector<TokenCycle> rings;
  std::vector<int> peers;
  const int size = readers.size();
  const int rank = readers.rank();
  for (const uint32_t token_count : token_counts) {
    const int apart =
        static_cast<int>(std::min<uint64_t>(token_count, static_cast<uint64_t>(size)));
    const int first = rank % apart;
    const int last = first + (size - 1 - first) / apart * apart;
    TokenCycle ring;
    ring.behind = rank == last ? first : rank + apart;
    ring.before = rank == first ? last : rank - apart;
    ring.is_here = rank == first;
    AddPeer(readers, ring.behind, peers);
    AddPeer(readers, ring.before, peers);
    rings.push_back(ring);
  }
  const ranks::TreeNeighbours tree = ranks::NeighboursInTree(readers, kChildrenMax);
  if (tree.parent) AddPeer(readers, *tree.parent, peers);
  for (const int child : tree.children) AddPeer(readers, child, peers);
  LMDBIO_TRY(auto links, ranks::PeerLinks::Open(readers, {peers, peers, known_as}));
  return std::unique_ptr<ReadTokens>(
      new ReadTokens(std::move(links), readers, std::move(rings), std::move(peers)));
}

ReadTokens::ReadTokens(std::unique_ptr<ranks::PeerLinks> links, const ranks::Group& readers,
                       std::vector<TokenCycle> rings, std::vector<int> peers)
    : links_(std::move(links)),
      tree_(ranks::NeighboursInTree(readers, kChildrenMax)),
      peers_(std::move(peers)),
      reader_count_(static_cast<size_t>(readers.size())),
      rings_(std::move(rings)) {
  server_ = std::thread([this] { Serve(); });
}

ReadTokens::~ReadTokens() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  links_->Wake();
  server_.join();
}

// --- The reader's side ---

bool ReadTokens::MayTake(size_t set) const {
  if (failure_) return false;  // Await returns it
  return is_free_ || (rings_[set].is_here && !rings_[set].is_leaving);
}

bool ReadTokens::Take(size_t set) {
  bool is_taken = false;
  {
    const std::lock_guard lock(mutex_);
    is_taken = MayTake(set);
    if (is_taken) {
      wanted_.reset();
      held_ = set;
    } else if (wanted_ == set) {
      return false;
    } else {
      wanted_ = set;
    }
  }
  if (!is_taken) links_->Wake();
  return is_taken;
}

Status ReadTokens::Await(size_t set) {
  std::unique_lock lock(mutex_);
  if (wanted_ != set && !MayTake(set)) {
    wanted_ = set;
    links_->Wake();
  }
  changed_.wait(lock, [&] { return MayTake(set) || failure_ || is_stopped_; });
  if (failure_) return lmdbio::Fail(failure_->Copy());
  return {};
}

void ReadTokens::Release() {
  {
    const std::lock_guard lock(mutex_);
    if (!held_) return;
    TokenCycle& ring = rings_[*held_];
    held_.reset();
    // A waiting reader comes before the next turn of this reader.
    if (!ring.is_wanted_behind) return;
    ring.is_leaving = ring.is_here;
  }
  links_->Wake();
}

void ReadTokens::Report(const StaggerRates& mine) {
  {
    const std::lock_guard lock(mutex_);
    own_rates_ = mine;
  }
  links_->Wake();
}

std::optional<size_t> ReadTokens::choice() const {
  const std::lock_guard lock(mutex_);
  return choice_;
}

void ReadTokens::Abandon(const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!own_failure_) own_failure_.emplace(why.Copy());
  }
  links_->Wake();
}

void ReadTokens::Stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

// --- The serving thread ---

void ReadTokens::Serve() {
  ::pthread_setname_np(::pthread_self(), "lmdbio-tokens");  // for ps, top and profilers
  while (true) {
    const std::optional<int> peer = links_->AwaitAny(peers_);
    if (peer) HearFrom(*peer);
    Act();
    const std::lock_guard lock(mutex_);
    if (is_closing_) break;
  }
  // A failure was already sent to the peers; otherwise they learn that this reader leaves.
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    has_failed = failure_.has_value();
  }
  if (!has_failed) LeaveAll();
}

void ReadTokens::HearFrom(int peer) {
  auto heard = links_->Receive(peer);
  if (!heard) {
    std::erase(peers_, peer);
    bool matters = false;
    {
      const std::lock_guard lock(mutex_);
      // After a leave or a failure, a lost connection is expected.
      matters = !is_free_ && !failure_ && !is_closing_;
    }
    if (matters) FailAll(heard.error());
    return;
  }
  if (!*heard) return;
  Message message;
  if ((*heard)->size() != sizeof message) return;
  std::memcpy(&message, (*heard)->data(), sizeof message);
  Heed(peer, message);
}

void ReadTokens::Heed(int peer, const Message& message) {
  bool leaves = false;
  {
    const std::lock_guard lock(mutex_);
    switch (message.kind) {
      case Message::kWish:
        if (message.set < rings_.size()) rings_[message.set].is_wanted_behind = true;
        break;
      case Message::kToken:
        if (message.set < rings_.size()) {
          rings_[message.set].is_here = true;
          rings_[message.set].is_asked_for = false;
        }
        break;
      case Message::kRates:
        for (size_t way = 0; way < kStaggerWaysMax; ++way) {
          rates_.bytes_per_s[way] += message.rates.bytes_per_s[way];
        }
        rates_.unclear_count += message.rates.unclear_count;
        ++rates_heard_;
        break;
      case Message::kChoice:
        choice_ = message.set;
        break;
      case Message::kLeave:
        leaves = !is_free_;
        is_free_ = true;
        break;
    }
    changed_.notify_all();
  }
  if (message.kind == Message::kLeave) {
    std::erase(peers_, peer);
    if (leaves) LeaveAll();
  }
  if (message.kind == Message::kChoice) {
    for (const int child : tree_.children) Post(child, message);
  }
}

void ReadTokens::Act() {
  std::optional<Error> why;
  {
    const std::lock_guard lock(mutex_);
    if (own_failure_ && !failure_ && !is_free_) {
      why.emplace(own_failure_->Copy());
    }
  }
  if (why) FailAll(*why);
  for (size_t set = 0; set < rings_.size(); ++set) ActOnRing(set);
  ActOnRates();
}

// One step of the token cycle; runs after each message and each call of the reader.
//
// The token is passed on if it is idle and the reader behind wants it, unless this reader wants it
// too and it is not leaving. A request is sent on if the token is not here and this reader, or one
// behind it, wants it; one request at a time. After the token was passed on, a request of this
// reader therefore follows it round the cycle.
void ReadTokens::ActOnRing(size_t set) {
  bool hands_on = false;
  bool asks = false;
  TokenCycle to;
  {
    const std::lock_guard lock(mutex_);
    if (is_free_ || failure_) return;
    TokenCycle& ring = rings_[set];
    const bool is_wanted_here = wanted_ == set;
    const bool is_idle = ring.is_here && held_ != set;
    if (is_idle && (ring.is_leaving || (ring.is_wanted_behind && !is_wanted_here))) {
      hands_on = true;
      ring.is_here = ring.is_leaving = ring.is_wanted_behind = false;
    }
    if (!ring.is_here && !ring.is_asked_for && (is_wanted_here || ring.is_wanted_behind)) {
      asks = ring.is_asked_for = true;
    }
    to = ring;
  }
  if (hands_on) Post(to.behind, {Message::kToken, set, {}});
  if (asks) Post(to.before, {Message::kWish, set, {}});
}

// Adds up the rates on the way up the tree: a reader sends its sum after all its children reported.
// The root chooses the token count, and the choice is sent down the tree.
void ReadTokens::ActOnRates() {
  std::optional<Message> message;
  {
    const std::lock_guard lock(mutex_);
    if (has_reported_ || !own_rates_ || rates_heard_ < tree_.children.size()) return;
    has_reported_ = true;
    for (size_t way = 0; way < kStaggerWaysMax; ++way) {
      rates_.bytes_per_s[way] += own_rates_->bytes_per_s[way];
    }
    rates_.unclear_count += own_rates_->unclear_count;
    message = {Message::kRates, 0, rates_};
    if (!tree_.parent) {
      choice_ = ChooseStaggerWay(rates_, rings_.size() + 1, reader_count_);
      message = {Message::kChoice, *choice_, {}};
    }
  }
  if (tree_.parent) return Post(*tree_.parent, *message);
  for (const int child : tree_.children) Post(child, *message);
}

void ReadTokens::LeaveAll() {
  for (const int peer : peers_) Post(peer, {Message::kLeave, 0, {}});
}

void ReadTokens::FailAll(const Error& why) {
  for (const int peer : peers_) static_cast<void>(links_->SendFailure(peer, why));
  const std::lock_guard lock(mutex_);
  failure_.emplace(why.Copy());
  changed_.notify_all();
}

// A failed send is ignored, because Receive reports a peer that is gone.
void ReadTokens::Post(int peer, const Message& message) {
  static_cast<void>(links_->Post(peer, std::as_bytes(std::span(&message, 1))));
}

}  // namespace lmdbio::load
