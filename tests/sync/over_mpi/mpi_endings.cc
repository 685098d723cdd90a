// mpi_endings MODE [RANK]: one way for a job with shared memory to end, for mpi_endings_test.py.
//
//   orderly    memory and groups are released, then MPI
//   outlive    MPI_Finalize first, then memory and groups
//   abandon    every rank gives the memory up, at a time of its own
//   kill RANK  this rank is killed, while the others wait for it
//   large MIB  so much memory is asked for, and released
//
// While the memory is in use, rank 0 prints the paths of its mappings, one a line, and the note of
// the memory; or the reason why there is none. With LMDBIO_TEST_NO_MEMFD the memory is an MPI
// window.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <mpi.h>

#include "lmdbio/ranks/mpi/mpi_group.h"
#include "tests/support/in_child.h"

namespace {

using lmdbio::ranks::Group;
using lmdbio::ranks::SharedMemory;

constexpr uint64_t kSharedBytes = 1 << 20;

void PrintMapped(const SharedMemory& memory) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = std::min(line.find("/dev/shm/"), line.find("/memfd:"));
    if (path != std::string::npos) std::printf("%s\n", line.c_str() + path);
  }
  std::printf("note: %s\n", std::string(memory.note()).c_str());
  std::fflush(stdout);
}

struct EndingJob {
  std::unique_ptr<Group> host;
  std::unique_ptr<SharedMemory> memory;
};

// Ends the program when anything else than the memory fails; mpirun then ends the other ranks.
EndingJob Start(uint64_t size_bytes) {
  auto world = lmdbio::ranks::MpiGroup(MPI_COMM_WORLD);
  if (!world) std::exit(2);
  auto host = (*world)->SplitByHost();
  if (!host) std::exit(2);
  auto memory = (*host)->AllocateShared(size_bytes);
  if (!memory) {
    if ((*host)->rank() == 0) std::printf("refused: %s\n", memory.error().message().c_str());
    return {.host = std::move(*host), .memory = nullptr};
  }
  (*memory)->bytes()[static_cast<size_t>((*host)->rank())] = std::byte{1};
  if (!(*host)->Barrier()) std::exit(2);
  if ((*host)->rank() == 0) PrintMapped(**memory);
  return {.host = std::move(*host), .memory = std::move(*memory)};
}

void End(EndingJob& job, const std::string& mode, int victim) {
  const int rank = job.host->rank();
  if (mode == "kill") {
    if (!job.host->Barrier()) std::exit(2);
    if (rank == victim) std::raise(SIGKILL);
    [[maybe_unused]] const auto never = job.host->Barrier();
  } else if (mode == "abandon") {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * rank));
    job.memory->Abandon();
    job.memory.reset();
  } else if (mode == "orderly" || mode == "large") {
    job = {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  lmdbio::test::RefuseCallsIfAsked();
  const std::string mode = argv[1];
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  EndingJob job = Start(mode == "large" ? static_cast<uint64_t>(number) << 20 : kSharedBytes);
  if (job.memory != nullptr) End(job, mode, number);
  MPI_Finalize();
  return 0;
}
