#include "tests/campaign/random_options.h"

#include <cstdint>
#include <initializer_list>

#include "lmdbio/file/blocks/block_engine.h"

namespace lmdbio::test {
namespace {

using load::LoaderOptions;

template <typename T>
T OneOf(Random& random, std::initializer_list<T> choices) {
  return *(choices.begin() + random.Below(choices.size()));
}

// The default, three times of four.
template <typename T>
T Seldom(Random& random, T usual, std::initializer_list<T> others) {
  return random.Below(4) > 0 ? usual : OneOf(random, others);
}

void DrawOrder(Random& random, LoaderOptions& options) {
  using load::Order;
  using load::Share;
  using load::Shuffle;
  using load::Tail;
  options.order = OneOf(random, {Order::kSequential, Order::kChunked, Order::kShuffle});
  options.shuffle = OneOf(random, {Shuffle::kGlobal, Shuffle::kBlock});
  options.tail = OneOf(random, {Tail::kWrap, Tail::kShort, Tail::kDrop});
  options.share = OneOf(random, {Share::kBlock, Share::kRoundRobin, Share::kFill});
  options.seed = random.Below(100);
  options.block_records = Seldom<uint64_t>(random, 0, {1, 3, 64, 1'000, 1'000'000});
  options.group_batches = Seldom<uint64_t>(random, 0, {1, 2, 17, 1'024});
  options.reuse = Seldom<uint64_t>(random, 1, {2, 5, 1'000});
  options.reuse_among = Seldom(random, load::ReuseAmong::kRank, {load::ReuseAmong::kHost});
  options.epoch = Seldom<uint64_t>(random, 0, {1, 1'000'000});
}

void DrawMemory(Random& random, LoaderOptions& options) {
  constexpr uint64_t kMiB = 1 << 20;
  options.memory_budget_bytes =
      Seldom<uint64_t>(random, 256 * kMiB, {kMiB, 3 * kMiB, 32 * kMiB, 1'024 * kMiB});
  options.keep_bytes = Seldom<int64_t>(random, 0, {-1, 1, int64_t{1} << 33});
  options.prefetch_batches = Seldom<uint64_t>(random, 0, {1, 2, 1'000});
  options.allow_map = Seldom(random, true, {false});
  options.huge_pages = Seldom(random, load::HugePageUse::kAuto, {load::HugePageUse::kOff});
}

void DrawReading(Random& random, LoaderOptions& options) {
  using file::CachePolicy;
  using file::EngineKind;
  using load::JointWalkUse;
  using load::Strategy;
  options.strategy = OneOf(
      random, {Strategy::kAuto, Strategy::kAuto, Strategy::kAuto, Strategy::kScan, Strategy::kLmdb,
               Strategy::kLmm, Strategy::kLmmDm, Strategy::kLmmDio, Strategy::kLmmDioProv,
               Strategy::kLmmDioProvCoal, Strategy::kLmmDioProvCoalStag});
  options.readers_per_host = Seldom<uint32_t>(random, 1, {2, 3});
  options.queue_depth = Seldom<uint32_t>(random, 32, {1, 128});
  options.block_bytes = Seldom<uint64_t>(random, 1 << 20, {4 << 10, 64 << 10, 16 << 20});
  if (random.Below(4) == 0) {
    options.engine = OneOf(random, {EngineKind::kMmap, EngineKind::kPread, EngineKind::kUring});
  }
  if (random.Below(4) == 0) {
    options.cache =
        OneOf(random, {CachePolicy::kBuffered, CachePolicy::kDirect, CachePolicy::kMixed});
  }
  options.stagger = Seldom<uint32_t>(random, 0, {1, 2});
  options.joint_walk = Seldom(random, JointWalkUse::kAuto, {JointWalkUse::kOn, JointWalkUse::kOff});
  options.exchange =
      Seldom(random, load::ExchangeUse::kAuto, {load::ExchangeUse::kOn, load::ExchangeUse::kOff});
}

}  // namespace

LoaderOptions RandomOptions(Random& random) {
  LoaderOptions options;
  options.layout_cache = "off";
  options.on_error = Seldom(random, load::OnError::kRaise, {load::OnError::kSkip});
  options.snapshot = Seldom(random, load::SnapshotMode::kImmutable,
                            {load::SnapshotMode::kOptimistic, load::SnapshotMode::kPinned});
  options.global_batch_size = OneOf<uint64_t>(random, {1, 2, 7, 64, 157, 1'000, 10'000, 1'000'000});
  options.max_batches = Seldom<uint64_t>(random, 0, {1, 2, 1'000});
  options.num_shards = Seldom(random, 1, {2, 3, 1'000});
  options.shard_id = static_cast<int>(random.Below(static_cast<uint64_t>(options.num_shards)));
  DrawOrder(random, options);
  DrawMemory(random, options);
  DrawReading(random, options);
  return options;
}

}  // namespace lmdbio::test
