// An exchange of bytes makes two calls: first of lengths, then of bytes. The second call can begin
// only when the first is over, because the lengths determine its arguments.
#include "lmdbio/sync/over_mpi/mpi_transport.h"

#include <array>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/ranks/mpi/mpi_thread.h"

namespace lmdbio::sync {

namespace {

// The messages of coordinators are small. A larger one is an error.
constexpr uint64_t kMessageBytesMax = uint64_t{1} << 30;

// A duplicate or a part of a communicator. The destructor frees it if MPI still runs.
class OwnCommunicator {
 public:
  OwnCommunicator() = default;
  ~OwnCommunicator() {
    if (handle_ != MPI_COMM_NULL && ranks::IsMpiRunning()) MPI_Comm_free(&handle_);
  }
  OwnCommunicator(const OwnCommunicator&) = delete;
  OwnCommunicator& operator=(const OwnCommunicator&) = delete;

  MPI_Comm* place() { return &handle_; }
  void Abandon() { handle_ = MPI_COMM_NULL; }
  MPI_Comm get() const { return handle_; }
  int rank() const {
    int rank = 0;
    MPI_Comm_rank(handle_, &rank);
    return rank;
  }
  int size() const {
    int size = 0;
    MPI_Comm_size(handle_, &size);
    return size;
  }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

// Memory of this object that MPI reads and writes. It is kept if an exchange was given up, because
// MPI continues the exchange.
struct HeldExchange {
  Exchange exchange;
  std::vector<int> lengths;  // kGather: of each rank; kBroadcast: [1]
  std::vector<int> places;
  int own_length = 0;
  std::vector<uint64_t> words;
  std::vector<std::byte> bytes;
};

class CommunicatorTransport final : public Transport {
 public:
  CommunicatorTransport() = default;
  ~CommunicatorTransport() override;
  // Collective.
  Status Make(MPI_Comm communicator, uint32_t tree_arity);

  const Ranks& ranks() const override { return ranks_; }
  Status Start(Exchange exchange) override;
  Result<bool> Test() override;
  Result<bool> Wait(std::chrono::microseconds limit) override;
  Reply TakeReply() override { return std::move(reply_); }
  void Sleep(std::chrono::microseconds limit, WakeOn wake_on) override;
  void Wake() override;
  bool hears_peers() const override { return false; }
  bool blocks_in_wait() const override { return true; }

 private:
  enum class ExchangePhase { kIdle, kStarted, kLengths, kBytes, kOver };
  Status SplitTree(int tree_arity);
  MPI_Comm CommunicatorOf(ExchangeScope scope) const;
  Status Begin();
  Status BeginBytes();
  void Finish();

  OwnCommunicator all_, host_, roots_;
  // At roots: [0] this root and its children in the tree of hosts, [1] its parent and the children
  // of that.
  std::array<OwnCommunicator, 2> families_;
  Ranks ranks_;
  Reply reply_;
  ExchangePhase phase_ = ExchangePhase::kIdle;
  MPI_Comm current_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::unique_ptr<HeldExchange> held_ = std::make_unique<HeldExchange>();

  // For Sleep and Wake alone. One thread makes all exchanges, so they need no lock.
  std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
};

// An exchange that was given up is still in progress in MPI. Its memory and communicators stay.
CommunicatorTransport::~CommunicatorTransport() {
  if (request_ == MPI_REQUEST_NULL) return;
  KeepForever(std::move(held_));
  for (OwnCommunicator* const one : {&all_, &host_, &roots_, &families_[0], &families_[1]}) {
    one->Abandon();
  }
}

// The roots keep the order of their ranks, so the rank among them numbers the hosts as RankTopology
// expects: by the first rank of each host.
Status CommunicatorTransport::Make(MPI_Comm communicator, uint32_t tree_arity) {
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Comm_dup(communicator, all_.place()), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(all_.get(), MPI_ERRORS_RETURN);
  LMDBIO_TRY_VOID(ranks::MpiStatus(
      MPI_Comm_split_type(all_.get(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, host_.place()),
      "MPI_Comm_split_type"));
  const bool is_root = host_.rank() == 0;
  LMDBIO_TRY_VOID(ranks::MpiStatus(
      MPI_Comm_split(all_.get(), is_root ? 0 : MPI_UNDEFINED, all_.rank(), roots_.place()),
      "MPI_Comm_split"));
  ranks_.rank = all_.rank();
  ranks_.size = all_.size();
  ranks_.tree_arity = LimitedArity(tree_arity, ranks_.size);
  if (is_root) LMDBIO_TRY_VOID(SplitTree(ranks_.tree_arity));
  int host_index = is_root ? roots_.rank() : 0;
  LMDBIO_TRY_VOID(
      ranks::MpiStatus(MPI_Bcast(&host_index, 1, MPI_INT, 0, host_.get()), "MPI_Bcast"));
  ranks_.host_of.resize(static_cast<size_t>(ranks_.size));
  return ranks::MpiStatus(
      MPI_Allgather(&host_index, 1, MPI_INT, ranks_.host_of.data(), 1, MPI_INT, all_.get()),
      "MPI_Allgather");
}

// Each root belongs to two families: it is the parent of one and a child of the other. The parents
// of one are on an even level of the tree, those of the other on an odd one. So two splits suffice.
// Collective over the roots.
Status CommunicatorTransport::SplitTree(int tree_arity) {
  const int host = roots_.rank();
  int level = 0;
  for (int above = host; above > 0; above = ParentHost(above, tree_arity)) ++level;
  for (int parity = 0; parity < 2; ++parity) {
    const bool is_parent = level % 2 == parity;
    // Rank 0 has no parent, so it is alone in the second split.
    const int family = is_parent || host == 0 ? host : ParentHost(host, tree_arity);
    LMDBIO_TRY_VOID(
        ranks::MpiStatus(MPI_Comm_split(roots_.get(), family, host,
                                        families_[is_parent ? size_t{0} : size_t{1}].place()),
                         "MPI_Comm_split"));
  }
  return {};
}

MPI_Comm CommunicatorTransport::CommunicatorOf(ExchangeScope scope) const {
  switch (scope) {
    case ExchangeScope::kAll:
      return all_.get();
    case ExchangeScope::kHost:
      return host_.get();
    case ExchangeScope::kChildren:
      return families_[0].get();
    case ExchangeScope::kParent:
      return families_[1].get();
  }
  LMDBIO_CHECK(false);
}

// Makes no call yet: Wait makes blocking calls, Test nonblocking ones.
Status CommunicatorTransport::Start(Exchange exchange) {
  LMDBIO_CHECK(phase_ == ExchangePhase::kIdle || phase_ == ExchangePhase::kOver);
  LMDBIO_CHECK(exchange.bytes.size() <= kMessageBytesMax);
  held_->exchange = std::move(exchange);
  reply_ = {};
  current_ = CommunicatorOf(held_->exchange.scope);
  LMDBIO_CHECK(current_ != MPI_COMM_NULL);  // only roots take part in an exchange along the tree
  MPI_Comm_rank(current_, &rank_);
  MPI_Comm_size(current_, &size_);
  held_->own_length = static_cast<int>(held_->exchange.bytes.size());
  // The first rank of a gather needs the length of each rank. In all other cases one length
  // suffices.
  held_->lengths.assign(
      held_->exchange.kind == ExchangeKind::kGather && rank_ == 0 ? static_cast<size_t>(size_) : 1,
      held_->own_length);
  held_->words.resize(held_->exchange.words.size());
  phase_ = ExchangePhase::kStarted;
  return {};
}

// Begins the first call.
Status CommunicatorTransport::Begin() {
  phase_ = ExchangePhase::kLengths;
  // Words are as many on every rank, so an intersection needs no lengths.
  if (held_->exchange.kind == ExchangeKind::kIntersect) {
    phase_ = ExchangePhase::kBytes;
    return ranks::MpiStatus(MPI_Iallreduce(held_->exchange.words.data(), held_->words.data(),
                                           static_cast<int>(held_->words.size()), MPI_UINT64_T,
                                           MPI_BAND, current_, &request_),
                            "MPI_Iallreduce");
  }
  if (held_->exchange.kind == ExchangeKind::kGather) {
    return ranks::MpiStatus(MPI_Igather(&held_->own_length, 1, MPI_INT, held_->lengths.data(), 1,
                                        MPI_INT, 0, current_, &request_),
                            "MPI_Igather");
  }
  return ranks::MpiStatus(MPI_Ibcast(held_->lengths.data(), 1, MPI_INT, 0, current_, &request_),
                          "MPI_Ibcast");
}

// Begins the second call. Requires: the lengths are known
Status CommunicatorTransport::BeginBytes() {
  phase_ = ExchangePhase::kBytes;
  if (held_->exchange.kind == ExchangeKind::kBroadcast) {
    held_->bytes = std::move(held_->exchange.bytes);
    held_->bytes.resize(static_cast<size_t>(held_->lengths[0]));
    return ranks::MpiStatus(
        MPI_Ibcast(held_->bytes.data(), held_->lengths[0], MPI_BYTE, 0, current_, &request_),
        "MPI_Ibcast");
  }
  // At rank 0 of the communicator the lengths are those of all ranks, elsewhere the own one.
  uint64_t total = 0;
  held_->places.clear();
  for (const int length : held_->lengths) {
    held_->places.push_back(static_cast<int>(total));
    total += static_cast<uint64_t>(length);
  }
  if (total > kMessageBytesMax) {
    return Fail(ErrorCode::kResourceExhausted,
                "the control messages of all ranks together exceed 1 GiB");
  }
  held_->bytes.resize(rank_ == 0 ? total : 0);
  return ranks::MpiStatus(
      MPI_Igatherv(held_->exchange.bytes.data(), held_->own_length, MPI_BYTE, held_->bytes.data(),
                   held_->lengths.data(), held_->places.data(), MPI_BYTE, 0, current_, &request_),
      "MPI_Igatherv");
}

void CommunicatorTransport::Finish() {
  phase_ = ExchangePhase::kOver;
  if (held_->exchange.kind == ExchangeKind::kIntersect) {
    reply_.words = held_->words;
  } else if (held_->exchange.kind == ExchangeKind::kBroadcast) {
    reply_.bytes = std::move(held_->bytes);
  } else if (rank_ == 0) {
    for (size_t i = 0; i < held_->lengths.size(); ++i) {
      const auto begin = held_->bytes.begin() + held_->places[i];
      reply_.gathered.emplace_back(begin, begin + held_->lengths[i]);
    }
  }
}

// Begins the next call as soon as MPI has completed the last one: first the lengths, then the
// bytes.
Result<bool> CommunicatorTransport::Test() {
  if (phase_ == ExchangePhase::kStarted) LMDBIO_TRY_VOID(Begin());
  while (phase_ != ExchangePhase::kOver) {
    int is_done = 0;
    LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Test(&request_, &is_done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (is_done == 0) return false;
    if (phase_ == ExchangePhase::kBytes) {
      Finish();
    } else {
      LMDBIO_TRY_VOID(BeginBytes());
    }
  }
  return true;
}

// Blocks in MPI until the exchange is over, as the baseline of the papers does: in MPI_Allreduce
// for an intersection, otherwise in MPI_Wait. MPI spins or yields meanwhile. The limit has no
// effect.
Result<bool> CommunicatorTransport::Wait(std::chrono::microseconds /*limit*/) {
  if (phase_ == ExchangePhase::kStarted && held_->exchange.kind == ExchangeKind::kIntersect) {
    LMDBIO_TRY_VOID(ranks::MpiStatus(
        MPI_Allreduce(held_->exchange.words.data(), held_->words.data(),
                      static_cast<int>(held_->words.size()), MPI_UINT64_T, MPI_BAND, current_),
        "MPI_Allreduce"));
    Finish();
    return true;
  }
  while (true) {
    LMDBIO_TRY(const bool is_over, Test());
    if (is_over) return true;
    LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Wait(&request_, MPI_STATUS_IGNORE), "MPI_Wait"));
  }
}

// MPI reports no arrival of a peer, so `wake_on` has no effect. A Wake before the Sleep is
// remembered.
void CommunicatorTransport::Sleep(std::chrono::microseconds limit, WakeOn /*wake_on*/) {
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, limit, [this] { return is_woken_; });
  is_woken_ = false;
}

void CommunicatorTransport::Wake() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  // Without the lock, so that the woken thread does not wait for it.
  woken_.notify_one();
}

}  // namespace

Result<std::unique_ptr<Transport>> MpiTransport(MPI_Comm communicator, uint32_t tree_arity) {
  // The helper thread calls MPI while the program may call it, too.
  LMDBIO_TRY_VOID(ranks::CheckMpiThread(ranks::MpiCaller::kAnyThread));
  auto transport = std::make_unique<CommunicatorTransport>();
  LMDBIO_TRY_VOID(transport->Make(communicator, tree_arity));
  return transport;
}

}  // namespace lmdbio::sync
