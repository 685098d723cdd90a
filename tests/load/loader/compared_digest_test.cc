// Goal: the digests of texts that ranks compare are the same in every build.
// Oracle: XXH3 of the texts, from the xxHash specification and its library.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/loader/open_decision.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

// A group of one rank that remembers the numbers that it has sent.
class ListeningGroup final : public ranks::Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& host_name() const override { return solo_->host_name(); }
  Status Barrier() override { return solo_->Barrier(); }
  Status Broadcast(int root, MutableBytes bytes) override { return solo_->Broadcast(root, bytes); }
  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    for (size_t at = 0; at + sizeof(uint64_t) <= mine.size(); at += sizeof(uint64_t)) {
      std::memcpy(&told_.emplace_back(), &mine[at], sizeof(uint64_t));
    }
    return solo_->AllGather(mine);
  }
  Result<std::unique_ptr<Group>> SplitByHost() override { return solo_->SplitByHost(); }
  Result<std::unique_ptr<Group>> Split(int color) override { return solo_->Split(color); }
  Result<std::unique_ptr<ranks::SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    return solo_->AllocateShared(size_bytes);
  }

  bool HasTold(uint64_t number) const {
    return std::find(told_.begin(), told_.end(), number) != told_.end();
  }

 private:
  std::unique_ptr<ranks::Group> solo_ = ranks::SoloGroup();
  std::vector<uint64_t> told_;
};

constexpr uint64_t kDigestOfTraining = 0xF3199DB6D7C9BDF7;
constexpr uint64_t kDigestOfAbc = 0x78AF5F94892F3950;
constexpr uint64_t kDigestOfEpoch1From0 = 0x3F1EBEACC6A8B898;

TEST_CASE("Ranks compare texts among their options by a digest that is the same in every build",
          "[loader]") {
  ListeningGroup group;
  LoaderOptions options;
  options.database_name = "training";
  options.state = "abc";
  REQUIRE(CheckSameOptions(group, options));
  CHECK(group.HasTold(kDigestOfTraining));
  CHECK(group.HasTold(kDigestOfAbc));
}

TEST_CASE("Ranks compare where they go on by a digest that is the same in every build",
          "[loader]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  test::FillInline(db);
  db.Commit();
  ListeningGroup group;
  const auto loader = test::Good(Loader::Open(group, db.data_file().string(), {}));
  REQUIRE(loader->SetEpoch(1));
  CHECK(group.HasTold(kDigestOfEpoch1From0));  // of "epoch 1 0"
}

}  // namespace
}  // namespace lmdbio::load
