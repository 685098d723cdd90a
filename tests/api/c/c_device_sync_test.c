/* c_device_sync_test: tensors on a GPU through lmdbio_sync.h, from C11. The GPU is that of a
 * stand-in (tests/emulated_gpu). With the argument "none" there is no driver. */
#define _DEFAULT_SOURCE /* usleep */
#include <lmdbio_sync.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/c/c_driver.h"

enum { COUNT = 1000, SIZE_BYTES = COUNT * sizeof(float), SKIPPED = 77 };

/* Memory of the GPU, of COUNT floats. */
static uint64_t allocate(void) {
  uint64_t address = 0;
  CHECK(DRIVER("cuMemAlloc", uint64_t*, size_t)(&address, SIZE_BYTES) == 0);
  return address;
}

/* Enqueues a write of `value` to each byte. */
static void fill(uint64_t address, unsigned char value) {
  CHECK(DRIVER("cuMemsetD8Async", uint64_t, unsigned char, size_t, void*)(address, value,
                                                                          SIZE_BYTES, stream) == 0);
}

/* Whether each float that work on the stream sees is `value`. */
static int has(uint64_t address, float value) {
  static float values[COUNT];
  read_device(values, address, SIZE_BYTES);
  for (int i = 0; i < COUNT; ++i) {
    if (values[i] != value) return 0;
  }
  return 1;
}

static float float_of(unsigned char byte) {
  float value = 0;
  memset(&value, byte, sizeof value);
  return value;
}

static void expect_words(const char* message, const char* word) {
  if (strstr(message, word) != NULL) return;
  fprintf(stderr, "\"%s\" says nothing of %s\n", message, word);
  ++c_check_failures;
}

static lmdbio_sync* open_sync_for(uint32_t device, const char* collective) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = device;
  options.device_collective = collective;
  options.device_order = "host";
  options.device_buffer_bytes = SIZE_BYTES;
  lmdbio_sync* sync = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_open(&options, &sync), lmdbio_sync_message(sync));
  return sync;
}

/* Values pass through the host. */
static lmdbio_sync* open_sync(uint32_t device) { return open_sync_for(device, "staged"); }

static lmdbio_sync_request request_of(const char* name, uint64_t address, int memory) {
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = name;
  request.count = COUNT;
  request.input = (const void*)(uintptr_t)address;
  request.output = (void*)(uintptr_t)address;
  request.postscale = 2;
  request.memory = memory;
  request.stream = stream;
  return request;
}

static lmdbio_sync_op* submit(lmdbio_sync* sync, const lmdbio_sync_request* request) {
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit(sync, request, &op), lmdbio_sync_message(sync));
  return op;
}

static void refuse(lmdbio_sync* sync, const lmdbio_sync_request* request, const char* word) {
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_INVALID_ARGUMENT, lmdbio_sync_submit(sync, request, &op), word);
  expect_words(lmdbio_sync_message(sync), word);
}

static void test_sums(void) {
  lmdbio_sync* sync = open_sync(1);
  const uint64_t memory = allocate();
  const int kinds[2] = {LMDBIO_MEMORY_DEVICE, LMDBIO_MEMORY_ASK};
  for (int i = 0; i < 2; ++i) {
    fill(memory, 0x3F);
    const lmdbio_sync_request request = request_of("a", memory, kinds[i]);
    lmdbio_sync_op* op = submit(sync, &request);
    CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, stream), lmdbio_sync_op_message(op));
    CHECK(has(memory, 2 * float_of(0x3F)));
    CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
    int is_done = 0;
    CHECK(lmdbio_sync_op_test(op, &is_done) == LMDBIO_OK && is_done == 1);
    CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  }
  /* On the host, said and asked for. */
  const int host_kinds[2] = {LMDBIO_MEMORY_HOST, LMDBIO_MEMORY_ASK};
  for (int i = 0; i < 2; ++i) {
    float values[COUNT];
    memset(values, 0x3F, sizeof values);
    const lmdbio_sync_request request = request_of("a", (uintptr_t)values, host_kinds[i]);
    lmdbio_sync_op* op = submit(sync, &request);
    CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, NULL), lmdbio_sync_op_message(op));
    CHECK(values[0] == 2 * float_of(0x3F) && values[COUNT - 1] == values[0]);
    CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  }
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->device_tensor_count == 2 && counters->device_copy_count == 4);
  CHECK(counters->device_out_bytes == 2 * SIZE_BYTES);
  CHECK(counters->device_in_bytes == 2 * SIZE_BYTES && counters->device_wait_ns > 0);
  const char* text = NULL;
  CHECK(lmdbio_sync_describe(sync, &text) == LMDBIO_OK);
  expect_words(text, "GPU 0 (Emulated GPU 0)");
  CHECK(lmdbio_sync_get_options(sync, &text) == LMDBIO_OK);
  expect_words(text, "\"device\":1");
  CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* In the memory of the GPU, or through the host in a library without kernels. */
static void test_arena(void) {
  lmdbio_sync* sync = open_sync_for(1, NULL);
  const uint64_t memory = allocate();
  fill(memory, 0x3F);
  const lmdbio_sync_request request = request_of("a", memory, LMDBIO_MEMORY_DEVICE);
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, stream), lmdbio_sync_op_message(op));
  CHECK(has(memory, 2 * float_of(0x3F)));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->device_reduced_count + counters->device_tensor_count == 1);
  CHECK(counters->device_reduced_bytes == counters->device_reduced_count * SIZE_BYTES);
  CHECK(counters->device_copy_count == 2);
  const char* text = NULL;
  CHECK(lmdbio_sync_get_options(sync, &text) == LMDBIO_OK);
  expect_words(text, "\"device_order\":\"host\"");
  CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 1;
  options.device_order = "luck";
  CHECK(lmdbio_sync_open(&options, &sync) == LMDBIO_INVALID_ARGUMENT);
  expect_words(lmdbio_sync_message(sync), "device_order: 'luck' is unknown");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* In placed memory, where a library with kernels copies nothing. */
static void test_placed(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 1;
  options.device_gradient_bytes = 2 * SIZE_BYTES;
  lmdbio_sync* sync = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_open(&options, &sync), lmdbio_sync_message(sync));
  void* place = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_place_device(sync, SIZE_BYTES, &place),
               lmdbio_sync_message(sync));
  const uint64_t memory = (uintptr_t)place;
  CHECK(memory % 64 == 0 && has(memory, 0));
  fill(memory, 0x3F);
  const lmdbio_sync_request request = request_of("a", memory, LMDBIO_MEMORY_DEVICE);
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, stream), lmdbio_sync_op_message(op));
  CHECK(has(memory, 2 * float_of(0x3F)));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->device_copy_count == 2 * counters->device_tensor_count);
  CHECK(lmdbio_sync_place_device(sync, SIZE_BYTES, NULL) == LMDBIO_INVALID_ARGUMENT);
  expect_words(lmdbio_sync_message(sync), "out_address");
  void* other = NULL;
  CHECK(lmdbio_sync_place_device(sync, 2 * SIZE_BYTES, &other) == LMDBIO_RESOURCE_EXHAUSTED);
  expect_words(lmdbio_sync_message(sync), "device_gradient_bytes 8000");
  CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_place_device(sync, 1, &other) == LMDBIO_BAD_HANDLE);
  sync = open_sync(0);
  CHECK(lmdbio_sync_place_device(sync, 1, &other) == LMDBIO_INVALID_ARGUMENT && other == NULL);
  expect_words(lmdbio_sync_message(sync), "option device");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* Without memory, and with a result on the host. */
static void test_other_operations(void) {
  lmdbio_sync* sync = open_sync(1);
  const uint64_t memory = allocate();
  fill(memory, 0x3F);
  lmdbio_sync_request request = request_of("a", memory, LMDBIO_MEMORY_DEVICE);
  request.operation = LMDBIO_ALLGATHER;
  request.output = NULL;
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  const lmdbio_sync_result* result = NULL;
  CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_OK);
  CHECK(result->size_bytes == SIZE_BYTES && ((const float*)result->data)[7] == float_of(0x3F));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  lmdbio_sync_request barrier = LMDBIO_SYNC_REQUEST_INIT;
  barrier.name = "b";
  barrier.operation = LMDBIO_BARRIER;
  barrier.memory = LMDBIO_MEMORY_DEVICE;
  op = submit(sync, &barrier);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, stream), lmdbio_sync_op_message(op));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_graph(void) {
  lmdbio_sync* sync = open_sync(1);
  const uint64_t memory = allocate();
  const lmdbio_sync_request request = request_of("a", memory, LMDBIO_MEMORY_DEVICE);
  const lmdbio_sync_request* const nodes[1] = {&request};
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_set_graph(sync, nodes, 1, NULL, 0),
               lmdbio_sync_message(sync));
  fill(memory, 0x3F);
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_on(op, stream), lmdbio_sync_op_message(op));
  CHECK(has(memory, 2 * float_of(0x3F)));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->plan_count == 1 && counters->plan_end_count == 0);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* A program of 0.1.0 has a shorter struct, and the bytes behind it are not its own. */
static void test_request_of_0_1_0(void) {
  lmdbio_sync* sync = open_sync(0);
  float values[COUNT];
  memset(values, 0x3F, sizeof values);
  lmdbio_sync_request request = request_of("a", (uintptr_t)values, 0x7F);
  memset(&request.stream, 0xFF, sizeof request.stream);
  request.struct_size = 112; /* of 0.1.0 */
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  CHECK(values[3] == 2 * float_of(0x3F));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  request.struct_size = 113;
  refuse(sync, &request, "struct_size");
  request.struct_size = 111;
  refuse(sync, &request, "struct_size");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_wrong_requests(void) {
  const uint64_t memory = allocate();
  float values[COUNT];
  lmdbio_sync* none = open_sync(0);
  lmdbio_sync_request request = request_of("conv1", memory, LMDBIO_MEMORY_DEVICE);
  refuse(none, &request, "option device");
  CHECK(lmdbio_sync_close(none) == LMDBIO_OK);

  lmdbio_sync* sync = open_sync(1);
  request.memory = 3;
  refuse(sync, &request, "request.memory: 3");
  request.memory = -1;
  refuse(sync, &request, "request.memory: -1");
  request = request_of("conv1", memory, LMDBIO_MEMORY_HOST);
  refuse(sync, &request, "submitted as one of the host");
  request = request_of("conv1", (uintptr_t)values, LMDBIO_MEMORY_DEVICE);
  refuse(sync, &request, "is memory of the host");
  lmdbio_sync_op* const bad = (lmdbio_sync_op*)(uintptr_t)12345;
  CHECK(lmdbio_sync_op_wait_on(bad, stream) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_sync_op_wait_on_within(bad, stream, 1) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);

  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 9;
  CHECK(lmdbio_sync_open(&options, &sync) == LMDBIO_NOT_FOUND);
  expect_words(lmdbio_sync_message(sync), "GPU 8");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static _Atomic(lmdbio_sync_op*) called_op;
static _Atomic int is_called = 0;
static int status_in_callback = -1;

static void wait_in_callback(void* context, int status, const char* message) {
  (void)context;
  (void)message;
  CHECK(status == LMDBIO_OK);
  is_called = 1;
  while (called_op == NULL) usleep(100);
  status_in_callback = lmdbio_sync_op_wait_on(called_op, stream);
}

/* An operation is not done while its callback runs. The helper thread does nothing else then. */
static void test_callback(void) {
  lmdbio_sync* sync = open_sync(1);
  lmdbio_sync_request request = request_of("a", allocate(), LMDBIO_MEMORY_DEVICE);
  request.callback = wait_in_callback;
  lmdbio_sync_op* const op = submit(sync, &request);
  while (is_called == 0) usleep(100);
  const lmdbio_sync_request next = request_of("b", allocate(), LMDBIO_MEMORY_DEVICE);
  lmdbio_sync_op* const later = submit(sync, &next);
  CHECK(lmdbio_sync_op_wait_on_within(later, stream, 0) == LMDBIO_TIMEOUT);
  CHECK(lmdbio_sync_op_wait_on_within(later, stream, 20) == LMDBIO_TIMEOUT);
  called_op = op;
  CHECK(lmdbio_sync_op_wait_on_within(later, stream, 60000) == LMDBIO_OK);
  CHECK(lmdbio_sync_op_wait(op) == LMDBIO_OK);
  CHECK(status_in_callback == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK && lmdbio_sync_op_close(later) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_fork(void) {
  if (!c_check_can_fork()) return;
  lmdbio_sync* sync = open_sync(1);
  const uint64_t memory = allocate();
  const lmdbio_sync_request request = request_of("a", memory, LMDBIO_MEMORY_DEVICE);
  lmdbio_sync_op *op = submit(sync, &request), *other = NULL;
  CHECK(lmdbio_sync_op_wait(op) == LMDBIO_OK);
  usleep(100000); /* until the helper thread sleeps */
  const pid_t child = fork();
  if (child == 0) { /* the stand-in ends a child that calls it */
    CHECK(lmdbio_sync_submit(sync, &request, &other) == LMDBIO_FORKED);
    CHECK(lmdbio_sync_op_wait_on(op, stream) == LMDBIO_FORKED);
    CHECK(lmdbio_sync_op_wait(op) == LMDBIO_FORKED);
    CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
    CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
    _exit(c_check_failures > 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(lmdbio_sync_op_wait_on(op, stream) == LMDBIO_OK);
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* A library in which no driver is found works without the option. */
static int test_without_driver(void) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL) {
    fprintf(stderr, "skipped: this machine has a driver of a GPU\n");
    return SKIPPED;
  }
  CHECK(lmdbio_sync_close(open_sync(0)) == LMDBIO_OK);
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 1;
  lmdbio_sync* sync = NULL;
  CHECK(lmdbio_sync_open(&options, &sync) == LMDBIO_NOT_FOUND);
  expect_words(lmdbio_sync_message(sync), "no GPU driver");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  return c_check_failures > 0;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "none") == 0) return test_without_driver();
  open_driver();
  test_sums();
  test_arena();
  test_placed();
  test_other_operations();
  test_graph();
  test_request_of_0_1_0();
  test_wrong_requests();
  test_callback();
  test_fork();
  return c_check_failures > 0;
}
