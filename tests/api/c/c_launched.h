/* c_launched.h - lets the tests of lmdbio_mpi.h open their handles without MPI, as the ranks of a
 * launcher. MPI still starts the ranks, and has the expected results.
 *
 * LMDBIO_TEST_LAUNCHED  1: by the variables of torchrun; 2: in a store, whose keys are files */
#ifndef LMDBIO_TESTS_API_C_C_LAUNCHED_H_
#define LMDBIO_TESTS_API_C_C_LAUNCHED_H_

#include <lmdbio_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A number that all ranks of the communicator have, and other calls do not. */
static unsigned common_number(MPI_Comm communicator) {
  static unsigned count = 0;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  unsigned number = (unsigned)now.tv_nsec * 31 + (unsigned)getpid() * 1009 + ++count;
  MPI_Bcast(&number, 1, MPI_UNSIGNED, 0, communicator);
  return number;
}

static void set_number(const char* name, unsigned number) {
  char text[24];
  snprintf(text, sizeof text, "%u", number);
  setenv(name, text, 1);
}

/* Sets the variables as torchrun does. A rank that has no communicator knows half of them. */
static void set_variables(MPI_Comm communicator) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  set_number("LMDBIO_MEETING_LIMIT_S", 60);
  if (communicator == MPI_COMM_NULL) {
    set_number("RANK", 0);
    return;
  }
  int my_rank = 0, rank_count = 0;
  MPI_Comm_rank(communicator, &my_rank);
  MPI_Comm_size(communicator, &rank_count);
  const unsigned number = common_number(communicator);
  set_number("RANK", (unsigned)my_rank);
  set_number("WORLD_SIZE", (unsigned)rank_count);
  set_number("MASTER_PORT", 12000 + number % 18000);
  set_number("TORCHELASTIC_RUN_ID", number);
  setenv("MASTER_ADDR", "localhost", 1);
}

/* --- A store of files ----------------------------------------------------------------------- */

/* In the working directory, which is that of the build. */
static void name_file(const void* context, const char* key, char* path, size_t path_bytes) {
  snprintf(path, path_bytes, "store-%u-%s", *(const unsigned*)context, key);
  for (char* at = path; *at != 0; ++at) {
    if (*at == '/') *at = '-';
  }
}

static int set_file(void* context, const char* key, const void* value, size_t value_bytes) {
  char path[200], fresh[220];
  name_file(context, key, path, sizeof path);
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE* const file = fopen(fresh, "wb");
  if (file == NULL) return LMDBIO_IO;
  const size_t written = fwrite(value, 1, value_bytes, file);
  if (fclose(file) != 0 || written != value_bytes) return LMDBIO_IO;
  return rename(fresh, path) == 0 ? LMDBIO_OK : LMDBIO_IO;
}

static int get_file(void* context, const char* key, void* value, size_t capacity_bytes,
                    size_t* out_value_bytes) {
  char path[200];
  name_file(context, key, path, sizeof path);
  FILE* const file = fopen(path, "rb");
  if (file == NULL) return LMDBIO_NOT_FOUND;
  *out_value_bytes = fread(value, 1, capacity_bytes, file);
  return fclose(file) == 0 ? LMDBIO_OK : LMDBIO_IO;
}

/* Removes the files of a store, after all ranks have left it. */
static void remove_store(MPI_Comm communicator, const unsigned* number) {
  char command[100];
  int my_rank = 0;
  MPI_Barrier(communicator);
  MPI_Comm_rank(communicator, &my_rank);
  snprintf(command, sizeof command, "rm -f store-%u-*", *number);
  if (my_rank == 0 && system(command) != 0) fprintf(stderr, "%s failed\n", command);
}

static void fill_launch(MPI_Comm communicator, unsigned* number, lmdbio_launch* launch) {
  *number = common_number(communicator);
  launch->set = set_file;
  launch->get = get_file;
  launch->context = number;
  launch->limit_ms = 60000;
  MPI_Comm_rank(communicator, &launch->rank);
  MPI_Comm_size(communicator, &launch->rank_count);
}

/* --- In place of lmdbio_mpi.h --------------------------------------------------------------- */

static inline int open_launched(MPI_Comm communicator, const char* path,
                                const lmdbio_options* options, lmdbio_loader** out_loader) {
  if (LMDBIO_TEST_LAUNCHED == 1 || communicator == MPI_COMM_NULL) {
    set_variables(communicator);
    return lmdbio_open_launched(NULL, path, options, out_loader);
  }
  unsigned number = 0;
  lmdbio_launch launch = LMDBIO_LAUNCH_INIT;
  fill_launch(communicator, &number, &launch);
  const int status = lmdbio_open_launched(&launch, path, options, out_loader);
  remove_store(communicator, &number);
  return status;
}

static inline int sync_open_launched(MPI_Comm communicator, const lmdbio_sync_options* options,
                                     lmdbio_sync** out_sync) {
  if (LMDBIO_TEST_LAUNCHED == 1 || communicator == MPI_COMM_NULL) {
    set_variables(communicator);
    return lmdbio_sync_open_launched(NULL, options, out_sync);
  }
  unsigned number = 0;
  lmdbio_launch launch = LMDBIO_LAUNCH_INIT;
  fill_launch(communicator, &number, &launch);
  const int status = lmdbio_sync_open_launched(&launch, options, out_sync);
  remove_store(communicator, &number);
  return status;
}

#define lmdbio_open_mpi open_launched
#define lmdbio_sync_open_mpi sync_open_launched

#endif /* LMDBIO_TESTS_API_C_C_LAUNCHED_H_ */
