/* c_launch_test DATABASE: wrong arguments of the calls that open handles for the ranks of a
 * launcher, on one rank. */
#include <lmdbio.h>
#include <lmdbio_sync.h>
#include <stdlib.h>

#include "tests/api/c/c_check.h"

static int fail_to_set(void* context, const char* key, const void* value, size_t value_bytes) {
  (void)key, (void)value, (void)value_bytes;
  ++*(int*)context;
  return 4711;
}

static int find_nothing(void* context, const char* key, void* value, size_t capacity_bytes,
                        size_t* out_value_bytes) {
  (void)context, (void)key, (void)value, (void)capacity_bytes, (void)out_value_bytes;
  return LMDBIO_NOT_FOUND;
}

static int set_nothing(void* context, const char* key, const void* value, size_t value_bytes) {
  (void)context, (void)key, (void)value, (void)value_bytes;
  return LMDBIO_OK;
}

/* Both calls fail alike, and their handles have the message. */
static void expect_failure(const lmdbio_launch* launch, const char* path, int status,
                           const char* words) {
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(status, lmdbio_open_launched(launch, path, NULL, &loader), lmdbio_message(loader));
  CHECK(strstr(lmdbio_message(loader), words) != NULL);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  lmdbio_sync* sync = NULL;
  CHECK_STATUS(status, lmdbio_sync_open_launched(launch, NULL, &sync), lmdbio_sync_message(sync));
  CHECK(strstr(lmdbio_sync_message(sync), words) != NULL);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_structs(const char* path) {
  lmdbio_launch launch = LMDBIO_LAUNCH_INIT;
  expect_failure(&launch, path, LMDBIO_INVALID_ARGUMENT, "launch.set or launch.get is NULL");
  launch.set = set_nothing;
  launch.get = find_nothing;
  expect_failure(&launch, path, LMDBIO_INVALID_ARGUMENT, "launch.rank_count 0");
  launch.rank_count = 2;
  launch.rank = 2;
  expect_failure(&launch, path, LMDBIO_INVALID_ARGUMENT, "launch.rank is 2");
  launch.rank = 1;
  launch.limit_ms = 50;
  expect_failure(&launch, path, LMDBIO_PEER_FAILED, "have not come to the meeting in the store");
  int count = 0;
  launch.rank = 0;
  launch.set = fail_to_set;
  launch.context = &count;
  expect_failure(&launch, path, LMDBIO_IO,
                 "launch.set(\"lmdbio/0/job\") of the program has failed "
                 "with 4711");
  CHECK(count >= 2);
  launch.struct_size = 8;
  expect_failure(&launch, path, LMDBIO_INVALID_ARGUMENT, "launch.struct_size");
}

static void test_environment(const char* path) {
  int rank = -1, rank_count = -1;
  char message[100] = "x", few[5] = "xxxx";
  unsetenv("WORLD_SIZE");
  unsetenv("SLURM_PROCID");
  unsetenv("SLURM_NTASKS");
  setenv("RANK", "0", 1);
  expect_failure(NULL, path, LMDBIO_INVALID_ARGUMENT, "RANK is set, but WORLD_SIZE is not");
  CHECK(lmdbio_launch_rank(NULL, &rank, &rank_count, message, sizeof message) ==
        LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(message, "RANK is set, but WORLD_SIZE is not") == message);
  CHECK(lmdbio_launch_rank(NULL, NULL, NULL, few, sizeof few) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strcmp(few, "RANK") == 0);
  CHECK(lmdbio_launch_rank(NULL, NULL, NULL, NULL, 0) == LMDBIO_INVALID_ARGUMENT);
  CHECK(rank == -1 && rank_count == -1);
  setenv("WORLD_SIZE", "1", 1);
  CHECK(lmdbio_launch_rank(NULL, &rank, &rank_count, message, sizeof message) == LMDBIO_OK);
  CHECK(rank == 0 && rank_count == 1 && message[0] == 0);
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open_launched(NULL, path, NULL, &loader), lmdbio_message(loader));
  const lmdbio_batch* batch = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_next(loader, &batch), lmdbio_message(loader));
  CHECK(batch != NULL && batch->record_count == 64);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_open_launched(NULL, path, NULL, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_open_launched(NULL, NULL, NULL) == LMDBIO_INVALID_ARGUMENT);
}

static void test_mpi_is_refused(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.collective = "mpi";
  lmdbio_sync* sync = NULL;
  CHECK(lmdbio_sync_open_launched(NULL, &options, &sync) == LMDBIO_UNSUPPORTED);
  CHECK(strcmp(lmdbio_sync_message(sync),
               "options.collective: 'mpi' needs a communicator; call lmdbio_sync_open_mpi") == 0);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  test_structs(argv[1]);
  test_environment(argv[1]);
  test_mpi_is_refused();
  return c_check_failures > 0;
}
