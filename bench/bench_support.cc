#include "bench/bench_support.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "lmdbio/base/align.h"
#include "lmdbio/file/writer/database_writer.h"

namespace lmdbio::bench {
namespace {

namespace po = boost::program_options;

[[noreturn]] void Die(std::string_view message) {
  fmt::print(stderr, "benchmark: {}\n", message);
  std::exit(1);
}

void LmdbMust(int rc) {
  if (rc != MDB_SUCCESS) Die(fmt::format("liblmdb: {}", mdb_strerror(rc)));
}

void Write(const std::string& path, const DatabaseSpec& spec) {
  file::WriterOptions options;
  options.path = path;
  Result<file::DatabaseWriter> writer = file::DatabaseWriter::Create(options);
  if (!writer) Die(writer.error().message());
  // Only the order of insertion differs between the orders. The record with a number has the same
  // key and the same value in both.
  const tools::Permutation shuffle(1, spec.record_count);
  std::vector<std::byte> value;
  for (uint64_t i = 0; i < spec.record_count; ++i) {
    const uint64_t record = spec.order == RecordOrder::kRandom ? shuffle(i) : i;
    value.resize(tools::SyntheticValueBytes(spec.sizes, 1, record));
    tools::FillSyntheticValue(1, record, value);
    const std::string key = fmt::format("{:08}", record);
    const Status put = writer->Put(std::as_bytes(std::span(key)), value);
    if (!put) Die(put.error().message());
  }
  const auto summary = writer->Finish();
  if (!summary) Die(summary.error().message());
}

// Why a run failed; "": it did not. Google Benchmark 1.8 and later have other fields than before.
template <typename Run>
std::string ErrorOf(const Run& run) {
  if constexpr (requires { run.error_occurred; }) {
    return run.error_occurred ? run.error_message : "";
  } else {
    return run.skipped ? run.skip_message : "";
  }
}

// Collects all repetitions and prints one line for each benchmark at the end.
class RatioReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      // The library also reports means and deviations of the repetitions. Here the median is
      // computed from the single runs.
      if (run.run_type != Run::RT_Iteration) continue;
      if (const std::string error = ErrorOf(run); !error.empty()) {
        Die(run.benchmark_name() + ": " + error);
      }
      ReportRow& row = rows_[run.family_index];
      row.name = run.run_name.function_name;
      // With manual time, this field holds the seconds that the benchmark has set itself.
      row.seconds.push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
      for (const auto& [key, counter] : run.counters) row.counters[key] = counter.value;
    }
  }

  void Finalize() override {
    std::string group;
    double baseline = 0;
    for (auto& [index, row] : rows_) {
      std::ranges::sort(row.seconds);
      const double median = row.seconds[row.seconds.size() / 2];
      const std::string its_group = row.name.substr(0, row.name.find('/'));
      // The rows come in the order of registration, so the first row of a group is its baseline.
      if (its_group != group) {
        group = its_group;
        baseline = median;
        fmt::print("\n{:<44} {:>10} {:>10} {:>10} {:>9}\n", group, "median s", "min", "max",
                   "x baseline");
      }
      fmt::print("  {:<42} {:>10.5f} {:>10.5f} {:>10.5f} {:>8.2f}x",
                 row.name.substr(group.size() + 1), median, row.seconds.front(), row.seconds.back(),
                 baseline / median);
      for (const auto& [key, value] : row.counters) fmt::print("  {} {:.4g}", key, value);
      fmt::print("\n");
    }
  }

 private:
  struct ReportRow {
    std::string name;  // GROUP/WAY
    std::vector<double> seconds;
    std::map<std::string, double> counters;
  };
  std::map<int64_t, ReportRow> rows_;  // by order of registration
};

}  // namespace

BenchOptions ParseOptions(int& argc, char** argv) {
  po::options_description description("Options");
  description.add_options()("scale", po::value<std::string>()->default_value("full"))(
      "dir", po::value<std::string>()->default_value("build/bench"));
  try {
    const po::parsed_options parsed =
        po::command_line_parser(argc, argv).options(description).allow_unregistered().run();
    po::variables_map values;
    po::store(parsed, values);
    BenchOptions options{values["dir"].as<std::string>(),
                         values["scale"].as<std::string>() == "tiny"};
    std::filesystem::create_directories(options.directory);
    // argv must keep pointers to the original words, so the words that were not recognised are
    // found in it and moved to the front.
    const auto rest = po::collect_unrecognized(parsed.options, po::include_positional);
    int kept = 1;
    for (const std::string& word : rest) {
      const auto same = std::find(argv + kept, argv + argc, word);
      if (same != argv + argc) argv[kept++] = *same;
    }
    argc = kept;
    return options;
  } catch (const std::exception& error) {
    Die(error.what());
  }
}

tools::ValueSizes FixedSize(uint64_t value_bytes) {
  tools::ValueSizes sizes;
  sizes.min_bytes = value_bytes;
  return sizes;
}

tools::ValueSizes LogNormalSize(double median_bytes, double sigma) {
  tools::ValueSizes sizes;
  sizes.kind = tools::ValueSizes::SizeDistribution::kLogNormal;
  sizes.median_bytes = median_bytes;
  sizes.sigma = sigma;
  return sizes;
}

std::string DatabaseFor(const BenchOptions& options, const DatabaseSpec& spec) {
  // The name is the key of a database between runs: equal names must mean equal contents.
  std::string name = fmt::format("{}-{}", spec.name, spec.record_count);
  std::ranges::replace_if(
      name, [](char c) { return c == ' ' || c == ','; }, '-');
  const std::string path = options.directory + "/" + name;
  if (!std::filesystem::exists(path)) {
    fmt::print("making {}\n", path);
    Write(path, spec);
  }
  return path;
}

uint64_t SumWords(Bytes value) {
  // The length is part of the sum, so values of zero bytes of different lengths differ. Memory need
  // not be aligned; memcpy of 8 bytes compiles to one load.
  uint64_t sum = value.size();
  size_t i = 0;
  for (; i + 8 <= value.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, value.data() + i, 8);
    sum += word;
  }
  for (; i < value.size(); ++i) sum += std::to_integer<uint64_t>(value[i]);
  return sum;
}

uint64_t ScanWithLmdb(const std::string& path) {
  MDB_env* environment = nullptr;
  LmdbMust(mdb_env_create(&environment));
  const std::unique_ptr<MDB_env, decltype(&mdb_env_close)> closer(environment, &mdb_env_close);
  LmdbMust(mdb_env_open(environment, path.c_str(), MDB_RDONLY | MDB_NOLOCK, 0));
  MDB_txn* transaction = nullptr;
  LmdbMust(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction));
  const std::unique_ptr<MDB_txn, decltype(&mdb_txn_abort)> aborter(transaction, &mdb_txn_abort);
  MDB_dbi database = 0;
  LmdbMust(mdb_dbi_open(transaction, nullptr, 0, &database));
  MDB_cursor* cursor = nullptr;
  LmdbMust(mdb_cursor_open(transaction, database, &cursor));
  MDB_val key;
  MDB_val value;
  uint64_t sum = 0;
  int rc = MDB_SUCCESS;
  while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == MDB_SUCCESS) {
    sum += SumWords({static_cast<const std::byte*>(value.mv_data), value.mv_size});
  }
  if (rc != MDB_NOTFOUND) LmdbMust(rc);
  mdb_cursor_close(cursor);
  return sum;
}

double EvictFromCache(const std::string& data_path) {
  const int fd = ::open(data_path.c_str(), O_RDONLY);
  struct stat found = {};
  if (fd < 0 || ::fstat(fd, &found) != 0) Die("cannot drop the cached pages of " + data_path);
  // The kernel drops only clean pages that no process maps, so the file is written back first.
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  const auto size_bytes = static_cast<size_t>(found.st_size);
  // mincore reports the cached pages of a map without reading them. For a file that the user
  // neither owns nor may write, the kernel reports every page as cached.
  void* map = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> resident(AlignUp(size_bytes, MemoryPageBytes()) / MemoryPageBytes());
  if (map == MAP_FAILED || ::mincore(map, size_bytes, resident.data()) != 0) Die("mincore");
  ::munmap(map, size_bytes);
  ::close(fd);
  const auto stayed =
      std::ranges::count_if(resident, [](unsigned char page) { return (page & 1) != 0; });
  return static_cast<double>(stayed) / static_cast<double>(resident.size());
}

uint64_t StorageBytesRead() {
  // "read_bytes" counts the bytes from storage, including those of page faults and read-ahead.
  // "rchar" would count every read from the page cache.
  std::ifstream io("/proc/self/io");
  std::string field;
  uint64_t value = 0;
  while (io >> field >> value) {
    if (field == "read_bytes:") return value;
  }
  return 0;
}

void Agreement::Check(std::string_view what, uint64_t checksum) {
  if (any_ && checksum != checksum_)
    Die(fmt::format("{}: the checksum differs from that of the other methods", what));
  any_ = true;
  checksum_ = checksum;
}

int RunAndCompare(int argc, char** argv, int repetitions) {
  std::string repetitions_flag = fmt::format("--benchmark_repetitions={}", repetitions);
  std::string interleave_flag = "--benchmark_enable_random_interleaving=true";
  std::vector<char*> words(argv, argv + argc);
  // Before the words of the user, so that a flag of the command line takes precedence. Random
  // interleaving spreads a slow phase of the machine over all ways.
  words.insert(words.begin() + 1, {repetitions_flag.data(), interleave_flag.data()});
  int count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  if (benchmark::ReportUnrecognizedArguments(count, words.data())) return 2;
  RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}

}  // namespace lmdbio::bench
