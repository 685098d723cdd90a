/* c_api_mpi_test DIGITS: lmdbio_open_mpi from C11, under mpirun, or the calls of c_launched.h in
 * its place. All ranks together get the records that one process gets alone, and no rank waits for
 * a rank that has failed. */
#include <errno.h>
#include <lmdbio_mpi.h>
#include <stdlib.h>

#include "tests/api/c/c_check.h"
#ifdef LMDBIO_TEST_LAUNCHED
#include "tests/api/c/c_launched.h"
#endif

static int rank, size;

/* The sum over all records of position times first value byte, of batches 0 to 49 on all ranks. */
static uint64_t sum_of(lmdbio_loader* loader) {
  uint64_t sum = 0;
  for (int i = 0; i < 50; ++i) {
    const lmdbio_batch* batch = NULL;
    CHECK_STATUS(LMDBIO_OK, lmdbio_next(loader, &batch), lmdbio_message(loader));
    if (batch == NULL) return 0;
    for (size_t r = 0; r < batch->record_count; ++r) {
      const unsigned char* value = batch->records[r].value;
      sum += (batch->records[r].position + 1) * value[batch->records[r].value_size - 1];
    }
  }
  return sum;
}

static lmdbio_options shuffled(void) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = 61;
  options.order = LMDBIO_ORDER_SHUFFLE;
  options.seed = 3;
  return options;
}

static void test_same_as_alone(const char* digits) {
  const lmdbio_options options = shuffled();
  lmdbio_loader *alone = NULL, *together = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(digits, &options, &alone), lmdbio_message(alone));
  const uint64_t expected = sum_of(alone);
  CHECK(lmdbio_close(alone) == LMDBIO_OK);

  CHECK_STATUS(LMDBIO_OK, lmdbio_open_mpi(MPI_COMM_WORLD, digits, &options, &together),
               lmdbio_message(together));
  for (int round = 0; round < 2; ++round) {
    uint64_t mine = sum_of(together), all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == expected && expected != 0);
    CHECK_STATUS(LMDBIO_OK, lmdbio_set_epoch(together, 0), lmdbio_message(together));
  }
  CHECK(lmdbio_close(together) == LMDBIO_OK);
  CHECK(lmdbio_next(together, NULL) == LMDBIO_BAD_HANDLE);
}

/* Only the last rank makes an error; all ranks get a code, and the number of that rank. */
static void test_one_rank_is_wrong(const char* digits) {
  lmdbio_options options = shuffled();
  if (rank == size - 1) options.order = 17;
  lmdbio_loader* loader = NULL;
  const int status = lmdbio_open_mpi(MPI_COMM_WORLD, digits, &options, &loader);
  CHECK(status == (rank == size - 1 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
  CHECK(strstr(lmdbio_message(loader), "options.order") != NULL);
  CHECK(lmdbio_errno(loader) == 0);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);

  CHECK(lmdbio_open_mpi(MPI_COMM_WORLD, rank == 0 ? NULL : digits, NULL, &loader) ==
        (rank == 0 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_open_mpi(MPI_COMM_WORLD, rank == 0 ? "nowhere" : digits, NULL, &loader) ==
        (rank == 0 ? LMDBIO_NOT_FOUND : LMDBIO_PEER_FAILED));
  CHECK(lmdbio_errno(loader) == ENOENT); /* of rank 0's system call, on all ranks */
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

static void test_no_communicator(const char* digits) {
  lmdbio_loader* loader = NULL;
  CHECK(lmdbio_open_mpi(MPI_COMM_NULL, digits, NULL, &loader) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strlen(lmdbio_message(loader)) > 0);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_open_mpi(MPI_COMM_WORLD, digits, NULL, rank == 0 ? NULL : &loader) ==
        (rank == 0 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
  if (rank > 0) CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2) {
    fprintf(stderr, "c_api_mpi_test DIGITS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  test_same_as_alone(argv[1]);
  test_one_rank_is_wrong(argv[1]);
  test_no_communicator(argv[1]);
  int failures = 0;
  MPI_Allreduce(&c_check_failures, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures > 0;
}
