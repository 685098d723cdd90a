#include "lmdbio/sync/over_mpi/mpi_wire.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/mpi/mpi_waiter.h"

namespace lmdbio::sync {
namespace {

constexpr int kWireTag = 1;

using MessageRequests = std::vector<MPI_Request>;  // of the MPI messages of one message

class MpiMessageWire final : public Wire {
 public:
  // Takes ownership of the communicator.
  MpiMessageWire(MPI_Comm communicator, ranks::Health& health, const MpiWireOptions& options)
      : communicator_(communicator), options_(options), waiter_(health) {
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    out_.resize(static_cast<size_t>(size_));
    in_.resize(static_cast<size_t>(size_));
  }
  ~MpiMessageWire() override;
  MpiMessageWire(const MpiMessageWire&) = delete;
  MpiMessageWire& operator=(const MpiMessageWire&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status StartSend(int to, Bytes bytes) override;
  Status StartReceive(int from, MutableBytes bytes) override;
  Status AwaitSend(int to) override { return Await(At(out_, to)); }
  Status AwaitReceive(int from) override { return Await(At(in_, from)); }
  Result<bool> IsSent(int to) override { return IsDone(At(out_, to)); }
  Result<bool> IsReceived(int from) override { return IsDone(At(in_, from)); }
  void Stop(const Error& why) override { waiter_.Stop(why); }
  bool writes_after_failure() const override { return HasAny(in_) || HasAny(out_); }

 private:
  using Lanes = std::vector<std::deque<MessageRequests>>;  // [ranks] messages that were not awaited
  std::deque<MessageRequests>& At(Lanes& lanes, int rank) {
    LMDBIO_CHECK(rank >= 0 && rank < size_ && rank != rank_);
    return lanes[static_cast<size_t>(rank)];
  }
  Status Await(std::deque<MessageRequests>& lane);
  Result<bool> IsDone(std::deque<MessageRequests>& lane);
  // Begins an MPI message for each part of at most piece_bytes_max bytes.
  template <typename Begin>
  Status StartAll(std::deque<MessageRequests>& lane, uint64_t bytes, const char* call,
                  const Begin& begin);
  static void Abandon(Lanes& lanes);
  static bool HasAny(const Lanes& lanes) {
    return std::ranges::any_of(lanes, [](const auto& lane) { return !lane.empty(); });
  }

  MPI_Comm communicator_;
  const MpiWireOptions options_;
  int rank_ = 0;
  int size_ = 0;
  ranks::MpiWaiter waiter_;
  Lanes out_;
  Lanes in_;
};

// Only messages of failed ranks can still be in flight. MPI may complete a receive in spite of the
// cancellation, so its destination must stay valid.
void MpiMessageWire::Abandon(Lanes& lanes) {
  for (auto& lane : lanes) {
    for (MessageRequests& piece : lane) {
      for (MPI_Request& request : piece) {
        if (request == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
    }
  }
}

MpiMessageWire::~MpiMessageWire() {
  // After MPI_Finalize no call of MPI is allowed.
  if (!ranks::IsMpiRunning()) return;
  // MPI still uses the communicator of messages that were given up.
  const bool is_in_use = writes_after_failure();
  Abandon(in_);
  Abandon(out_);
  if (!is_in_use) MPI_Comm_free(&communicator_);
}

// MPI keeps the order of messages between two ranks, so the parts of a message need no numbers. A
// message without bytes has no part, and its wait ends at once.
template <typename Begin>
Status MpiMessageWire::StartAll(std::deque<MessageRequests>& lane, uint64_t bytes, const char* call,
                                const Begin& begin) {
  LMDBIO_TRY_VOID(waiter_.CheckStopped());
  // The lane holds the message before its parts begin. So the destructor also finds the parts that
  // began before a failure.
  MessageRequests& piece = lane.emplace_back();
  for (uint64_t at = 0; at < bytes; at += options_.piece_bytes_max) {
    const int count = static_cast<int>(std::min(options_.piece_bytes_max, bytes - at));
    LMDBIO_TRY_VOID(
        ranks::MpiStatus(begin(at, count, &piece.emplace_back(MPI_REQUEST_NULL)), call));
  }
  return {};
}

Status MpiMessageWire::StartSend(int to, Bytes bytes) {
  return StartAll(
      At(out_, to), bytes.size(), "MPI_Isend", [&](uint64_t at, int count, MPI_Request* request) {
        return MPI_Isend(bytes.data() + at, count, MPI_BYTE, to, kWireTag, communicator_, request);
      });
}

Status MpiMessageWire::StartReceive(int from, MutableBytes bytes) {
  return StartAll(At(in_, from), bytes.size(), "MPI_Irecv",
                  [&](uint64_t at, int count, MPI_Request* request) {
                    return MPI_Irecv(bytes.data() + at, count, MPI_BYTE, from, kWireTag,
                                     communicator_, request);
                  });
}

// Waits for the oldest message of the lane. MPI progresses with the messages of all lanes in each
// call of MPI_Test, so two ranks that send to each other do not block each other.
Status MpiMessageWire::Await(std::deque<MessageRequests>& lane) {
  LMDBIO_TRY_VOID(waiter_.CheckStopped());
  LMDBIO_CHECK(!lane.empty());
  for (MPI_Request& request : lane.front())
    LMDBIO_TRY_VOID(waiter_.Await(request, ranks::MpiWaiter::kMessageYield));
  lane.pop_front();
  return {};
}

Result<bool> MpiMessageWire::IsDone(std::deque<MessageRequests>& lane) {
  LMDBIO_TRY_VOID(waiter_.CheckStopped());
  LMDBIO_CHECK(!lane.empty());
  for (MPI_Request& request : lane.front()) {
    LMDBIO_TRY(const bool is_done, waiter_.IsDone(request));
    if (!is_done) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Wire>> MpiWire(MPI_Comm communicator, ranks::Health& health,
                                      const MpiWireOptions& options) {
  LMDBIO_CHECK(options.piece_bytes_max > 0 && options.piece_bytes_max <= ranks::kPieceBytesMax);
  // On a duplicate, messages of the program and of lmdbio cannot match each other.
  MPI_Comm duplicate = MPI_COMM_NULL;
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Comm_dup(communicator, &duplicate), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);
  return std::make_unique<MpiMessageWire>(duplicate, health, options);
}

}  // namespace lmdbio::sync
