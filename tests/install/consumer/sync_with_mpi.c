/* Prints the sum of 1, 2, ... over all ranks of a job. */
#include <stdio.h>

#include <lmdbio_mpi.h>

int main(int argc, char** argv) {
  int provided = 0, rank = 0, rank_count = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.coordinator = "cache";
  lmdbio_sync* sync = NULL;
  lmdbio_sync_op* op = NULL;
  int status = lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync);
  if (status == LMDBIO_OK) status = lmdbio_sync_rank(sync, &rank, &rank_count);
  double value = rank + 1;
  if (status == LMDBIO_OK) {
    status = lmdbio_sync_allreduce(sync, "value", &value, 1, LMDBIO_FLOAT64, &op);
  }
  if (status == LMDBIO_OK) status = lmdbio_sync_op_wait(op);
  if (status == LMDBIO_OK) status = lmdbio_sync_shutdown(sync);
  if (status != LMDBIO_OK) fprintf(stderr, "%s\n", lmdbio_sync_message(sync));
  lmdbio_sync_op_close(op);
  lmdbio_sync_close(sync);
  if (rank == 0) printf("%d ranks, sum %g\n", rank_count, value);
  MPI_Finalize();
  return status;
}
