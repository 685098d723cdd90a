// bench/allreduce_ways.h - the ways to sum floats over all ranks that allreduce_bench compares.
#ifndef LMDBIO_BENCH_ALLREDUCE_WAYS_H_
#define LMDBIO_BENCH_ALLREDUCE_WAYS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/mpi_rank.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::bench {

struct AllReduceOptions {
  size_t bytes_min = 8;
  size_t bytes_max = 256 << 20;
  size_t registered_bytes = 64 << 20;
  size_t staging_bytes = 0;  // 0: that of sync::HostOptions
  int repetitions = 9;
  double seconds = 0.02;  // the approximate time of a repetition
  std::string wait;       // "spin", "sleep"; empty: as suits the ranks
  std::string way = "auto";
  std::string over;       // "memory", "wire"; empty: memory if all ranks share a host
  std::string interface;  // of Gloo; empty: "lo" on one host, else "eth0"
  std::string json_path;
};

struct Way {
  std::string name;
  std::function<void(float* values, size_t count)> sum;  // empty: not in this build
  float* memory = nullptr;
  size_t bytes_max = 0;   // of the memory
  bool is_sum = true;     // false: moves bytes, and changes no value
  sync::WireTable table;  // of messages; empty: other ways
};

// The ways of one program, and the objects behind them. The first is lmdbio as users get it; "mpi"
// and "gloo" are the last.
class WaySet {
 public:
  WaySet() = default;
  virtual ~WaySet() = default;
  WaySet(const WaySet&) = delete;
  WaySet& operator=(const WaySet&) = delete;
  std::vector<Way> ways;
  nlohmann::json facts;  // "wait"; over messages also "description" and "trial_seconds"
};

// Collective. lmdbio's collectives over the memory of a host, twice: with memory of the caller, and
// "in place" with registered memory, which a fusion buffer uses.
std::unique_ptr<WaySet> MemoryWays(ranks::Group& host, const AllReduceOptions& options);
// Collective. lmdbio's collectives over messages: with the trial; with its choice and each fixed
// depth ("depth 1"); by each algorithm for all sizes. "transfer" moves the bytes that a sum needs,
// from each rank to the next one, and reduces nothing: the rate of the network.
std::unique_ptr<WaySet> WireWays(ranks::Group& world, bool is_one_host,
                                 const AllReduceOptions& options);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_ALLREDUCE_WAYS_H_
