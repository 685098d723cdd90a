// Every collective call has four steps: each rank stores its contribution in a table, all ranks
// meet, each rank reads the contributions of the others, all ranks meet again. The two meetings
// order all accesses to the table, so its entries need no lock.
#include "lmdbio/ranks/group/thread_group.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/same_size.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::ranks {
namespace {

struct RankContribution {
  std::string_view call;  // the same on all ranks, as root and the size of bytes
  int root = 0;
  Bytes bytes = {};
  int host = 0;
  std::shared_ptr<void> gift = nullptr;  // created by one rank, and kept by the others too
};

class ContributionTable {
 public:
  explicit ContributionTable(int rank_count) : places_(static_cast<size_t>(rank_count)) {}

  int rank_count() const { return static_cast<int>(places_.size()); }
  RankContribution& at(int rank) { return places_[static_cast<size_t>(rank)]; }

  // Returns when every rank has called it.
  void Meet() {
    std::unique_lock lock(mutex_);
    if (++arrived_count_ == rank_count()) {
      arrived_count_ = 0;
      ++meeting_count_;
      all_arrived_.notify_all();
      return;
    }
    all_arrived_.wait(lock, [this, meeting = meeting_count_] { return meeting_count_ != meeting; });
  }

 private:
  std::vector<RankContribution> places_;
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  int arrived_count_ = 0;
  uint64_t meeting_count_ = 0;
};

// The handle of one rank on memory that all ranks keep alive.
class JointMemory final : public SharedMemory {
 public:
  explicit JointMemory(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  MutableBytes bytes() const override { return memory_->bytes(); }
  void Abandon() override {}  // the release is not collective

 private:
  std::shared_ptr<SharedMemory> memory_;
};

class ThreadGroup final : public Group {
 public:
  // Collective over the ranks of `table`.
  ThreadGroup(std::shared_ptr<ContributionTable> table, int rank, int host)
      : table_(std::move(table)), rank_(rank), host_(host) {
    LayDown({.call = "ThreadGroup"});
    bool spans_hosts = false;
    for (int other = 0; other < size(); ++other) {
      spans_hosts = spans_hosts || table_->at(other).host != host_;
    }
    if (spans_hosts) host_name_ = fmt::format("host-{}", host_);
    table_->Meet();
  }

  int rank() const override { return rank_; }
  int size() const override { return table_->rank_count(); }
  const std::string& host_name() const override { return host_name_; }

  Status Barrier() override;
  Status Broadcast(int root, MutableBytes bytes) override;
  Result<std::vector<std::byte>> AllGather(Bytes mine) override;
  Result<std::unique_ptr<Group>> SplitByHost() override { return Split(host_); }
  Result<std::unique_ptr<Group>> Split(int color) override;
  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override;

 private:
  void LayDown(RankContribution mine);
  std::shared_ptr<void> TakeFrom(int giver);

  std::shared_ptr<ContributionTable> table_;
  int rank_;
  int host_;
  std::string host_name_;
};

void ThreadGroup::LayDown(RankContribution mine) {
  mine.host = host_;
  table_->at(rank_) = std::move(mine);
  table_->Meet();
  const RankContribution& first = table_->at(0);
  const RankContribution& own = table_->at(rank_);
  LMDBIO_CHECK(own.call == first.call);  // ranks made different collective calls
  LMDBIO_CHECK(own.root == first.root);
  LMDBIO_CHECK(own.bytes.size() == first.bytes.size());
}

// Requires: rank `giver` has put its gift on its place since LayDown
std::shared_ptr<void> ThreadGroup::TakeFrom(int giver) {
  table_->Meet();
  std::shared_ptr<void> gift = table_->at(giver).gift;
  table_->Meet();
  table_->at(rank_).gift.reset();
  return gift;
}

Status ThreadGroup::Barrier() {
  LayDown({.call = "Barrier"});
  table_->Meet();
  return {};
}

Status ThreadGroup::Broadcast(int root, MutableBytes bytes) {
  LMDBIO_CHECK(root >= 0 && root < size());
  LayDown({.call = "Broadcast", .root = root, .bytes = bytes});
  if (rank_ != root && !bytes.empty()) {
    std::memcpy(bytes.data(), table_->at(root).bytes.data(), bytes.size());
  }
  table_->Meet();
  return {};
}

Result<std::vector<std::byte>> ThreadGroup::AllGather(Bytes mine) {
  LayDown({.call = "AllGather", .bytes = mine});
  std::vector<std::byte> all;
  for (int rank = 0; rank < size(); ++rank) {
    const Bytes theirs = table_->at(rank).bytes;
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  table_->Meet();
  return all;
}

Result<std::unique_ptr<Group>> ThreadGroup::Split(int color) {
  LayDown({.call = "Split", .bytes = std::as_bytes(std::span(&color, 1))});
  int lowest_rank = size();
  int part_rank = 0;
  int part_size = 0;
  for (int rank = size() - 1; rank >= 0; --rank) {
    int their_color = 0;
    std::memcpy(&their_color, table_->at(rank).bytes.data(), sizeof(their_color));
    if (their_color != color) continue;
    lowest_rank = rank;
    part_rank += rank < rank_ ? 1 : 0;
    ++part_size;
  }
  if (rank_ == lowest_rank) table_->at(rank_).gift = std::make_shared<ContributionTable>(part_size);
  return std::make_unique<ThreadGroup>(
      std::static_pointer_cast<ContributionTable>(TakeFrom(lowest_rank)), part_rank, host_);
}

Result<std::unique_ptr<SharedMemory>> ThreadGroup::AllocateShared(uint64_t size_bytes) {
  LayDown({.call = "AllocateShared", .bytes = std::as_bytes(std::span(&size_bytes, 1))});
  std::vector<uint64_t> asked_bytes;
  bool is_one_host = true;
  for (int rank = 0; rank < size(); ++rank) {
    uint64_t their_bytes = 0;
    std::memcpy(&their_bytes, table_->at(rank).bytes.data(), sizeof(their_bytes));
    asked_bytes.push_back(their_bytes);
    is_one_host = is_one_host && table_->at(rank).host == table_->at(0).host;
  }
  using Allocation = Result<std::shared_ptr<SharedMemory>>;
  if (rank_ == 0) table_->at(0).gift = std::make_shared<Allocation>(AllocateAnonymous(size_bytes));
  const auto allocation = std::static_pointer_cast<Allocation>(TakeFrom(0));
  if (!is_one_host) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "shared memory was requested by ranks of several hosts: split the group by host first");
  }
  LMDBIO_TRY_VOID(CheckSameSize(asked_bytes));
  if (!*allocation) return Fail(allocation->error().Copy());
  return std::make_unique<JointMemory>(**allocation);
}

}  // namespace

void RunAsThreads(ThreadRanks ranks, const std::function<void(Group& group)>& body) {
  LMDBIO_CHECK(ranks.rank_count > 0 && ranks.ranks_per_host > 0);
  const auto table = std::make_shared<ContributionTable>(ranks.rank_count);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks.rank_count));
  for (int rank = 0; rank < ranks.rank_count; ++rank) {
    threads.emplace_back([&table, &body, rank, host = rank / ranks.ranks_per_host] {
      ThreadGroup group(table, rank, host);
      body(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lmdbio::ranks
