// bench/device_jobs/memory_wire.h - a wire between threads of one process: the receiver copies a
// message once.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_MEMORY_WIRE_H_
#define LMDBIO_BENCH_DEVICE_JOBS_MEMORY_WIRE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/collective/wire.h"

namespace lmdbio::figures {

// Shared by the ranks of a wire.
class MemoryExchange {
 public:
  explicit MemoryExchange(int rank_count)
      : size(rank_count), lanes(static_cast<size_t>(rank_count * rank_count)) {}

  // Messages from one rank to another, and how many were taken.
  struct Lane {
    std::deque<Bytes> messages;
    uint64_t taken = 0;
  };
  Lane& LaneOf(int from, int to) { return lanes[static_cast<size_t>(from * size + to)]; }

  const int size;
  std::mutex mutex;  // of those below
  std::condition_variable changed;
  std::vector<Lane> lanes;
  std::optional<Error> end;
};

class MemoryWire final : public sync::Wire {
 public:
  // exchange  the same of all ranks
  MemoryWire(std::shared_ptr<MemoryExchange> exchange, int rank)
      : exchange_(std::move(exchange)),
        rank_(rank),
        sends_(static_cast<size_t>(exchange_->size)),
        receives_(static_cast<size_t>(exchange_->size)) {}

  int rank() const override { return rank_; }
  int size() const override { return exchange_->size; }
  Status StartSend(int to, Bytes bytes) override;
  Status StartReceive(int from, MutableBytes bytes) override;
  Status AwaitSend(int to) override;
  Status AwaitReceive(int from) override;
  Result<bool> IsSent(int to) override;
  Result<bool> IsReceived(int from) override;
  void Stop(const Error& why) override;

 private:
  struct Receives {
    std::deque<MutableBytes> places;  // of messages that have not come
    uint64_t received = 0;
    uint64_t awaited = 0;
  };

  // Copies all messages that are there.
  void Progress(std::unique_lock<std::mutex>& lock);
  bool HasArrived() const;
  // Errors: kPeerFailed  a rank has called Stop
  Result<bool> Look(const std::function<bool()>& is_done);
  Status Await(const std::function<bool()>& is_done);
  bool IsTaken(int to) const;

  const std::shared_ptr<MemoryExchange> exchange_;
  const int rank_;
  std::vector<uint64_t> sends_;  // that were awaited, by rank
  std::vector<Receives> receives_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_MEMORY_WIRE_H_
