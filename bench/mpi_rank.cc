#include "bench/mpi_rank.h"

#include <mpi.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <span>
#include <thread>

#include "lmdbio/file/source/small_file.h"

namespace lmdbio::bench {

void Die(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

void ParseOptions(int argc, char** argv, const boost::program_options::options_description& known) {
  namespace po = boost::program_options;
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
}

void WriteReport(const nlohmann::json& report, const std::string& path) {
  const std::string text = report.dump(2) + "\n";
  const auto written = file::WriteFileAtomically(path, std::as_bytes(std::span(text)));
  if (!written) Die(written.error().message());
}

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

std::string MpiWaitMode() {
  // Open MPI yields by itself only if it starts more ranks than slots. The number of cores stands
  // for that of slots.
  const char* const asked = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  if (asked != nullptr) return asked[0] == '0' ? "spins (asked)" : "yields (asked)";
  return static_cast<unsigned>(RankCount()) > std::thread::hardware_concurrency()
             ? "yields (more ranks than cores)"
             : "spins";
}

}  // namespace lmdbio::bench
