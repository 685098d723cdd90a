// tests/ranks/launcher/world_group.h - the ranks of an MPI job as a group, with or without MPI.
//
// With LMDBIO_TEST_LAUNCHED=1 the ranks of mpirun meet as those of a launcher. MPI then tells them
// their numbers and a port, and has the expected results.
#ifndef LMDBIO_TESTS_RANKS_LAUNCHER_WORLD_GROUP_H_
#define LMDBIO_TESTS_RANKS_LAUNCHER_WORLD_GROUP_H_

#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/ranks/mpi/mpi_group.h"

namespace lmdbio::test {

// Collective over MPI_COMM_WORLD.
inline Result<std::unique_ptr<ranks::Group>> WorldGroup() {
  if (std::getenv("LMDBIO_TEST_LAUNCHED") == nullptr) return ranks::MpiGroup(MPI_COMM_WORLD);
  ranks::Launch launch;
  launch.host = "localhost";
  launch.port_count = 16;
  launch.meeting = ranks::NextMeetingNumber();
  MPI_Comm_rank(MPI_COMM_WORLD, &launch.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &launch.size);
  // Another job at the same port has another number, and keeps to itself.
  launch.job = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  MPI_Bcast(&launch.job, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  launch.first_port = static_cast<uint16_t>(12000 + launch.job / 1000 % 18000);
  return ranks::LaunchedGroup(launch);
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_LAUNCHER_WORLD_GROUP_H_
