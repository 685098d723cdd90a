// Question: how small is a provenance file, and how fast does it yield the layout?
//
// The loads are replayed and encoded without a data file, from the description that a writer would
// give. Tests check that a replay equals the file (tests/file/provenance).
#include <cmath>
#include <random>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/provenance.h"

namespace lmdbio::bench {
namespace {

using file::Fingerprint;
using file::Layout;
using file::LayoutBuilder;
using file::OrderedLoad;
using file::Provenance;
using file::SizeColumn;

constexpr file::PageFormat kFormat(file::DataVersion::k1, 4096);

Layout Expand(const Provenance& file) {
  LayoutBuilder builder;
  const Status expanded = file.Expand(builder);
  if (!expanded) {
    fmt::print(stderr, "benchmark: {}\n", expanded.error().message());
    std::exit(1);
  }
  return builder.Finish();
}

// The fingerprint that the finished database would have.
Fingerprint FingerprintOf(uint64_t record_count, const file::ReplayTotals& totals) {
  Fingerprint fingerprint;
  fingerprint.page_format = kFormat;
  fingerprint.transaction_id = totals.transaction_count;
  fingerprint.last_page = totals.last_page;
  fingerprint.file_size_bytes = (totals.last_page.value + 1) * kFormat.page_size_bytes();
  fingerprint.record.entry_count = record_count;
  fingerprint.record.root = totals.root;
  fingerprint.record.depth = static_cast<uint16_t>(totals.depth);
  fingerprint.record.branch_pages = totals.branch_pages;
  fingerprint.record.leaf_pages = totals.leaf_pages;
  fingerprint.record.overflow_pages = totals.overflow_pages;
  for (uint64_t i = 0; i < file::kSamplesMax; ++i) {
    // The hashes are of no file, but the encoded file has as many of them as a real one.
    fingerprint.samples.push_back({PageNo{i}, i});
  }
  return fingerprint;
}

// A replay yields the layout and the totals of the load. The encoder needs only the totals.
struct Discard final : file::RecordRunSink {
  Status Add(const file::RecordRun&) override { return {}; }
};

std::vector<std::byte> OrderedFile(const OrderedLoad& load) {
  Discard discard;
  const auto totals = file::Replay(kFormat, load, discard);
  return file::EncodeOrderedLoad(FingerprintOf(load.record_count, *totals), load, *totals);
}

// The same records, with overflow pages in random order.
std::vector<std::byte> RandomOrderFile(uint64_t record_count) {
  file::ExactEncoder encoder(kFormat);
  constexpr uint64_t kRecordsPerLeaf = 50;  // the mean of leaf pages after random insertions
  const uint64_t leaf_count = (record_count + kRecordsPerLeaf - 1) / kRecordsPerLeaf;
  const tools::Permutation shuffle(5, record_count + leaf_count);
  uint64_t record = 0;
  for (uint64_t leaf = 0; leaf < leaf_count; ++leaf) {
    // One permutation deals out the pages behind the two meta pages: its first numbers to values,
    // the rest to leaves. A value of 3,080 bytes fits into one page behind the header.
    const PageNo page{2 + shuffle(record_count + leaf)};
    std::vector<Extent> values;
    for (; values.size() < kRecordsPerLeaf && record + values.size() < record_count;) {
      values.push_back({(2 + shuffle(record + values.size())) * 4096 + 16, 3080});
    }
    const Status added = encoder.Add({{record}, page, 0, file::RunKind::kNodes, page, values, {}});
    if (!added) std::exit(1);
    record += values.size();
  }
  file::ReplayTotals totals;
  totals.last_page = PageNo{2 + record_count + leaf_count};
  return file::EncodeExactLayout(FingerprintOf(record_count, totals), record_count,
                                 encoder.Finish());
}

void Register(const std::string& name, const std::vector<std::byte>& file, uint64_t record_count) {
  // Decoding happens once, outside the time. The rows time the step from the decoded file to a
  // layout.
  const auto decoded = std::make_shared<Provenance>(*Provenance::Decode(file));
  benchmark::RegisterBenchmark(
      (name + "/layout from provenance").c_str(),
      [=](benchmark::State& state) {
        for (auto _ : state) {
          const Layout layout = Expand(*decoded);
          state.counters["MiB of layout"] = static_cast<double>(layout.memory_bytes()) / (1 << 20);
        }
        state.counters["file bytes"] = static_cast<double>(file.size());
        state.counters["bytes per record"] =
            static_cast<double>(file.size()) / static_cast<double>(record_count);
      })
      ->UseRealTime()
      ->Iterations(1);
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  using namespace lmdbio::bench;
  const BenchOptions options = ParseOptions(argc, argv);
  const uint64_t many = options.is_tiny ? 1000 : 10'000'000;
  const uint64_t some = options.is_tiny ? 1000 : 1'280'000;

  OrderedLoad fixed;
  fixed.record_count = many;
  fixed.commit_interval_records = 1000;
  fixed.key_bytes = SizeColumn::Constant(8);
  fixed.value_bytes = SizeColumn::Constant(3080);
  Register(fmt::format("{} ordered records of 3080 B", many), OrderedFile(fixed), many);

  std::vector<uint32_t> sizes(some);
  const lmdbio::tools::ValueSizes log_normal = LogNormalSize(9000, 1.0);
  for (uint64_t i = 0; i < some; ++i) {
    sizes[i] = static_cast<uint32_t>(lmdbio::tools::SyntheticValueBytes(log_normal, 1, i));
  }
  OrderedLoad varying = fixed;
  varying.record_count = some;
  varying.value_bytes = SizeColumn::Each(sizes);
  Register(fmt::format("{} ordered records, log-normal, median 9000 B", some), OrderedFile(varying),
           some);

  for (uint64_t i = 0; i < some; ++i) {
    sizes[i] = static_cast<uint32_t>(
        lmdbio::tools::SyntheticValueBytes(LogNormalSize(110'000, 0.6), 1, i));
  }
  // The column borrows `sizes`, so it holds the new sizes already.
  Register(fmt::format("{} ordered records, log-normal, median 110000 B", some),
           OrderedFile(varying), some);

  Register(fmt::format("{} records of 3080 B in random order", many), RandomOrderFile(many), many);
  Register(fmt::format("{} records of 3080 B in random order", some), RandomOrderFile(some), some);
  return RunAndCompare(argc, argv, options.is_tiny ? 2 : 5);
}
