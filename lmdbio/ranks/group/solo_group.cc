#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::ranks {
namespace {

class OneRankGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& host_name() const override { return host_name_; }

  Status Barrier() override { return {}; }

  Status Broadcast(int root, MutableBytes /*bytes*/) override {
    LMDBIO_CHECK(root == 0);
    return {};
  }

  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    return std::vector<std::byte>(mine.begin(), mine.end());
  }

  Result<std::unique_ptr<Group>> SplitByHost() override { return SoloGroup(); }
  Result<std::unique_ptr<Group>> Split(int /*color*/) override { return SoloGroup(); }

  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    return AllocateAnonymous(size_bytes);
  }

 private:
  std::string host_name_;
};

}  // namespace

std::unique_ptr<Group> SoloGroup() { return std::make_unique<OneRankGroup>(); }

}  // namespace lmdbio::ranks
