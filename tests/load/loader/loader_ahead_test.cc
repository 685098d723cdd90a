// Goal: a program behind its loader, because batches are taken ahead for it, saves and moves
// its own position. The window has the values of batches that are neither mapped nor kept.
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::HeldBatch;
using load::Loader;
using load::LoaderOptions;

LoaderOptions InWindow() {
  LoaderOptions options;
  options.global_batch_size = 20;
  options.allow_map = false;
  options.keep_bytes = -1;
  options.layout_cache = "off";
  return options;
}

class AheadDatabase {
 public:
  AheadDatabase() : db_(dir_.path()) {
    FillMixed(db_);  // 400 records: 20 batches
    db_.Commit();
  }
  std::string path() const { return db_.data_file().string(); }

 private:
  TempDir dir_;
  TinyDb db_;
};

HeldBatch TakeOne(Loader& loader) {
  HeldBatch batch;
  REQUIRE(Good(loader.NextWithin(Loader::kNoLimit, batch)) == load::BatchStep::kBatch);
  return batch;
}

TEST_CASE("The state before a batch is that of a program which takes it next", "[loader]") {
  const AheadDatabase database;
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), InWindow()));
  std::vector<std::string> states;
  for (uint64_t i = 0; i < 30; ++i) {
    CHECK(loader->next_batch() == i);
    states.push_back(loader->Save());
    TakeOne(*loader);
  }
  for (uint64_t i = 0; i < 30; ++i) CHECK(loader->SaveBefore(i) == states[i]);
}

bool IsInside(MutableBytes window, Bytes value) {
  return value.empty() || (value.data() >= window.data() &&
                           value.data() + value.size() <= window.data() + window.size());
}

TEST_CASE("The window has the values, unless they are mapped or kept", "[loader]") {
  const AheadDatabase database;
  LoaderOptions options = InWindow();
  bool has_window = false;
  SECTION("read") { has_window = true; }
  SECTION("read by another rank with small slots") {
    has_window = true;
    options.memory_budget_bytes = 1 << 20;
    options.strategy = load::Strategy::kScan;
  }
  SECTION("in place") { options.allow_map = true; }
  SECTION("kept") {
    options.keep_bytes = 1 << 30;
    options.order = load::Order::kShuffle;
  }
  SECTION("liblmdb") { options.strategy = load::Strategy::kLmdb; }
  std::mutex mutex;
  size_t outside_count = 0;
  ranks::RunAsThreads({3, 3}, [&](ranks::Group& group) {
    const auto loader = Good(Loader::Open(group, database.path(), options));
    for (int i = 0; i < 45; ++i) {
      if (!Good(loader->Next())) std::terminate();
      const std::lock_guard lock(mutex);
      if (loader->window().empty() == has_window) ++outside_count;
      for (size_t r = 0; has_window && r < loader->batch().record_count(); ++r) {
        if (!IsInside(loader->window(), loader->batch().value(r))) ++outside_count;
      }
    }
  });
  CHECK(outside_count == 0);
}

TEST_CASE("A stream goes elsewhere once its batches are returned by those that hold them",
          "[loader]") {
  const AheadDatabase database;
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), InWindow()));
  std::vector<HeldBatch> held;
  for (int i = 0; i < 3; ++i) held.push_back(TakeOne(*loader));
  int left_count = 0;
  const auto leave = [&]() -> Status {
    ++left_count;
    held.clear();
    return {};
  };
  const std::string begin = loader->SaveBefore(0);
  SECTION("a state") {
    REQUIRE_FALSE(loader->Restore("nonsense", leave));
    CHECK(left_count == 0);
    REQUIRE(loader->Restore(begin, leave));
    CHECK(left_count == 1);
    CHECK(loader->next_batch() == 0);
  }
  SECTION("a state, and some stay") {
    const auto keep = []() -> Status { return {}; };
    const Status refused = loader->Restore(begin, keep);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::kInvalidArgument);
    CHECK(loader->next_batch() == 3);
  }
  SECTION("the epoch that the program is at, if not the loader") {
    for (int i = 3; i < 22; ++i) held.push_back(TakeOne(*loader));
    REQUIRE(loader->SetEpoch(1, 20, leave));
    CHECK(left_count == 0);
    CHECK(loader->next_batch() == 22);
    REQUIRE(loader->SetEpoch(1, 19, leave));
    CHECK(left_count == 1);
    CHECK(loader->next_batch() == 19);
    CHECK(TakeOne(*loader)->first_position() == 400);
  }
}

TEST_CASE("A rank that cannot leave its stream stops all ranks", "[loader]") {
  const AheadDatabase database;
  std::vector<std::string> words(2);
  std::vector<uint64_t> next(2);
  ranks::RunAsThreads({2, 2}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto loader = Good(Loader::Open(group, database.path(), InWindow()));
    if (!loader->Next()) std::terminate();
    const Status moved = loader->Restore(loader->SaveBefore(0), [&]() -> Status {
      if (rank == 0) return {};
      return Fail(ErrorCode::kInternal, "the device is gone");
    });
    words[rank] = moved ? "moved" : moved.error().message();
    next[rank] = loader->next_batch();
  });
  CHECK_THAT(words[0], ContainsSubstring("rank 1") && ContainsSubstring("the device is gone"));
  CHECK(words[1] == "the device is gone");
  CHECK(next == std::vector<uint64_t>{1, 1});
}

}  // namespace
}  // namespace lmdbio::test
