#include "bench/sync/sync_report.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace lmdbio::bench {
namespace {

using nlohmann::ordered_json;
using Runs = std::vector<const RunResult*>;

// The clean runs of a kind; all runs of that kind, if none is clean.
Runs RunsOf(std::span<const RunResult> runs, const std::string& variant, BenchRunKind kind) {
  Runs all;
  Runs clean;
  for (const RunResult& run : runs) {
    if (run.variant != variant || run.kind != kind || !run.error.empty()) continue;
    all.push_back(&run);
    if (!run.is_disturbed) clean.push_back(&run);
  }
  return clean.empty() ? all : clean;
}

std::vector<double> TimesOf(const Runs& runs) {
  std::vector<double> times;
  for (const RunResult* run : runs) {
    times.insert(times.end(), run->iteration_ms.begin(), run->iteration_ms.end());
  }
  return times;
}

std::optional<double> MedianOf(const Runs& runs) {
  if (runs.empty()) return std::nullopt;
  return QuantileOf(TimesOf(runs), 0.5);
}

// The time of `numerator` divided by the time of `denominator`. Each repetition gives the ratio of
// two medians, and the result is the median of these ratios. Pairs are necessary, because the speed
// of a machine drifts by more than the effect. If no repetition has both runs: the ratio over all
// iterations.
double PairedRatio(const Runs& numerator, const Runs& denominator) {
  std::vector<double> ratios;
  for (const RunResult* one : numerator) {
    for (const RunResult* other : denominator) {
      if (one->repetition == other->repetition) {
        ratios.push_back(*MedianOf({one}) / *MedianOf({other}));
      }
    }
  }
  if (ratios.empty()) return *MedianOf(numerator) / *MedianOf(denominator);
  return QuantileOf(ratios, 0.5);
}

// The median over runs of the largest value of a rank.
double GreatestOf(const Runs& runs, const std::function<double(const RankCost&)>& value) {
  std::vector<double> greatest;
  for (const RunResult* run : runs) {
    double most = 0;
    for (const RankCost& rank : run->ranks) most = std::max(most, value(rank));
    greatest.push_back(most);
  }
  return QuantileOf(greatest, 0.5);
}

double HelperShare(const Runs& runs) {
  return GreatestOf(runs, [](const RankCost& cost) { return cost.helper.cpu_s / cost.wall_s; });
}

void AddTimes(const Runs& runs, VariantSummary& summary) {
  const std::vector<double> times = TimesOf(runs);
  summary.times.p50_ms = QuantileOf(times, 0.5);
  summary.times.p95_ms = QuantileOf(times, 0.95);
  // The medians of the runs show how far the machine drifts between runs.
  for (const RunResult* run : runs) {
    const double p50 = QuantileOf(run->iteration_ms, 0.5);
    const bool is_first = run == runs.front();
    summary.times.run_p50_min_ms = is_first ? p50 : std::min(p50, summary.times.run_p50_min_ms);
    summary.times.run_p50_max_ms = is_first ? p50 : std::max(p50, summary.times.run_p50_max_ms);
  }
}

// The median over calls, and not over sizes: the second loop stops at the size at which half of the
// calls are passed.
void AddSizes(const Runs& runs, VariantSummary& summary) {
  std::map<uint64_t, uint64_t> sizes;
  uint64_t count = 0;
  for (const RunResult* run : runs) {
    for (const auto& [bytes, times] : run->sizes) {
      sizes[bytes] += times;
      count += times;
    }
  }
  if (count == 0) return;
  uint64_t passed = 0;
  for (const auto& [bytes, times] : sizes) {
    passed += times;
    if (2 * passed < count) continue;
    summary.traffic.sizes = {sizes.begin()->first, bytes, sizes.rbegin()->first};
    return;
  }
}

void AddSwitches(const Runs& runs, double run_iterations, VariantSummary& summary) {
  const auto greatest = [&](uint64_t (*count)(const RankCost&)) {
    const double most =
        GreatestOf(runs, [&](const RankCost& cost) { return static_cast<double>(count(cost)); });
    return most / run_iterations;
  };
  summary.switches.computing =
      greatest([](const RankCost& cost) { return cost.computing_switches; });
  summary.switches.input = greatest([](const RankCost& cost) { return cost.input_switches; });
  summary.switches.helper =
      greatest([](const RankCost& cost) { return cost.helper.involuntary_count; });
}

void AddLateness(const Runs& runs, VariantSummary& summary) {
  summary.helper.delay_us_a_start = GreatestOf(runs, [](const RankCost& cost) {
    return cost.helper.delay_s * 1e6 / std::max(1.0, static_cast<double>(cost.helper.start_count));
  });
  const double sleeps = GreatestOf(
      runs, [](const RankCost& cost) { return static_cast<double>(cost.helper.sleep_count); });
  if (sleeps == 0) return;
  summary.helper.late_p50_us =
      GreatestOf(runs, [](const RankCost& cost) { return cost.helper.late_p50_us; });
  summary.helper.late_p99_us =
      GreatestOf(runs, [](const RankCost& cost) { return cost.helper.late_p99_us; });
}

// The median over runs of the mean over ranks.
double WindowShare(const Runs& runs) {
  std::vector<double> shares;
  for (const RunResult* run : runs) {
    double sum = 0;
    for (const RankCost& rank : run->ranks) sum += rank.window_share;
    shares.push_back(sum / static_cast<double>(run->ranks.size()));
  }
  return QuantileOf(shares, 0.5);
}

// The traffic is that of rank 0, which takes part in every exchange. Thread times are those of the
// rank with the largest ones, because the others wait for it.
void AddCosts(const Runs& runs, VariantSummary& summary) {
  double iterations = 0;
  double messages = 0;
  double mpi_calls = 0;
  double collectives = 0;
  double bytes = 0;
  for (const RunResult* run : runs) {
    iterations += static_cast<double>(run->iteration_ms.size());
    messages += static_cast<double>(run->ranks.front().traffic.control_messages);
    mpi_calls += static_cast<double>(run->ranks.front().traffic.mpi_calls);
    collectives += static_cast<double>(run->ranks.front().traffic.collectives);
    bytes += static_cast<double>(run->ranks.front().traffic.collective_bytes);
  }
  summary.traffic.control_messages = messages / iterations;
  summary.traffic.mpi_calls = mpi_calls / iterations;
  summary.traffic.collectives = collectives / iterations;
  if (collectives > 0) summary.traffic.collective_bytes = bytes / collectives;
  summary.helper.share = HelperShare(runs);
  // Delays are those of a whole run, so they are divided by its iterations.
  const double run_iterations = iterations / static_cast<double>(runs.size());
  summary.helper.delay_ms =
      GreatestOf(runs, [](const RankCost& cost) { return cost.helper.delay_s; }) * 1e3 /
      run_iterations;
  summary.helper.trainer_delay_ms =
      GreatestOf(runs, [](const RankCost& cost) { return cost.trainer_delay_s; }) * 1e3 /
      run_iterations;
  AddSwitches(runs, run_iterations, summary);
  AddLateness(runs, summary);
  summary.window_share = WindowShare(runs);
}

void AddPrediction(const Runs& runs, VariantSummary& summary) {
  std::vector<PredictedRun> predicted;
  for (const RunResult* run : runs) {
    if (!run->prediction) continue;
    predicted.push_back({*run->prediction, QuantileOf(run->iteration_ms, 0.5), run->untried_sizes});
  }
  summary.prediction = SummarisePredictions(predicted);
}

VariantSummary SummaryOf(std::span<const RunResult> runs, const std::string& variant) {
  VariantSummary summary;
  summary.variant = variant;
  for (const RunResult& run : runs) {
    if (run.variant != variant) continue;
    if (!run.error.empty()) summary.error = run.error;
    if (run.kind != BenchRunKind::kTrain || !run.error.empty()) continue;
    ++summary.run_count;
    if (!run.is_disturbed) ++summary.clean_count;
  }
  const Runs train = RunsOf(runs, variant, BenchRunKind::kTrain);
  if (train.empty()) return summary;
  AddTimes(train, summary);
  AddSizes(train, summary);
  AddCosts(train, summary);
  AddPrediction(train, summary);
  // The exposed time is the difference to computing alone. The overlap compares it with the time of
  // the communication alone: 1 if all of it is hidden, negative if both together take longer than
  // one after the other.
  const Runs none = RunsOf(runs, "none", BenchRunKind::kTrain);
  const std::optional<double> computing = MedianOf(none);
  if (variant != "none" && computing) {
    summary.exposed_ms = summary.times.p50_ms - *computing;
    const Runs idle = RunsOf(runs, variant, BenchRunKind::kIdle);
    if (!idle.empty()) {
      summary.helper.idle_slowdown = PairedRatio(idle, none);
      summary.helper.idle_share = HelperShare(idle);
    }
  }
  summary.alone_ms = MedianOf(RunsOf(runs, variant, BenchRunKind::kAlone));
  if (summary.exposed_ms && summary.alone_ms && *summary.alone_ms > 0) {
    summary.overlap = 1 - *summary.exposed_ms / *summary.alone_ms;
    summary.coefficients = OverlapOf(summary.times.p50_ms, *computing, *summary.alone_ms);
  }
  return summary;
}

std::string OrDash(const std::optional<double>& value, int digits, double factor = 1) {
  return value ? fmt::format("{:.{}f}", *value * factor, digits) : "-";
}

std::string SizeText(double bytes) {
  if (bytes >= 1e6) return fmt::format("{:.1f}M", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.1f}k", bytes / 1e3);
  return fmt::format("{:.0f}", bytes);
}

std::string CoefficientsText(const std::optional<Overlap>& overlap) {
  if (!overlap) return "- | - | - | -";
  return fmt::format("{:.2f} | {:.2f} | {:.0f} | {:.2f}", overlap->rho, overlap->alpha,
                     overlap->utilisation * 100, overlap->bound_ratio);
}

std::string PredictionText(const std::optional<PredictionSummary>& prediction) {
  if (!prediction) return "- | - | - | -";
  return fmt::format("{:.2f} | {:.1f}, {:.1f} | {:.2f} | {}, {}", prediction->predicted_ms,
                     prediction->error * 100, prediction->error_furthest * 100,
                     prediction->least_ratio, OrDash(prediction->transfer_error, 1, 100),
                     OrDash(prediction->transfer_error_max, 1, 100));
}

// Only the mean, if the variant does not report the sizes of single calls.
std::string SizesText(const VariantSummary& summary) {
  if (summary.traffic.collectives == 0) return "-";
  if (summary.traffic.sizes.empty())
    return fmt::format("mean {}", SizeText(summary.traffic.collective_bytes));
  return fmt::format("{} / {} / {}", SizeText(static_cast<double>(summary.traffic.sizes[0])),
                     SizeText(static_cast<double>(summary.traffic.sizes[1])),
                     SizeText(static_cast<double>(summary.traffic.sizes[2])));
}

}  // namespace

std::vector<VariantSummary> Summarise(std::span<const RunResult> runs,
                                      const std::string& baseline) {
  std::vector<VariantSummary> summaries;
  double baseline_ms = 0;
  for (const RunResult& run : runs) {
    const bool is_known =
        std::any_of(summaries.begin(), summaries.end(),
                    [&](const VariantSummary& summary) { return summary.variant == run.variant; });
    if (is_known) continue;
    summaries.push_back(SummaryOf(runs, run.variant));
    if (run.variant == baseline) baseline_ms = summaries.back().times.p50_ms;
  }
  for (VariantSummary& summary : summaries) {
    // After all summaries, because the baseline may stand behind other variants.
    if (baseline_ms > 0 && summary.run_count > 0)
      summary.ratio = summary.times.p50_ms / baseline_ms;
  }
  return summaries;
}

// README.md "Output" explains the columns.
std::string Table(std::span<const VariantSummary> summaries) {
  std::string text =
      "| variant | p50 ms (runs) | p95 ms | x baseline | exposed ms | alone ms | overlap % | "
      "rho | alpha | U % | x bound | predicted ms | prediction error % p50, furthest | x least | "
      "transfer error % p50, max | idle x | helper % idle, train | run delay ms helper, trainer "
      "| switches computing, helper | "
      "late us p50, p99 | window % | control/it | data/it | MPI calls/it | "
      "bytes min / p50 / max | clean runs |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
      "---|---|---|---|\n";
  for (const VariantSummary& one : summaries) {
    if (one.run_count == 0) {
      text += fmt::format("| {} | failed: {} | | | | | | | | | | | | | | | | | | | | | | | | |\n",
                          one.variant, one.error);
      continue;
    }
    text += fmt::format(
        "| {} | {:.2f} ({:.2f}..{:.2f}) | {:.2f} | {} | {} | {} | {} | {} | {} | {} | ",
        one.variant, one.times.p50_ms, one.times.run_p50_min_ms, one.times.run_p50_max_ms,
        one.times.p95_ms, OrDash(one.ratio, 2), OrDash(one.exposed_ms, 2), OrDash(one.alone_ms, 2),
        OrDash(one.overlap, 0, 100), CoefficientsText(one.coefficients),
        PredictionText(one.prediction), OrDash(one.helper.idle_slowdown, 3));
    text += fmt::format("{}, {:.1f} | {:.2f}, {:.2f} | {:.1f}, {:.1f} | {}, {} | {:.0f} | ",
                        OrDash(one.helper.idle_share, 1, 100), one.helper.share * 100,
                        one.helper.delay_ms, one.helper.trainer_delay_ms, one.switches.computing,
                        one.switches.helper, OrDash(one.helper.late_p50_us, 0),
                        OrDash(one.helper.late_p99_us, 0), one.window_share * 100);
    text += fmt::format("{:.1f} | {:.1f} | {:.1f} | {} | {}/{} |\n", one.traffic.control_messages,
                        one.traffic.collectives, one.traffic.mpi_calls, SizesText(one),
                        one.clean_count, one.run_count);
  }
  return text;
}

ordered_json ToJson(const VariantSummary& summary) {
  ordered_json json;
  json["variant"] = summary.variant;
  if (!summary.error.empty()) json["error"] = summary.error;
  json["runs"] = summary.run_count;
  json["clean_runs"] = summary.clean_count;
  if (summary.run_count == 0) return json;
  json["p50_ms"] = summary.times.p50_ms;
  json["p95_ms"] = summary.times.p95_ms;
  json["run_p50_min_ms"] = summary.times.run_p50_min_ms;
  json["run_p50_max_ms"] = summary.times.run_p50_max_ms;
  // A quantity that was not measured has no key, so that a reader cannot take it for 0.
  const auto put = [&](const char* name, const std::optional<double>& value) {
    if (value) json[name] = *value;
  };
  put("x_baseline", summary.ratio);
  put("exposed_ms", summary.exposed_ms);
  put("alone_ms", summary.alone_ms);
  put("overlap", summary.overlap);
  if (summary.coefficients) {
    json["rho"] = summary.coefficients->rho;
    json["alpha"] = summary.coefficients->alpha;
    json["utilisation"] = summary.coefficients->utilisation;
    json["x_bound"] = summary.coefficients->bound_ratio;
  }
  if (summary.prediction) {
    json["predicted_ms"] = summary.prediction->predicted_ms;
    json["prediction_error"] = summary.prediction->error;
    json["prediction_error_furthest"] = summary.prediction->error_furthest;
    json["x_least"] = summary.prediction->least_ratio;
    put("transfer_error", summary.prediction->transfer_error);
    put("transfer_error_max", summary.prediction->transfer_error_max);
  }
  put("idle_slowdown", summary.helper.idle_slowdown);
  put("idle_helper_share", summary.helper.idle_share);
  json["helper_share"] = summary.helper.share;
  json["helper_run_delay_ms"] = summary.helper.delay_ms;
  json["trainer_run_delay_ms"] = summary.helper.trainer_delay_ms;
  json["helper_run_delay_us_a_start"] = summary.helper.delay_us_a_start;
  put("helper_late_p50_us", summary.helper.late_p50_us);
  put("helper_late_p99_us", summary.helper.late_p99_us);
  json["computing_switches"] = summary.switches.computing;
  json["input_switches"] = summary.switches.input;
  json["helper_switches"] = summary.switches.helper;
  json["window_share"] = summary.window_share;
  json["control_messages"] = summary.traffic.control_messages;
  json["mpi_calls"] = summary.traffic.mpi_calls;
  json["collectives"] = summary.traffic.collectives;
  json["collective_bytes_mean"] = summary.traffic.collective_bytes;
  if (!summary.traffic.sizes.empty()) json["collective_bytes_min_p50_max"] = summary.traffic.sizes;
  return json;
}

ordered_json ToJson(const RunResult& run) {
  ordered_json json;
  json["variant"] = run.variant;
  json["kind"] = NameOf(run.kind);
  json["repetition"] = run.repetition;
  if (!run.error.empty()) {
    json["error"] = run.error;
    return json;
  }
  json["is_disturbed"] = run.is_disturbed;
  json["neighbour_cores"] = run.neighbour_cores();
  json["iteration_ms"] = run.iteration_ms;
  json["description"] = run.description;
  if (run.prediction) {
    json["prediction"] = {{"iteration_ms", run.prediction->iteration_ms},
                          {"bound_ms", run.prediction->bound_ms},
                          {"is_by_arrival", run.prediction->is_by_arrival}};
    json["untried_sizes"] = ordered_json::array();
    for (const TransferFigure& figure : run.untried_sizes) {
      json["untried_sizes"].push_back({figure.bytes, figure.predicted_ns, figure.measured_ns});
    }
  }
  json["cores"] = {{"computing", run.cores.computing},
                   {"input", run.cores.input},
                   {"helpers", run.cores.helpers}};
  json["collective_sizes"] = ordered_json::array();
  for (const auto& [bytes, count] : run.sizes) {
    json["collective_sizes"].push_back({bytes, count});
  }
  for (const RankCost& rank : run.ranks) {
    json["ranks"].push_back({{"wall_s", rank.wall_s},
                             {"process_cpu_s", rank.process_cpu_s},
                             {"helper_cpu_s", rank.helper.cpu_s},
                             {"helper_run_delay_s", rank.helper.delay_s},
                             {"helper_starts", rank.helper.start_count},
                             {"trainer_run_delay_s", rank.trainer_delay_s},
                             {"computing_switches", rank.computing_switches},
                             {"input_switches", rank.input_switches},
                             {"helper_switches", rank.helper.involuntary_count},
                             {"helper_sleeps", rank.helper.sleep_count},
                             {"late_p50_us", rank.helper.late_p50_us},
                             {"late_p99_us", rank.helper.late_p99_us},
                             {"input_batches", rank.input_batches},
                             {"window_share", rank.window_share},
                             {"early_transfers", rank.early_transfers},
                             {"steal_cores", rank.steal_cores},
                             {"control_messages", rank.traffic.control_messages},
                             {"control_bytes", rank.traffic.control_bytes},
                             {"mpi_calls", rank.traffic.mpi_calls},
                             {"collectives", rank.traffic.collectives},
                             {"collective_bytes", rank.traffic.collective_bytes},
                             {"checksum", fmt::format("{:016x}", rank.checksum)}});
  }
  return json;
}

}  // namespace lmdbio::bench
