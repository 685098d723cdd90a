// Question: how many positions of a shuffled sequence are computed in a second, in order and
// individually, and does the rate depend on the number of records?
//
// State: no storage and no database; an order is arithmetic. The baseline draws as many random
// numbers, which would repeat some records and omit others.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "lmdbio/load/order/epoch_walk.h"
#include "lmdbio/load/order/schedule.h"

namespace lmdbio::bench {
namespace {

using load::EpochWalk;
using load::Schedule;
using load::Shuffle;
using load::WalkOptions;

constexpr uint64_t kBlockRecords = 256;  // about 1 MiB of records of 3,080 B
constexpr uint64_t kBatchSize = 256;
constexpr uint64_t kGroupBatches = 32;
constexpr uint64_t kFillRecords = 256;  // records computed in one call

// `count` indices of a walk, from the middle on and wrapping at the end.
template <typename Visitor>
void VisitPlaces(uint64_t record_count, uint64_t count, Visitor visit) {
  uint64_t place = record_count / 2;
  for (uint64_t i = 0; i < count; ++i) {
    visit(place);
    if (++place == record_count) place = 0;
  }
}

// Blocks of indices end at the end of the walk, because Fill does not wrap.
uint64_t FillAll(const EpochWalk& walk, uint64_t count) {
  std::vector<RecordIndex> records(std::min(kFillRecords, walk.record_count()));
  uint64_t place = walk.record_count() / 2;
  uint64_t sum = 0;
  for (uint64_t done = 0; done < count;) {
    const uint64_t size =
        std::min({uint64_t{records.size()}, walk.record_count() - place, count - done});
    const std::span<RecordIndex> part(records.data(), size);
    walk.Fill(place, part);
    // The compiler must store every record, although only the last of each part is used.
    benchmark::DoNotOptimize(part.data());
    benchmark::ClobberMemory();
    sum += part.back().value;
    place = (place + size) % walk.record_count();
    done += size;
  }
  return sum;
}

uint64_t DrawAll(uint64_t record_count, uint64_t count) {
  std::mt19937_64 generator;
  std::uniform_int_distribution<uint64_t> draw(0, record_count - 1);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += draw(generator);
  return sum;
}

void Register(const std::string& name, uint64_t count, const std::function<uint64_t()>& way) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 uint64_t result = 0;
                                 for (auto _ : state) result = way();
                                 benchmark::DoNotOptimize(result);
                                 state.SetItemsProcessed(static_cast<int64_t>(count));
                               })
      ->UseRealTime()
      ->Iterations(1);
}

void RegisterShuffle(const std::string& group, const WalkOptions& options, uint64_t count) {
  const uint64_t n = options.record_count;
  const EpochWalk walk(options, /*epoch=*/0);
  const bool is_block = options.shuffle == Shuffle::kBlock;
  const std::string name = fmt::format("{}/{}, ", group, is_block ? "block" : "global");
  Register(name + "EpochWalk::Fill", count, [=] { return FillAll(walk, count); });
  Register(name + "EpochWalk::RecordAt", count, [=] {
    uint64_t sum = 0;
    VisitPlaces(n, count, [&](uint64_t place) { sum += walk.RecordAt(place).value; });
    return sum;
  });
  Register(name + "EpochWalk::PlaceOf", count, [=] {
    uint64_t sum = 0;
    VisitPlaces(n, count, [&](uint64_t record) { sum += walk.PlaceOf({record}); });
    return sum;
  });
  load::ScheduleOptions schedule_options;
  schedule_options.walk = options;
  schedule_options.batch_size = kBatchSize;
  schedule_options.group_batches = is_block ? kGroupBatches : 1;
  const Schedule schedule(schedule_options);
  Register(name + "Schedule::RecordAt", count, [=] {
    uint64_t sum = 0;
    VisitPlaces(n, count, [&](uint64_t position) {
      sum += schedule.RecordAt(position / kBatchSize, position % kBatchSize).value;
    });
    return sum;
  });
}

void RegisterGroup(uint64_t record_count, uint64_t count) {
  const std::string group = fmt::format("{} records", record_count);
  Register(group + "/drawn with std::mt19937_64", count,
           [=] { return DrawAll(record_count, count); });
  WalkOptions options;
  options.record_count = record_count;
  options.seed = 1;
  options.block_records = kBlockRecords;
  options.order = load::Order::kShuffle;
  for (const Shuffle shuffle : {Shuffle::kGlobal, Shuffle::kBlock}) {
    options.shuffle = shuffle;
    RegisterShuffle(group, options, count);
  }
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  const lmdbio::bench::BenchOptions options = lmdbio::bench::ParseOptions(argc, argv);
  const uint64_t count = options.is_tiny ? 2000 : 1'000'000;
  for (const uint64_t record_count :
       {uint64_t{1797}, uint64_t{300'000}, uint64_t{100'000'000}, uint64_t{1'000'000'000'000}}) {
    lmdbio::bench::RegisterGroup(record_count, count);
  }
  return lmdbio::bench::RunAndCompare(argc, argv, options.is_tiny ? 2 : 5);
}
