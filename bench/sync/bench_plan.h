// bench/sync/bench_plan.h - the options of sync_bench.
#ifndef LMDBIO_BENCH_SYNC_BENCH_PLAN_H_
#define LMDBIO_BENCH_SYNC_BENCH_PLAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/sync_run.h"
#include "lmdbio/base/placement.h"
#include "tools/cli/cli.h"

namespace lmdbio::bench {

// The work of a rank, in time and in units.
struct WorkPlan {
  double compute_ms = 0;     // of an iteration
  std::string compute_like;  // network that takes it; "": all of them
  double compute_like_madds = 0;
  double input_duty = 0;
  double input_batch_ms = 0;    // 0: by input_duty
  double units_per_second = 0;  // 0: not yet measured
  bool has_accelerator = false;
  bool is_backward_greedy = false;  // layers/backward_order.h; else as the network has them
  WorkloadOptions options;
};

// The options, and the answers to them that need other ranks.
struct BenchPlan {
  std::vector<std::string> networks;
  std::vector<std::string> variant_names;
  std::vector<Variant> variants;              // that this job can measure
  std::map<std::string, std::string> absent;  // variant -> reason
  std::set<BenchRunKind> kinds;
  std::vector<std::string> alone_names;  // variants with runs of kAlone; empty: all
  Placement placement;                   // of this rank, for variants with +scp
  std::string baseline;
  uint32_t repetition_count = 0;
  double scale = 1;
  WorkPlan work;
  uint64_t seed = 0;

  // Whether its communication is measured alone.
  bool has_alone(const Variant& variant) const;
};

void DescribeBenchOptions(boost::program_options::options_description_easy_init option);

// Throws tools::Misuse, which names the option.
BenchPlan ReadPlan(const tools::Invocation& invocation, int rank);
SyncSettings ReadSettings(const tools::Invocation& invocation);
// Sets the limits of runs.
void ReadLimits(const tools::Invocation& invocation, RunStage& stage);

// Errors: as ReadNetwork
Result<LayerNetwork> ReadNamedNetwork(const std::string& name, double scale);

// The work that takes so many milliseconds on a core of its own.
uint64_t UnitsOf(double ms, const WorkPlan& work);
// The computing time of an iteration, on a core of its own.
double ComputeMs(const WorkPlan& work, const LayerNetwork& network);

nlohmann::ordered_json DescribeSettings(const BenchPlan& plan, const RunStage& stage);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_BENCH_PLAN_H_
