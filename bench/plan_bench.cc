// Question: how fast are the reads of a slot planned, for records in file order and in random
// order, compared with sorting their offsets? At which storage rate would planning be the limit?
//
// State: warm, no storage; plans are computed from record locations only.
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::bench {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kRecordsPerLeaf = 150;

struct PlannedRecords {
  uint64_t value_bytes = 0;
  // In the order of requests:
  std::vector<Extent> values;
  std::vector<PageNo> leaves;
};

// The values of a load in key order: each on its own pages, with their leaf page before every 150.
PlannedRecords MakeRecords(uint64_t count, uint64_t value_bytes, RecordOrder order) {
  const uint64_t pages_each = (value_bytes + 16 + kPageBytes - 1) / kPageBytes;
  const tools::Permutation shuffle(3, count);
  PlannedRecords records{value_bytes, {}, {}};
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t k = order == RecordOrder::kRandom ? shuffle(i) : i;
    // Pages 0 and 1 are meta pages. Each value begins after the 16-byte header of its first
    // overflow page, which the number of its pages includes.
    const uint64_t page = 2 + k * pages_each + k / kRecordsPerLeaf + 1;
    records.values.push_back({page * kPageBytes + 16, value_bytes});
    records.leaves.push_back({page - 1 - k % kRecordsPerLeaf * pages_each});
  }
  return records;
}

uint64_t PlanAll(const PlannedRecords& records, uint64_t slot_records, load::ReadPlan& plan) {
  uint64_t read_bytes = 0;
  for (uint64_t first = 0; first < records.values.size(); first += slot_records) {
    plan.Clear();
    const uint64_t end = std::min<uint64_t>(first + slot_records, records.values.size());
    for (uint64_t i = first; i < end;) {
      file::RecordRun run;
      run.first_record = {i};
      run.leaf = records.leaves[i];
      run.home = records.leaves[i];
      run.first_node = static_cast<uint32_t>(i % kRecordsPerLeaf);
      // Neighbours on one leaf page form a run, as in the loader; in random order nearly every
      // record is alone.
      uint64_t count = 1;
      while (i + count < end && records.leaves[i + count] == run.leaf) ++count;
      run.values = {&records.values[i], count};
      if (!plan.Add(run)) std::exit(1);
      i += count;
    }
    plan.Finish();
    read_bytes += plan.read_bytes();
  }
  return read_bytes;
}

uint64_t SortAll(const PlannedRecords& records, uint64_t slot_records) {
  std::vector<uint64_t> offsets;
  uint64_t sum = 0;
  for (uint64_t first = 0; first < records.values.size(); first += slot_records) {
    offsets.clear();
    const uint64_t end = std::min<uint64_t>(first + slot_records, records.values.size());
    for (uint64_t i = first; i < end; ++i) offsets.push_back(records.values[i].offset);
    std::sort(offsets.begin(), offsets.end());
    sum += offsets.front();
  }
  return sum;
}

void Register(const std::string& name, uint64_t record_count, const std::function<uint64_t()>& way,
              bool is_plan) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        uint64_t result = 0;
        const auto start = std::chrono::steady_clock::now();
        for (auto _ : state) result = way();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        benchmark::DoNotOptimize(result);
        state.counters["ns per record"] = took.count() * 1e9 / static_cast<double>(record_count);
        if (is_plan) {
          state.counters["GB/s planned"] = static_cast<double>(result) / took.count() / 1e9;
        }
      })
      ->UseRealTime()
      ->Iterations(1);
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  using namespace lmdbio::bench;
  const BenchOptions options = ParseOptions(argc, argv);
  const uint64_t count = options.is_tiny ? 2000 : 500'000;
  lmdbio::load::ReadPlanOptions plan_options;
  plan_options.page_format = {lmdbio::file::DataVersion::k1, lmdbio::bench::kPageBytes};
  // No record lies beyond the end of this file, whatever its number.
  plan_options.file_size_bytes = uint64_t{1} << 50;
  for (const uint64_t value_bytes : {uint64_t{3080}, uint64_t{196'700}}) {
    // About 8 MiB of values for each slot.
    const uint64_t slot_records = (8 << 20) / value_bytes + 1;
    for (const RecordOrder order : {RecordOrder::kSequential, RecordOrder::kRandom}) {
      const PlannedRecords records = MakeRecords(count, value_bytes, order);
      const std::string group = fmt::format("values of {} B in {} order", value_bytes,
                                            order == RecordOrder::kRandom ? "random" : "file");
      Register(
          group + "/std::sort of the offsets", count,
          [=] { return SortAll(records, slot_records); }, /*is_plan=*/false);
      Register(
          group + "/plan of a slot", count,
          // The plan is reused, as in the loader, so its memory is allocated once.
          [=, plan = lmdbio::load::ReadPlan(plan_options)]() mutable {
            return PlanAll(records, slot_records, plan);
          },
          /*is_plan=*/true);
    }
  }
  return RunAndCompare(argc, argv, options.is_tiny ? 2 : 5);
}
