// mpi_endings MODE [RANK]: one way for a job with shared memory to end, for mpi_endings_test.py.
//
//   orderly    memory and groups are released, then MPI
//   outlive    MPI_Finalize first, then memory and groups
//   abandon    every rank gives the memory up, at a time of its own
//   kill RANK  this rank is killed, while the others wait for it
//
// Rank 0 prints what it has mapped from /dev/shm while the memory is in use, one path a line.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <mpi.h>

#include "lmdbio/mpi/mpi_group.h"

namespace {

using lmdbio::comm::Group;
using lmdbio::comm::SharedMemory;

constexpr uint64_t kSharedBytes = 1 << 20;

void PrintMapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find("/dev/shm/");
    if (path != std::string::npos) std::printf("%s\n", line.c_str() + path);
  }
  std::fflush(stdout);
}

struct Job {
  std::unique_ptr<Group> host;
  std::unique_ptr<SharedMemory> memory;
};

// Ends the program when anything fails; mpirun then ends the other ranks.
Job Start() {
  auto world = lmdbio::mpi::MpiGroup(MPI_COMM_WORLD);
  if (!world) std::exit(2);
  auto host = (*world)->SplitByHost();
  if (!host) std::exit(2);
  auto memory = (*host)->AllocateShared(kSharedBytes);
  if (!memory) std::exit(2);
  (*memory)->bytes()[static_cast<size_t>((*host)->rank())] = std::byte{1};
  if (!(*host)->Barrier()) std::exit(2);
  if ((*host)->rank() == 0) PrintMapped();
  return {.host = std::move(*host), .memory = std::move(*memory)};
}

void End(Job& job, const std::string& mode, int victim) {
  const int rank = job.host->rank();
  if (mode == "kill") {
    if (!job.host->Barrier()) std::exit(2);
    if (rank == victim) std::raise(SIGKILL);
    [[maybe_unused]] const auto never = job.host->Barrier();
  } else if (mode == "abandon") {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * rank));
    job.memory->Abandon();
    job.memory.reset();
  } else if (mode == "orderly") {
    job = {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  Job job = Start();
  End(job, argv[1], argc > 2 ? std::atoi(argv[2]) : 0);
  MPI_Finalize();
  return 0;
}
