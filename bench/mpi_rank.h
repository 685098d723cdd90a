// bench/mpi_rank.h - what the programs of several ranks need besides MPI's calls.
#ifndef LMDBIO_BENCH_MPI_RANK_H_
#define LMDBIO_BENCH_MPI_RANK_H_

#include <string>
#include <utility>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "lmdbio/base/status.h"

namespace lmdbio::bench {

// One rank that ends alone would leave the others in a collective call, so MPI ends the job.
[[noreturn]] void Die(const std::string& why);

template <typename T>
T OrDie(Result<T> result) {
  if (!result) Die(result.error().message());
  return std::move(*result);
}

// Collective. Stores the options that are given. Prints the help on rank 0 and ends the program if
// `help` is among them, and dies of a wrong one.
void ParseOptions(int argc, char** argv, const boost::program_options::options_description& known);

// Writes the figures of a program to a file; dies if that fails.
void WriteReport(const nlohmann::json& report, const std::string& path);

// Of MPI_COMM_WORLD.
int Rank();
int RankCount();
// Collective. The largest of the numbers of all ranks.
double SlowestOf(double mine);
// How the ranks of MPI wait, as far as MPI reports it.
std::string MpiWaitMode();

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_MPI_RANK_H_
