// Question: how long does a sum of floats over the ranks of a host take, from 8 B to 256 MB, by
// lmdbio's collectives, by MPI_Allreduce and by Gloo?
//
//   mpirun -n 4 allreduce_bench [--wait spin|sleep] [--json FILE]
//
// State: warm, in place, the ranks do nothing else. For each size the three take turns, repetition
// after repetition. The time of a repetition is the time per call of the slowest rank. Without Gloo
// its columns stay empty. lmdbio is measured twice: with memory of the caller, and with registered
// memory ("in place"), which a fusion buffer uses.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/gloo_ranks.h"
#include "lmdbio/file/source/small_file.h"
#include "lmdbio/ranks/mpi/mpi_group.h"
#include "lmdbio/sync/over_memory/host_collectives.h"

namespace lmdbio::bench {
namespace {

struct Options {
  size_t bytes_min = 8;
  size_t bytes_max = 256 << 20;
  size_t registered_bytes = 64 << 20;
  size_t staging_bytes = sync::HostOptions{}.staging_bytes;
  int repetitions = 9;
  double seconds = 0.02;  // the approximate time of a repetition
  std::string wait;
  std::string way = "auto";
  std::string json_path;
};

// One rank that ends alone would leave the others in a collective call, so MPI ends the job.
[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "allreduce_bench: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

struct Way {
  std::string name;
  std::function<void(float* values, size_t count)> sum;
  float* memory = nullptr;
  size_t bytes_max = 0;
};

struct Times {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
};

int RankCount() {
  int count = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  return count;
}
int Rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

double SlowestOf(double mine) {
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

// The microseconds per call on the slowest rank.
double Measure(const Way& way, size_t count, int calls) {
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
  // Measure returns the same time to each.
  for (int calls = 3; calls < kCallsMax; calls *= 4) {
    once_us = Measure(way, count, calls);
    if (once_us * calls > seconds * 1e6 / 8) break;
  }
  return std::clamp(static_cast<int>(seconds * 1e6 / once_us), 1, kCallsMax);
}

std::vector<Times> MeasureSize(const std::vector<Way>& ways, size_t count, const Options& options) {
  std::vector<std::vector<double>> samples(ways.size());
  std::vector<int> calls(ways.size(), 0);
  for (size_t w = 0; w < ways.size(); ++w) {
    // A way whose memory is too small keeps 0 calls and empty columns. Without Gloo its limit is 0.
    if (count * sizeof(float) > ways[w].bytes_max) continue;
    CheckSum(ways[w], count);
    calls[w] = CallsIn(options.seconds, ways[w], count);
  }
  for (int i = 0; i < options.repetitions; ++i) {
    for (size_t w = 0; w < ways.size(); ++w) {
      if (calls[w] > 0) samples[w].push_back(Measure(ways[w], count, calls[w]));
    }
  }
  std::vector<Times> times;
  for (const auto& one : samples) times.push_back(one.empty() ? Times{} : TimesOf(one));
  return times;
}

// How the ranks of MPI wait, as far as MPI reports it.
std::string MpiWaitMode(unsigned cores) {
  // Open MPI yields by itself only if it starts more ranks than slots. The number of cores stands
  // for that of slots.
  const char* const asked = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  if (asked != nullptr) return asked[0] == '0' ? "spins (asked)" : "yields (asked)";
  return static_cast<unsigned>(RankCount()) > cores ? "yields (more ranks than cores)" : "spins";
}

std::string Cell(const Times& times) {
  if (times.median_us == 0) return fmt::format("{:>32}", "-");
  return fmt::format(
      "{:>32}", fmt::format("{:.2f} ({:.2f}-{:.2f})", times.median_us, times.min_us, times.max_us));
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
    line += Cell(times[w]);
    if (times[w].median_us == 0) continue;
    row[ways[w].name] = {{"median_us", times[w].median_us},
                         {"min_us", times[w].min_us},
                         {"max_us", times[w].max_us},
                         {"bus_gb_s", BusGigabytes(bytes, times[w].median_us)}};
  }
  const double own = times[0].median_us;
  line += fmt::format("{:>9.2f}{:>9}{:>9}", BusGigabytes(bytes, own),
                      Ratio(own, times[2].median_us), Ratio(own, times[3].median_us));
  fmt::print("{}\n", line);
  std::fflush(stdout);
  rows.push_back(row);
}

Options ParseCommandLine(int argc, char** argv) {
  namespace po = boost::program_options;
  Options options;
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
          "way", po::value(&options.way), "algorithm: auto, one-shot or two-shot")(
          "json", po::value(&options.json_path), "also write the figures to this file");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, known), given);
    po::notify(given);
    if (given.count("help") > 0) {
      if (Rank() == 0) std::cout << known;
      MPI_Finalize();
      std::exit(0);
    }
  } catch (const po::error& error) {
    Die(error.what());
  }
  const bool is_wait = options.wait.empty() || options.wait == "spin" || options.wait == "sleep";
  if (!is_wait || options.repetitions < 1 || options.bytes_min < sizeof(float)) {
    Die("--wait takes spin or sleep; --repetitions must be at least 1, and --min at least 4");
  }
  return options;
}

sync::HostAlgorithm ParseWay(const std::string& name) {
  if (name == "auto") return sync::HostAlgorithm::kAuto;
  if (name == "one-shot") return sync::HostAlgorithm::kOneShot;
  if (name == "two-shot") return sync::HostAlgorithm::kTwoShot;
  Die("--way must be auto, one-shot or two-shot");
}

template <typename T>
T OrDie(Result<T> result) {
  if (!result) Die(result.error().message());
  return std::move(*result);
}

std::vector<char> GatherBytes(const std::vector<char>& mine) {
  std::vector<char> all(mine.size() * static_cast<size_t>(RankCount()));
  const auto bytes = static_cast<int>(mine.size());
  MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
  return all;
}

void SumBy(sync::Collectives& all, float* values, size_t count) {
  const auto outcome = OrDie(all.AllReduce(
      {.digest = 1}, {reinterpret_cast<std::byte*>(values), count}, sync::ReduceOp::kSum));
  if (outcome != sync::CallOutcome::kDone) Die("a rank declined the call");
}

void Report(const Options& options, const std::vector<Way>& ways, const std::string& wait) {
  const unsigned cores = std::thread::hardware_concurrency();
  nlohmann::json report{{"ranks", RankCount()},
                        {"cores", cores},
                        {"wait", wait},
                        {"mpi_wait", MpiWaitMode(cores)},
                        {"rows", nlohmann::json::array()}};
  if (Rank() == 0) {
    fmt::print("{} ranks, {} cores; lmdbio waits by {}, MPI {}{}\n", RankCount(), cores, wait,
               MpiWaitMode(cores),
               ways[3].sum ? "" : "; this build has no Gloo, so its columns are empty");
    fmt::print(
        "us per call: median (min-max) of {}\n{:>10}{:>32}{:>32}{:>32}{:>32}{:>9}{:>9}{:>9}\n",
        options.repetitions, "bytes", "lmdbio", "lmdbio in place", "MPI", "Gloo", "GB/s", "/MPI",
        "/Gloo");
  }
  for (size_t bytes = options.bytes_min; bytes <= options.bytes_max;) {
    const auto times = MeasureSize(ways, bytes / sizeof(float), options);
    if (Rank() == 0) PrintRow(bytes, ways, times, report["rows"]);
    bytes *= bytes < 1024 ? 8 : 4;
  }
  if (Rank() == 0 && !options.json_path.empty()) {
    const std::string text = report.dump(2) + "\n";
    const auto written =
        file::WriteFileAtomically(options.json_path, std::as_bytes(std::span(text)));
    if (!written) Die(written.error().message());
  }
}

void Run(const Options& options) {
  const unsigned cores = std::thread::hardware_concurrency();
  const std::string wait = !options.wait.empty()                         ? options.wait
                           : static_cast<unsigned>(RankCount()) <= cores ? "spin"
                                                                         : "sleep";
  ranks::SoloHealth health;
  const auto world = OrDie(ranks::MpiGroup(MPI_COMM_WORLD));
  const auto group = OrDie(world->SplitByHost());
  if (group->size() != world->size()) Die("all ranks must run on one host");
  sync::HostOptions host;
  host.wait = wait == "spin" ? sync::WaitMode::kSpin : sync::WaitMode::kSleep;
  host.way = ParseWay(options.way);
  host.staging_bytes = options.staging_bytes;
  host.registered_bytes = options.registered_bytes;
  const auto ours = OrDie(sync::HostCollectives(*group, health, host));
  const auto gloo = ConnectGloo(Rank(), RankCount(), GatherBytes);

  std::vector<float> values(options.bytes_max / sizeof(float));
  const auto sum = [&](float* at, size_t count) { SumBy(*ours, at, count); };
  // PrintRow finds the ways by their positions: our own first, MPI at 2 and Gloo at 3.
  std::vector<Way> ways{
      {"lmdbio", sum, values.data(), options.bytes_max},
      {"lmdbio in place", sum, reinterpret_cast<float*>(ours->registered().data()),
       ours->registered().size()},
      {"mpi",
       [](float* at, size_t count) {
         MPI_Allreduce(MPI_IN_PLACE, at, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
       },
       values.data(), options.bytes_max},
      {"gloo", nullptr, values.data(), 0}};
  if (gloo != nullptr) {
    ways[3].sum = [&](float* at, size_t count) { gloo->AllReduceSum(at, count); };
    ways[3].bytes_max = options.bytes_max;
  }
  Report(options, ways, wait);
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lmdbio::bench::Run(lmdbio::bench::ParseCommandLine(argc, argv));
  MPI_Finalize();
  return 0;
}
