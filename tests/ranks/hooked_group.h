// tests/ranks/hooked_group.h - a group that lets a test refuse or inspect its shared memory, fail
// its barriers, forge what it gathers, and name a rank that has ended.
#ifndef LMDBIO_TESTS_RANKS_HOOKED_GROUP_H_
#define LMDBIO_TESTS_RANKS_HOOKED_GROUP_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// Memory with a note, as if the group could not use its preferred kind.
class NotedMemory final : public SharedMemory {
 public:
  NotedMemory(std::unique_ptr<SharedMemory> memory, std::string note)
      : memory_(std::move(memory)), note_(std::move(note)) {}
  MutableBytes bytes() const override { return memory_->bytes(); }
  void Abandon() override { memory_->Abandon(); }
  std::string_view note() const override { return note_; }

 private:
  std::unique_ptr<SharedMemory> memory_;
  std::string note_;
};

// Its parts have the same hook.
class HookedGroup final : public Group {
 public:
  // In place of host.AllocateShared(size_bytes).
  using Hook =
      std::function<Result<std::unique_ptr<SharedMemory>>(Group& host, uint64_t size_bytes)>;

  // group  must outlive this
  HookedGroup(Group& group, Hook hook) : group_(&group), hook_(std::move(hook)) {}

  // In place of CheckRanksWithin.
  void set_ended(std::function<Status()> ended) { ended_ = std::move(ended); }

  // In place of Barrier.
  void set_barrier(std::function<Status()> barrier) { barrier_ = std::move(barrier); }

  // In place of AllGather.
  void set_gather(std::function<std::vector<std::byte>(Bytes mine)> gather) {
    gather_ = std::move(gather);
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& host_name() const override { return group_->host_name(); }
  Status Barrier() override { return barrier_ ? barrier_() : group_->Barrier(); }
  Status Broadcast(int root, MutableBytes bytes) override { return group_->Broadcast(root, bytes); }
  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    if (gather_) return gather_(mine);
    return group_->AllGather(mine);
  }
  Result<std::unique_ptr<Group>> SplitByHost() override { return Hooked(group_->SplitByHost()); }
  Result<std::unique_ptr<Group>> Split(int color) override { return Hooked(group_->Split(color)); }
  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    return hook_(*group_, size_bytes);
  }
  Status CheckRanksWithin(std::chrono::milliseconds limit) override {
    return ended_ ? ended_() : group_->CheckRanksWithin(limit);
  }

 private:
  Result<std::unique_ptr<Group>> Hooked(Result<std::unique_ptr<Group>> part) {
    LMDBIO_TRY(std::unique_ptr<Group> own, std::move(part));
    auto hooked = std::make_unique<HookedGroup>(*own, hook_);
    hooked->own_ = std::move(own);
    hooked->barrier_ = barrier_;
    return hooked;
  }

  std::unique_ptr<Group> own_;  // null: the group is borrowed
  Group* group_;
  Hook hook_;
  std::function<Status()> ended_;
  std::function<Status()> barrier_;
  std::function<std::vector<std::byte>(Bytes mine)> gather_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_TESTS_RANKS_HOOKED_GROUP_H_
