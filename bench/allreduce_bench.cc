// Question: how long does a sum of floats over all ranks take, from 8 B to 256 MB, by lmdbio's
// collectives, by MPI_Allreduce and by Gloo?
//
//   mpirun -n 4 allreduce_bench [--wait spin|sleep] [--json FILE]
//   scripts/cluster run -n 4 --per-host 1 allreduce_bench --min 1024
//
// Ranks of one host sum over its memory. One rank on each of several hosts sums over messages;
// --over wire does so on one host, too. Then lmdbio is measured with the choices of its trial, with
// each fixed depth in their place, and by each algorithm. If two of these ways make the same
// messages at a size, the first of them is measured, and its figures stand for both. "transfer"
// moves as many bytes as a sum needs, and reduces nothing.
//
// State: warm, in place, the ranks do nothing else. For each size the ways take turns in random
// order, repetition after repetition. The time of a repetition is the time per call of the slowest
// rank. Without Gloo its columns stay empty.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/allreduce_ways.h"
#include "lmdbio/ranks/mpi/mpi_group.h"
#include "lmdbio/sync/over_wire/wire_search.h"

namespace lmdbio::bench {
namespace {

constexpr size_t kWakingBytes = 1 << 20;

struct Times {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
};

// The microseconds per call on the slowest rank.
double Measure(const Way& way, size_t count, int calls) {
  // Connections that were idle for some time begin slowly. A call of up to 1 MiB wakes them.
  way.sum(way.memory, std::min(count, kWakingBytes / sizeof(float)));
  // No barrier lies between the calls of a repetition. Every rank gets the slowest rank's time, so
  // all ranks make the same decisions from it.
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) way.sum(way.memory, count);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return SlowestOf(took.count() / calls);
}

// Fills in values with an exact sum in any order.
float ValueAt(int rank, size_t index) {
  // Integers below 1,000; a float holds sums of them exactly for up to 16,777 ranks.
  return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 1000);
}

void CheckSum(const Way& way, size_t count) {
  for (size_t i = 0; i < count; ++i) way.memory[i] = ValueAt(Rank(), i);
  way.sum(way.memory, count);
  for (size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int r = 0; r < RankCount(); ++r) expected += ValueAt(r, i);
    if (way.memory[i] != expected) {
      Die(fmt::format("{}: element {} of {} is {}; expected {}", way.name, i, count, way.memory[i],
                      expected));
    }
    way.memory[i] = 0;  // repeated sums stay finite
  }
}

Times TimesOf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

// The number of calls that take about `seconds`. The first calls after another way may wait for a
// core.
int CallsIn(double seconds, const Way& way, size_t count) {
  constexpr int kCallsMax = 20'000;
  double once_us = 0;
  // The trials grow until one takes an eighth of the time. All ranks find the same number, because
  // Measure returns the same time to each. A call of seconds is tried once.
  for (int calls = 1; calls < kCallsMax; calls *= 4) {
    once_us = Measure(way, count, calls);
    if (once_us * calls > seconds * 1e6 / 8) break;
  }
  return std::clamp(static_cast<int>(seconds * 1e6 / once_us), 1, kCallsMax);
}

// For each way the first one that makes the same messages at this size: itself, or one before it.
std::vector<size_t> SameWays(const std::vector<Way>& ways, size_t bytes) {
  std::vector<size_t> same(ways.size());
  for (size_t w = 0; w < ways.size(); ++w) {
    const auto is_same = [&](const Way& other) {
      return !ways[w].table.empty() && !other.table.empty() && bytes <= other.bytes_max &&
             sync::IsSameCall(sync::ChoiceFor(ways[w].table, bytes),
                              sync::ChoiceFor(other.table, bytes), bytes, RankCount());
    };
    const auto end = ways.begin() + static_cast<std::ptrdiff_t>(w);
    same[w] = static_cast<size_t>(std::find_if(ways.begin(), end, is_same) - ways.begin());
  }
  return same;
}

std::vector<Times> MeasureSize(const std::vector<Way>& ways, size_t count,
                               const AllReduceOptions& options) {
  const size_t bytes = count * sizeof(float);
  const std::vector<size_t> same = SameWays(ways, bytes);
  std::vector<std::vector<double>> samples(ways.size());
  std::vector<int> calls(ways.size(), 0);
  for (size_t w = 0; w < ways.size(); ++w) {
    // A way whose memory is too small keeps 0 calls and empty columns. Without Gloo its limit is 0.
    if (bytes > ways[w].bytes_max || same[w] != w) continue;
    if (ways[w].is_sum) CheckSum(ways[w], count);
    calls[w] = CallsIn(options.seconds, ways[w], count);
  }
  std::vector<size_t> order(ways.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random;
  for (int i = 0; i < options.repetitions; ++i) {
    // In another order each time, the same on all ranks. So no way always follows the same one.
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t w : order) {
      if (calls[w] > 0) samples[w].push_back(Measure(ways[w], count, calls[w]));
    }
  }
  std::vector<Times> times;
  for (size_t w = 0; w < ways.size(); ++w) {
    const auto& mine = samples[same[w]];
    times.push_back(mine.empty() || bytes > ways[w].bytes_max ? Times{} : TimesOf(mine));
  }
  return times;
}

// With few ways there is room for the range of the times.
bool IsWide(const std::vector<Way>& ways) { return ways.size() <= 4; }

std::string Cell(const Times& times, bool is_wide) {
  const int width = is_wide ? 32 : 11;
  if (times.median_us == 0) return fmt::format("{:>{}}", "-", width);
  const std::string median = fmt::format("{:.2f}", times.median_us);
  if (!is_wide) return fmt::format("{:>{}}", median, width);
  return fmt::format("{:>{}}",
                     fmt::format("{} ({:.2f}-{:.2f})", median, times.min_us, times.max_us), width);
}
std::string Ratio(double a, double b) { return b == 0 ? "-" : fmt::format("{:.2f}", a / b); }

// The rate of the bytes that each rank must send at least, in GB/s.
double BusGigabytes(size_t bytes, double us) {
  const double ranks = RankCount();
  // Reduce-scatter and all-gather each send (P - 1) / P of the bytes from each of P ranks, and no
  // sum needs less. Bytes per microsecond, divided by 1,000, are GB/s.
  return us == 0 ? 0 : 2 * (ranks - 1) / ranks * static_cast<double>(bytes) / us / 1000;
}

void PrintRow(size_t bytes, const std::vector<Way>& ways, const std::vector<Times>& times,
              nlohmann::json& rows) {
  std::string line = fmt::format("{:>10}", bytes);
  nlohmann::json row{{"bytes", bytes}};
  for (size_t w = 0; w < ways.size(); ++w) {
    line += Cell(times[w], IsWide(ways));
    if (times[w].median_us == 0) continue;
    row[ways[w].name] = {{"median_us", times[w].median_us},
                         {"min_us", times[w].min_us},
                         {"max_us", times[w].max_us},
                         {"bus_gb_s", BusGigabytes(bytes, times[w].median_us)}};
    if (ways[w].table.empty()) continue;
    const sync::WireChoice& choice = sync::ChoiceFor(ways[w].table, bytes);
    row[ways[w].name]["choice"] = {{"algorithm", sync::NameOf(choice.algorithm)},
                                   {"chunk_bytes", choice.chunk_bytes},
                                   {"chunk_depth", choice.chunk_depth}};
  }
  const double own = times[0].median_us;
  const Times& mpi = times[times.size() - 2];
  const Times& gloo = times.back();
  line += fmt::format("{:>9.2f}{:>9}{:>9}", BusGigabytes(bytes, own), Ratio(own, mpi.median_us),
                      Ratio(own, gloo.median_us));
  fmt::print("{}\n", line);
  std::fflush(stdout);
  rows.push_back(row);
}

AllReduceOptions ParseCommandLine(int argc, char** argv) {
  namespace po = boost::program_options;
  AllReduceOptions options;
  po::options_description known("mpirun -n RANKS allreduce_bench [OPTION...]");
  known.add_options()("help", "print this text and exit")  //
      ("min", po::value(&options.bytes_min), "smallest size in bytes")(
          "max", po::value(&options.bytes_max), "largest size in bytes")(
          "registered", po::value(&options.registered_bytes), "bytes of registered memory")(
          "staging", po::value(&options.staging_bytes), "staging bytes of each rank")(
          "repetitions", po::value(&options.repetitions), "repetitions of each measurement")(
          "seconds", po::value(&options.seconds), "approximate seconds of a repetition")(
          "wait", po::value(&options.wait),
          "spin or sleep (default: spin if every rank has a core)")(
          "way", po::value(&options.way), "algorithm over memory: auto, one-shot or two-shot")(
          "over", po::value(&options.over),
          "memory or wire (default: memory if all ranks share a host)")(
          "interface", po::value(&options.interface),
          "network interface of Gloo (default: lo on one host, else eth0)")(
          "json", po::value(&options.json_path), "also write the figures to this file");
  ParseOptions(argc, argv, known);
  const bool is_wait = options.wait.empty() || options.wait == "spin" || options.wait == "sleep";
  if (!is_wait || options.repetitions < 1 || options.bytes_min < sizeof(float)) {
    Die("--wait takes spin or sleep; --repetitions must be at least 1, and --min at least 4");
  }
  if (!options.over.empty() && options.over != "memory" && options.over != "wire") {
    Die(fmt::format("--over is '{}'; it takes memory or wire", options.over));
  }
  return options;
}

void PrintHead(const WaySet& set, const AllReduceOptions& options, unsigned cores) {
  fmt::print("{} ranks, {} cores; lmdbio waits by {}, MPI {}{}\n", RankCount(), cores,
             set.facts["wait"].get<std::string>(), MpiWaitMode(),
             set.ways.back().sum ? "" : "; this build has no Gloo, so its columns are empty");
  if (set.facts.contains("description")) {
    fmt::print("in {:.2f} s {}\n", set.facts["trial_seconds"].get<double>(),
               set.facts["description"].get<std::string>());
  }
  std::string names;
  for (const Way& way : set.ways) {
    names += fmt::format("{:>{}}", way.name, IsWide(set.ways) ? 32 : 11);
  }
  fmt::print("us per call: median{} of {}\n{:>10}{}{:>9}{:>9}{:>9}\n",
             IsWide(set.ways) ? " (min-max)" : "", options.repetitions, "bytes", names, "GB/s",
             "/MPI", "/Gloo");
}

void Report(const AllReduceOptions& options, const WaySet& set) {
  const unsigned cores = std::thread::hardware_concurrency();
  nlohmann::json report = set.facts;
  report["ranks"] = RankCount();
  report["cores"] = cores;
  report["mpi_wait"] = MpiWaitMode();
  report["rows"] = nlohmann::json::array();
  if (Rank() == 0) PrintHead(set, options, cores);
  for (size_t bytes = options.bytes_min; bytes <= options.bytes_max;) {
    const auto times = MeasureSize(set.ways, bytes / sizeof(float), options);
    if (Rank() == 0) PrintRow(bytes, set.ways, times, report["rows"]);
    bytes *= bytes < 1024 ? 8 : 4;
  }
  if (Rank() == 0 && !options.json_path.empty()) WriteReport(report, options.json_path);
}

void Run(const AllReduceOptions& options) {
  const auto world = OrDie(ranks::MpiGroup(MPI_COMM_WORLD));
  const auto host = OrDie(world->SplitByHost());
  const bool is_one_host = host->size() == world->size();
  const std::string over = !options.over.empty() ? options.over : is_one_host ? "memory" : "wire";
  if (over == "memory" && !is_one_host) {
    Die("--over memory needs all ranks on one host; they run on several");
  }
  if (over == "wire" && !is_one_host && host->size() > 1) {
    Die(fmt::format("this host has {} ranks, and there are others; run one rank on each host",
                    host->size()));
  }
  if (over == "wire" && world->size() == 1) Die("--over wire needs at least 2 ranks");
  Report(options,
         over == "memory" ? *MemoryWays(*host, options) : *WireWays(*world, is_one_host, options));
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lmdbio::bench::Run(lmdbio::bench::ParseCommandLine(argc, argv));
  MPI_Finalize();
  return 0;
}
