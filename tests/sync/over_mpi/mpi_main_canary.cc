// A test that fails on one rank while the others wait for it. mpi_endings_test.py checks how
// mpi_main.cc ends the job.
#include <mpi.h>

#include "tests/support/catch.h"

namespace {

TEST_CASE("passes", "[canary]") {
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(true);
}

TEST_CASE("fails on rank 1", "[canary]") {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  REQUIRE(rank != 1);
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
