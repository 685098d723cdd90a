// Question: how well does the model of a trial tell what calls of other sizes take?
//
//   mpirun -n 2 transfer_bench [--json FILE]
//   scripts/cluster run -n 4 --per-host 1 transfer_bench
//
// The trial is that of the coordinator caramel: sums of 1 KiB to 16 MiB, one behind the other. Then
// sums of those sizes and of others are measured, some between two tried sizes and one above all of
// them. The error of a size is model / measured - 1. Errors of tried sizes show how far the network
// or the machine has changed since the trial; the others contain this, too. The baseline is the
// straight line through the first tried size and the last one, as Hashemi et al. 4.2 have it.
//
// State: warm, the ranks do nothing else. The sizes take turns in random order, repetition after
// repetition. The time of a repetition is the median of its calls, on the slowest rank, without the
// first half of the calls: they may fit into the bucket of a network that limits the rate. The mean
// of the same calls is beside it. It has all that disturbs a call, and no model of a call can.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/mpi_rank.h"
#include "bench/spread.h"
#include "lmdbio/ranks/health/job_health.h"
#include "lmdbio/ranks/mpi/mpi_group.h"
#include "lmdbio/sync/schedule/transfer_model.h"
#include "lmdbio/sync/tiers/make_collectives.h"
#include "lmdbio/sync/tiers/transfer_trial.h"

namespace lmdbio::bench {
namespace {

// The sizes between two tried ones, as multiples of the smaller one. None is a power of two, and
// two of them are no round numbers of elements of a chunk.
constexpr double kBetween[] = {1.37, 2.11, 3.03};
constexpr int kCallsMax = 2000;

using Microseconds = std::chrono::duration<double, std::micro>;

struct TransferOptions {
  uint64_t bytes_max = 24 << 20;
  int repetitions = 5;
  double seconds = 0.1;
  std::string collective = "auto";
  std::string json_path;
};

struct MeasuredSize {
  uint64_t bytes = 0;
  bool is_tried = false;
  int calls = 0;                     // of each half of a repetition
  std::vector<double> medians = {};  // [repetitions] us per call
  std::vector<double> means = {};
};

class TransferJob {
 public:
  TransferJob(ranks::Group& world, const TransferOptions& options)
      : options_(options), memory_(options.bytes_max / sizeof(float)) {
    health_ = OrDie(ranks::JobHealth::Create(world, std::chrono::seconds(10)));
    collectives_ = OrDie(sync::MakeCollectives(
        world, *health_,
        {.collective = options.collective, .registered_bytes = uint64_t{16} << 20}));
  }

  std::vector<sync::TransferSample> Try(std::chrono::nanoseconds time) {
    const auto clock = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
    return OrDie(sync::TryTransfers(*collectives_, time, clock));
  }

  // Until all sizes have their samples.
  void Measure(std::vector<MeasuredSize>& sizes) {
    for (MeasuredSize& size : sizes) size.calls = CallsOf(size.bytes);
    std::mt19937 random;  // the same on all ranks
    std::vector<MeasuredSize*> order;
    order.reserve(sizes.size());
    for (MeasuredSize& size : sizes) order.push_back(&size);
    for (int i = 0; i < options_.repetitions; ++i) {
      std::shuffle(order.begin(), order.end(), random);
      for (MeasuredSize* const size : order) {
        Call(size->bytes, size->calls);
        const CallTime time = Call(size->bytes, size->calls);
        size->medians.push_back(time.median_us);
        size->means.push_back(time.mean_us);
      }
    }
  }

  std::string Description() const { return collectives_->Description(); }

 private:
  struct CallTime {
    double median_us = 0;
    double mean_us = 0;
  };

  // On the slowest rank.
  CallTime Call(uint64_t bytes, int calls) {
    std::vector<double> times;
    times.reserve(static_cast<size_t>(calls));
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    auto before = start;
    for (int i = 0; i < calls; ++i) {
      const auto outcome = OrDie(collectives_->AllReduce(
          {.digest = bytes}, {reinterpret_cast<std::byte*>(memory_.data()), bytes / sizeof(float)},
          sync::ReduceOp::kSum));
      if (outcome != sync::CallOutcome::kDone) Die("a rank declined the call");
      const auto now = std::chrono::steady_clock::now();
      times.push_back(Microseconds(now - before).count());
      before = now;
    }
    const double mean_us = Microseconds(before - start).count() / calls;
    return {SlowestOf(tools::SpreadOf(std::move(times)).median), SlowestOf(mean_us)};
  }

  // The calls in half of the time of a repetition; the same on all ranks.
  int CallsOf(uint64_t bytes) {
    Call(bytes, 1);
    const double us = Call(bytes, 2).mean_us;
    return std::clamp(static_cast<int>(options_.seconds * 1e6 / 2 / us), 1, kCallsMax);
  }

  const TransferOptions& options_;
  std::unique_ptr<ranks::JobHealth> health_;
  std::unique_ptr<sync::Collectives> collectives_;
  std::vector<float> memory_;  // zeros
};

std::vector<MeasuredSize> SizesFor(const std::vector<sync::TransferSample>& tried,
                                   uint64_t bytes_max) {
  std::vector<MeasuredSize> sizes;
  for (const sync::TransferSample& sample : tried) {
    sizes.push_back({.bytes = sample.bytes, .is_tried = true});
    for (const double factor : kBetween) {
      const double bytes = static_cast<double>(sample.bytes) * factor;
      const auto whole = static_cast<uint64_t>(bytes) / sizeof(float) * sizeof(float);
      sizes.push_back({.bytes = whole});
      if (sample.bytes == tried.back().bytes) break;
    }
  }
  std::erase_if(sizes, [&](const MeasuredSize& size) { return size.bytes > bytes_max; });
  return sizes;
}

double ErrorPercent(int64_t predicted_ns, double measured_us) {
  return 100 * (static_cast<double>(predicted_ns) / 1000 / measured_us - 1);
}

// Median and greatest amount.
std::string ErrorText(std::vector<double> errors) {
  if (errors.empty()) return "-";
  for (double& error : errors) error = std::abs(error);
  const tools::Spread spread = tools::SpreadOf(std::move(errors));
  return fmt::format("{:.1f} % in the median, {:.1f} % at most", spread.median, spread.max);
}

struct Errors {
  std::vector<double> tried;
  std::vector<double> untried;
  std::vector<double> line;  // of untried sizes, by the straight line
};

Errors PrintRows(const std::vector<MeasuredSize>& sizes, const sync::TransferModel& model,
                 const sync::TransferModel& line, nlohmann::json& rows) {
  fmt::print("{:>10}{:>8}{:>12}{:>34}{:>12}{:>9}{:>9}\n", "bytes", "tried", "model us",
             "call us: median (min-max)", "mean us", "error %", "line %");
  Errors errors;
  for (const MeasuredSize& size : sizes) {
    const tools::Spread spread = tools::SpreadOf(size.medians);
    const double mean_us = tools::SpreadOf(size.means).median;
    const int64_t model_ns = model.TimeOf(size.bytes);
    const double error = ErrorPercent(model_ns, spread.median);
    const double line_error = ErrorPercent(line.TimeOf(size.bytes), spread.median);
    (size.is_tried ? errors.tried : errors.untried).push_back(error);
    if (!size.is_tried) errors.line.push_back(line_error);
    fmt::print("{:>10}{:>8}{:>12.1f}{:>34}{:>12.1f}{:>9.1f}{:>9.1f}\n", size.bytes,
               size.is_tried ? "yes" : "no", static_cast<double>(model_ns) / 1000,
               fmt::format("{:.1f} ({:.1f}-{:.1f})", spread.median, spread.min, spread.max),
               mean_us, error, line_error);
    rows.push_back({{"bytes", size.bytes},
                    {"is_tried", size.is_tried},
                    {"model_us", static_cast<double>(model_ns) / 1000},
                    {"median_us", spread.median},
                    {"min_us", spread.min},
                    {"max_us", spread.max},
                    {"mean_us", mean_us},
                    {"error_percent", error},
                    {"line_error_percent", line_error}});
  }
  return errors;
}

TransferOptions ParseCommandLine(int argc, char** argv) {
  namespace po = boost::program_options;
  TransferOptions options;
  po::options_description known("mpirun -n RANKS transfer_bench [OPTION...]");
  known.add_options()("help", "print this text and exit")("max", po::value(&options.bytes_max),
                                                          "largest size in bytes")(
      "repetitions", po::value(&options.repetitions), "repetitions of each measurement")(
      "seconds", po::value(&options.seconds), "approximate seconds of a repetition")(
      "collective", po::value(&options.collective),
      "auto, shm, ring, halving or direct, as users have them")(
      "json", po::value(&options.json_path), "also write the figures to this file");
  ParseOptions(argc, argv, known);
  if (options.repetitions < 1 || options.bytes_max < sync::kTransferTrialBytes.front() ||
      !(options.seconds > 0)) {
    Die(fmt::format("--repetitions must be at least 1, --max at least {}, and --seconds above 0",
                    sync::kTransferTrialBytes.front()));
  }
  if (RankCount() < 2) Die("transfers need 2 ranks or more; start it with mpirun -n 2");
  return options;
}

void Run(const TransferOptions& options) {
  const auto world = OrDie(ranks::MpiGroup(MPI_COMM_WORLD));
  TransferJob job(*world, options);
  const auto began = std::chrono::steady_clock::now();
  const auto samples = job.Try(sync::kTransferTrialTime);
  const std::chrono::duration<double> trial = std::chrono::steady_clock::now() - began;
  const auto model = OrDie(sync::TransferModel::FromSamples(samples));
  const auto line = OrDie(sync::TransferModel::FromSamples(
      std::vector<sync::TransferSample>{samples.front(), samples.back()}));
  std::vector<MeasuredSize> sizes = SizesFor(samples, options.bytes_max);
  job.Measure(sizes);
  if (Rank() != 0) return;
  fmt::print("{} ranks, MPI {}; {}\nthe trial took {:.2f} s for {} sizes\n", RankCount(),
             MpiWaitMode(), job.Description(), trial.count(), samples.size());
  nlohmann::json report{{"ranks", RankCount()},
                        {"mpi_wait", MpiWaitMode()},
                        {"collectives", job.Description()},
                        {"trial_seconds", trial.count()},
                        {"rows", nlohmann::json::array()}};
  const Errors errors = PrintRows(sizes, model, line, report["rows"]);
  fmt::print("errors without sign: of untried sizes {}; of tried ones {}; of the line {}\n",
             ErrorText(errors.untried), ErrorText(errors.tried), ErrorText(errors.line));
  if (!options.json_path.empty()) WriteReport(report, options.json_path);
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lmdbio::bench::Run(lmdbio::bench::ParseCommandLine(argc, argv));
  MPI_Finalize();
  return 0;
}
