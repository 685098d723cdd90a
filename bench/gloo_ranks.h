// bench/gloo_ranks.h - Gloo among the ranks of an MPI program, where this machine has it.
#ifndef BENCH_GLOO_RANKS_H_
#define BENCH_GLOO_RANKS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace lmdbio::bench {

class GlooRanks {
 public:
  virtual ~GlooRanks() = default;
  // Its default: the ring.
  virtual void AllReduceSum(float* values, size_t count) = 0;
};

// Collective. Over TCP and the loopback interface; nullptr where the program is built without Gloo.
// gather  what every rank brings, rank after rank; the same size on all ranks
// Throws what Gloo throws
using GatherFromAll = std::function<std::vector<char>(const std::vector<char>& mine)>;
std::unique_ptr<GlooRanks> ConnectGloo(int rank, int rank_count, const GatherFromAll& gather);

}  // namespace lmdbio::bench
#endif  // BENCH_GLOO_RANKS_H_
