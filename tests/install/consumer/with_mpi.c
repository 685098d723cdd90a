/* As in_c.c, with all ranks of a job; each rank reads its share. */
#include <inttypes.h>
#include <stdio.h>

#include <lmdbio_mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.tail = LMDBIO_TAIL_SHORT;
  lmdbio_loader* loader = NULL;
  int status = lmdbio_open_mpi(MPI_COMM_WORLD, argc == 2 ? argv[1] : NULL, &options, &loader);
  uint64_t mine[2] = {0, 0}, all[2] = {0, 0};
  const lmdbio_batch* batch = NULL;
  while (status == LMDBIO_OK && (batch == NULL || !batch->ends_epoch)) {
    status = lmdbio_next(loader, &batch);
    for (size_t i = 0; status == LMDBIO_OK && i < batch->record_count; ++i) {
      ++mine[0];
      mine[1] += batch->records[i].value_size;
    }
  }
  if (status != LMDBIO_OK) fprintf(stderr, "%s\n", lmdbio_message(loader));
  lmdbio_close(loader);
  MPI_Reduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) printf("%" PRIu64 " records, %" PRIu64 " bytes\n", all[0], all[1]);
  MPI_Finalize();
  return status;
}
