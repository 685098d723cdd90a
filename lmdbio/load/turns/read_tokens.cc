#include "lmdbio/load/turns/read_tokens.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {
namespace {

constexpr int kChildrenMax = 4;

// Adds `rank` unless `peers` contains it or it is this rank.
void AddPeer(const ranks::Group& readers, int rank, std::vector<int>& peers) {
  if (rank == readers.rank()) return;
  if (std::find(peers.begin(), peers.end(), rank) == peers.end()) peers.push_back(rank);
}

}  // namespace

// All readers run the same program, so a message travels as the bytes of this struct.
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
  TokenCycles cycles(readers.rank(), readers.size(), token_counts);
  std::vector<int> peers = cycles.Peers(readers.rank());
  // Tokens move between neighbours of a cycle, rates and the choice between neighbours in a tree.
  // One link in each direction serves both.
  const ranks::TreeNeighbours tree = ranks::NeighboursInTree(readers, kChildrenMax);
  if (tree.parent) AddPeer(readers, *tree.parent, peers);
  for (const int child : tree.children) AddPeer(readers, child, peers);
  LMDBIO_TRY(auto links, ranks::PeerLinks::Open(readers, {peers, peers, known_as}));
  std::unique_ptr<ReadTokens> tokens(
      new ReadTokens(std::move(links), readers, std::move(cycles), std::move(peers)));
  // A reader without a thread would never answer the others.
  LMDBIO_TRY_VOID(ranks::Agree(readers, tokens->Start()));
  return tokens;
}

ReadTokens::ReadTokens(std::unique_ptr<ranks::PeerLinks> links, const ranks::Group& readers,
                       TokenCycles cycles, std::vector<int> peers)
    : links_(std::move(links)),
      tree_(ranks::NeighboursInTree(readers, kChildrenMax)),
      peers_(std::move(peers)),
      cycles_(std::move(cycles)),
      vote_(cycles_.size() + 1, static_cast<uint64_t>(readers.size()), tree_.children.size(),
            tree_.parent ? StaggerVote::TreePosition::kBelow : StaggerVote::TreePosition::kRoot) {}

Status ReadTokens::Start() {
  try {
    server_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& failure) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot start the thread of the tokens: {}; raise ulimit -u",
                            failure.code().message()),
                failure.code().value());
  }
  return {};
}

ReadTokens::~ReadTokens() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  links_->Wake();
  if (server_.joinable()) server_.join();
}

// --- The reader's side ---

// The caller holds mutex_.
bool ReadTokens::MayTake(size_t set) const {
  if (failure_) return false;  // Await returns it
  return is_free_ || cycles_.CanTake(set);
}

bool ReadTokens::Take(size_t set) {
  {
    const std::lock_guard lock(mutex_);
    if (MayTake(set)) {
      cycles_.Hold(set);
      return true;
    }
    if (!cycles_.Want(set)) return false;
  }
  links_->Wake();  // the serving thread sends the request
  return false;
}

Status ReadTokens::Await(size_t set) {
  std::unique_lock lock(mutex_);
  if (!MayTake(set) && cycles_.Want(set)) links_->Wake();
  changed_.wait(lock, [&] { return MayTake(set) || failure_ || is_stopped_; });
  if (failure_) return lmdbio::Fail(failure_->Copy());
  return {};
}

void ReadTokens::Release() {
  {
    const std::lock_guard lock(mutex_);
    if (!cycles_.Release()) return;
  }
  links_->Wake();
}

void ReadTokens::Report(const StaggerRates& mine) {
  {
    const std::lock_guard lock(mutex_);
    vote_.AddOwn(mine);
  }
  links_->Wake();
}

std::optional<size_t> ReadTokens::choice() const {
  const std::lock_guard lock(mutex_);
  return vote_.choice();
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
  // No lock is held while the thread sends or receives. Otherwise the reader could sleep in Take
  // behind a slow connection.
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
        cycles_.OnRequest(message.set);
        break;
      case Message::kToken:
        cycles_.OnToken(message.set);
        break;
      case Message::kRates:
        vote_.AddChild(message.rates);
        break;
      case Message::kChoice:
        vote_.SetChoice(message.set);
        break;
      // The first notice of a leave is forwarded to all peers, and later ones end here. So it
      // reaches every reader, and the flood ends.
      case Message::kLeave:
        leaves = !is_free_;
        is_free_ = true;
        break;
    }
    changed_.notify_all();
  }
  if (message.kind == Message::kLeave) {
    // Without tokens, no later message of this peer matters.
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
  for (size_t set = 0; set < cycles_.size(); ++set) ActOnCycle(set);
  ActOnRates();
}

// Sends the messages of one cycle. Runs after each message and each call of the reader.
void ReadTokens::ActOnCycle(size_t set) {
  TokenMoves moves;
  {
    const std::lock_guard lock(mutex_);
    if (is_free_ || failure_) return;
    moves = cycles_.Moves(set);
  }
  if (moves.token_to) Post(*moves.token_to, {Message::kToken, set, {}});
  if (moves.request_to) Post(*moves.request_to, {Message::kWish, set, {}});
}

// Sends the complete sum up the tree, or at the root the choice down the tree.
void ReadTokens::ActOnRates() {
  std::optional<StaggerRates> sum;
  std::optional<size_t> new_choice;
  {
    const std::lock_guard lock(mutex_);
    // A choice that appears in TakeSum was made here, at the root. Other readers get theirs in
    // Heed.
    const bool was_known = vote_.choice().has_value();
    sum = vote_.TakeSum();
    if (!was_known) new_choice = vote_.choice();
  }
  if (sum) Post(*tree_.parent, {Message::kRates, 0, *sum});
  if (!new_choice) return;
  for (const int child : tree_.children) Post(child, {Message::kChoice, *new_choice, {}});
}

void ReadTokens::LeaveAll() {
  for (const int peer : peers_) Post(peer, {Message::kLeave, 0, {}});
}

// The failure floods the readers: each forwards the first that it receives, and sets failure_, so
// that the lost connections that follow are ignored.
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
