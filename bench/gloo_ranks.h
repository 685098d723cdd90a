// bench/gloo_ranks.h - Gloo among the ranks of an MPI program, if this machine has Gloo.
#ifndef LMDBIO_BENCH_GLOO_RANKS_H_
#define LMDBIO_BENCH_GLOO_RANKS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmdbio::bench {

class GlooRanks {
 public:
  virtual ~GlooRanks() = default;
  // With Gloo's default algorithm, the ring.
  virtual void AllReduceSum(float* values, size_t count) = 0;
};

// Collective. Connects the ranks over TCP. They exchange their addresses in a directory that all of
// them see. Returns nullptr if the program is built without Gloo. Throws the exceptions of Gloo.
// interface  the network interface: "lo" for ranks that share a host
// gather     returns the bytes of all ranks in rank order; all ranks give the same number of bytes
using GatherFromAll = std::function<std::vector<char>(const std::vector<char>& mine)>;
std::unique_ptr<GlooRanks> ConnectGloo(int rank, int rank_count, const std::string& interface,
                                       const GatherFromAll& gather);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_GLOO_RANKS_H_
