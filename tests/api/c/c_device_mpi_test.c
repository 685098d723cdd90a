/* c_device_mpi_test: tensors on GPUs by lmdbio_sync_open_mpi, from C11, in an MPI that takes memory
 * of GPUs (tests/emulated_mpi). The GPUs are those of a stand-in (tests/emulated_gpu). */
#include <lmdbio_mpi.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/api/c/c_driver.h"

enum { COUNT = 1000, SIZE_BYTES = COUNT * sizeof(int32_t), SKIPPED = 77 };

static void expect_words(const char* message, const char* word) {
  if (strstr(message, word) != NULL) return;
  fprintf(stderr, "\"%s\" says nothing of %s\n", message, word);
  ++c_check_failures;
}

static void test_sum(lmdbio_sync* sync, int rank_count) {
  uint64_t address = 0;
  CHECK(DRIVER("cuMemAlloc", uint64_t*, size_t)(&address, SIZE_BYTES) == 0);
  CHECK(DRIVER("cuMemsetD8Async", uint64_t, unsigned char, size_t, void*)(address, 1, SIZE_BYTES,
                                                                          stream) == 0);
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = "a";
  request.type = LMDBIO_INT32;
  request.count = COUNT;
  request.input = (const void*)(uintptr_t)address;
  request.output = (void*)(uintptr_t)address;
  request.memory = LMDBIO_MEMORY_DEVICE;
  request.stream = stream;
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit(sync, &request, &op), lmdbio_sync_message(sync));
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, stream), lmdbio_sync_op_message(op));
  static int32_t values[COUNT];
  read_device(values, address, SIZE_BYTES);
  for (int i = 0; i < COUNT; ++i) CHECK(values[i] == 0x01010101 * rank_count);
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->device_reduced_count == 1 && counters->device_tensor_count == 0);
}

/* Whether the ranks can use MPI on their GPUs: a build without kernels cannot. */
static int test_mpi(int rank_count) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 1;
  options.device_collective = "mpi";
  lmdbio_sync* sync = NULL;
  const int code = lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync);
  if (code == LMDBIO_UNSUPPORTED && strstr(lmdbio_sync_message(sync), "no kernels") != NULL) {
    CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
    return 0;
  }
  CHECK_STATUS(LMDBIO_OK, code, lmdbio_sync_message(sync));
  const char* text = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_describe(sync, &text), lmdbio_sync_message(sync));
  expect_words(text, "reductions by MPI: ");
  expect_words(text,
               "MPI takes memory of GPUs (MPIX_Query_cuda_support); it reduces tensors there");
  test_sum(sync, rank_count);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_shutdown(sync), lmdbio_sync_message(sync));
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  return 1;
}

static void test_thread_level(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 1;
  options.device_collective = "mpi";
  lmdbio_sync* sync = NULL;
  CHECK(lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync) == LMDBIO_UNSUPPORTED);
  expect_words(lmdbio_sync_message(sync), "MPI_THREAD_MULTIPLE");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

int main(int argc, char** argv) {
  const int is_funneled = argc > 1 && strcmp(argv[1], "funneled") == 0;
  int level = 0;
  MPI_Init_thread(&argc, &argv, is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
  int rank_count = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  int is_tested = 1;
  if (is_funneled) {
    test_thread_level();
  } else {
    open_driver();
    is_tested = level == MPI_THREAD_MULTIPLE && test_mpi(rank_count);
  }
  MPI_Finalize();
  if (!is_tested) return SKIPPED;
  return c_check_failures == 0 ? 0 : 1;
}
