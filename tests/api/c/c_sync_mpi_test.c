/* c_sync_mpi_test funneled|multiple|device: lmdbio_sync_open_mpi from C11, under mpirun. The ranks
 * get the results of MPI's own collectives, with every coordinator and collective, over all ranks
 * and over parts of them. If ranks differ, all of them get the reason. */
#include <lmdbio_mpi.h>
#include <stdlib.h>

#include "tests/api/c/c_check.h"
#ifdef LMDBIO_TEST_LAUNCHED
#include "tests/api/c/c_launched.h"
#endif

enum { COUNT = 1000, TENSORS = 5, ITERATIONS = 12 };

static int rank, size;
static int is_multiple; /* MPI_THREAD_MULTIPLE */

static lmdbio_sync* open_sync(MPI_Comm communicator, const lmdbio_sync_options* options) {
  lmdbio_sync* sync = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_open_mpi(communicator, options, &sync),
               lmdbio_sync_message(sync));
  return sync;
}

static void close_sync(lmdbio_sync* sync) {
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_shutdown(sync), lmdbio_sync_message(sync));
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void finish(lmdbio_sync_op* op) {
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
}

static void expect_words(const char* message, const char* word) {
  if (strstr(message, word) != NULL) return;
  fprintf(stderr, "rank %d: \"%s\" says nothing of %s\n", rank, message, word);
  ++c_check_failures;
}

static lmdbio_sync_op* submit(lmdbio_sync* sync, const lmdbio_sync_request* request) {
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit(sync, request, &op), lmdbio_sync_message(sync));
  return op;
}

/* --- Sums ----------------------------------------------------------------------------------- */

/* Whole numbers, so that no order of the additions rounds. */
static float value_of(int of_rank, int tensor, int iteration, int i) {
  return (float)((of_rank * 31 + tensor * 7 + iteration * 3 + i) % 97);
}

/* Ranks submit their tensors in different orders, and get MPI's sums. */
static void train(lmdbio_sync* sync, MPI_Comm communicator) {
  static float mine[TENSORS][COUNT], expected[TENSORS][COUNT];
  int my_rank = 0;
  MPI_Comm_rank(communicator, &my_rank);
  for (int iteration = 0; iteration < ITERATIONS; ++iteration) {
    for (int t = 0; t < TENSORS; ++t) {
      for (int i = 0; i < COUNT; ++i) mine[t][i] = value_of(my_rank, t, iteration, i);
    }
    MPI_Allreduce(mine, expected, TENSORS * COUNT, MPI_FLOAT, MPI_SUM, communicator);
    lmdbio_sync_op* ops[TENSORS] = {NULL};
    for (int n = 0; n < TENSORS; ++n) {
      const int t = (n + my_rank) % TENSORS;
      char name[20];
      snprintf(name, sizeof name, "tensor %d", t);
      CHECK_STATUS(LMDBIO_OK,
                   lmdbio_sync_allreduce(sync, name, mine[t], COUNT, LMDBIO_FLOAT32, &ops[t]),
                   lmdbio_sync_message(sync));
    }
    for (int t = 0; t < TENSORS; ++t) finish(ops[t]);
    CHECK(memcmp(mine, expected, sizeof mine) == 0);
  }
}

static void test_sums(const char* coordinator, const char* pacing, const char* collective,
                      const char* transport) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.coordinator = coordinator;
  options.pacing = pacing;
  options.collective = collective;
  options.transport = transport;
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, &options);
  int my_rank = -1, rank_count = -1;
  CHECK(lmdbio_sync_rank(sync, &my_rank, &rank_count) == LMDBIO_OK);
  CHECK(my_rank == rank && rank_count == size);
  train(sync, MPI_COMM_WORLD);
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->tensor_count >= TENSORS * ITERATIONS);
  if (strcmp(coordinator, "topo") == 0) CHECK(counters->plan_count >= 1);
  close_sync(sync);
}

/* Each tensor but the first needs the first, or, where `is_chain`, the one before it. */
static void set_graph(lmdbio_sync* sync, int is_chain) {
  char names[TENSORS][20];
  lmdbio_sync_request tensors[TENSORS];
  const lmdbio_sync_request* nodes[TENSORS];
  uint32_t edges[2 * TENSORS];
  for (int t = 0; t < TENSORS; ++t) {
    const lmdbio_sync_request none = LMDBIO_SYNC_REQUEST_INIT;
    snprintf(names[t], sizeof names[t], "tensor %d", t);
    tensors[t] = none;
    tensors[t].name = names[t];
    tensors[t].count = COUNT;
    nodes[t] = &tensors[t];
    edges[2 * t] = is_chain && t > 0 ? (uint32_t)t - 1 : 0;
    edges[2 * t + 1] = (uint32_t)t;
  }
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_set_graph(sync, nodes, TENSORS, edges + 2, TENSORS - 1),
               lmdbio_sync_message(sync));
}

/* A plan from the first iteration on. If one rank has another graph there is no plan, and the sums
 * are the same. */
static void test_graph(int is_same) {
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, NULL);
  set_graph(sync, !is_same && rank == size - 1);
  const lmdbio_sync_counters* counters = NULL;
  train(sync, MPI_COMM_WORLD);
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  const uint64_t exchanges = counters->control_message_count;
  train(sync, MPI_COMM_WORLD);
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  const int has_plan = is_same || size == 1;
  CHECK(counters->plan_count == (uint64_t)has_plan && counters->plan_end_count == 0);
  CHECK((counters->control_message_count == exchanges) == has_plan);
  close_sync(sync);
}

/* --- Every operation ------------------------------------------------------------------------ */

static void test_broadcast_and_scales(lmdbio_sync* sync) {
  double values[3] = {rank + 1, rank + 2, rank + 3};
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = "broadcast";
  request.operation = LMDBIO_BROADCAST;
  request.type = LMDBIO_FLOAT64;
  request.count = 3;
  request.root = size - 1;
  request.input = rank == size - 1 ? values : NULL;
  request.output = values;
  finish(submit(sync, &request));
  CHECK(values[0] == size && values[2] == size + 2);

  const int64_t number = rank + 5;
  int64_t most = 0;
  lmdbio_sync_request largest = LMDBIO_SYNC_REQUEST_INIT;
  largest.name = "largest";
  largest.type = LMDBIO_INT64;
  largest.reduction = LMDBIO_MAX;
  largest.count = 1;
  largest.input = &number;
  largest.output = &most;
  finish(submit(sync, &largest));
  CHECK(most == size + 4);

  float mean = (float)rank;
  lmdbio_sync_request average = LMDBIO_SYNC_REQUEST_INIT;
  average.name = "mean";
  average.count = 1;
  average.input = &mean;
  average.output = &mean;
  average.prescale = 2;
  average.postscale = 1.0 / size;
  finish(submit(sync, &average));
  CHECK(mean > (float)(size - 1) - 1e-5F && mean < (float)(size - 1) + 1e-5F);
}

/* Rank r contributes r + 1 rows of two numbers, all of them r. */
static void test_allgather(lmdbio_sync* sync) {
  int32_t rows[16];
  for (int i = 0; i < 16; ++i) rows[i] = rank;
  const int64_t shape[2] = {rank + 1, 2};
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = "allgather";
  request.operation = LMDBIO_ALLGATHER;
  request.type = LMDBIO_INT32;
  request.shape = shape;
  request.dimension_count = 2;
  request.input = rows;
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  const lmdbio_sync_result* result = NULL;
  CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_OK);
  CHECK(result->part_count == (size_t)size);
  CHECK(result->size_bytes == (uint64_t)(size * (size + 1)) * sizeof(int32_t));
  const int32_t* at = result->data;
  for (int r = 0; r < size; ++r) {
    CHECK(result->rows[r] == r + 1);
    for (int i = 0; i < 2 * (r + 1); ++i) CHECK(*at++ == r);
  }
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
}

/* Rank r has r + to + 1 rows for each rank `to`, all of them 10 r + to. */
static void test_alltoall(lmdbio_sync* sync) {
  float rows[64];
  int64_t splits[8], count = 0;
  for (int to = 0; to < size; ++to) {
    splits[to] = rank + to + 1;
    for (int i = 0; i < rank + to + 1; ++i) rows[count++] = (float)(10 * rank + to);
  }
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = "alltoall";
  request.operation = LMDBIO_ALLTOALL;
  request.count = count;
  request.splits = splits;
  request.input = rows;
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  const lmdbio_sync_result* result = NULL;
  CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_OK && result->part_count == (size_t)size);
  const float* at = result->data;
  for (int from = 0; from < size; ++from) {
    CHECK(result->rows[from] == from + rank + 1);
    for (int i = 0; i < from + rank + 1; ++i) CHECK(*at++ == (float)(10 * from + rank));
  }
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
}

static void test_reduce_scatter_and_barrier(lmdbio_sync* sync) {
  float values[24];
  const int64_t count = 4 * size;
  for (int i = 0; i < count; ++i) values[i] = (float)(i * (rank + 1));
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = "reduce-scatter";
  request.operation = LMDBIO_REDUCE_SCATTER;
  request.count = count;
  request.input = values;
  lmdbio_sync_op* op = submit(sync, &request);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  const lmdbio_sync_result* result = NULL;
  CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_OK);
  CHECK(result->part_count == 1 && result->rows[0] == 4);
  const float* mine = result->data;
  for (int i = 0; i < 4; ++i) {
    CHECK(mine[i] == (float)((rank * 4 + i) * size * (size + 1) / 2));
  }
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);

  lmdbio_sync_request barrier = LMDBIO_SYNC_REQUEST_INIT;
  barrier.name = "barrier";
  barrier.operation = LMDBIO_BARRIER;
  finish(submit(sync, &barrier));
}

/* Rank r has r batches more than rank 0; a rank without batches contributes zeros. */
static void test_join(lmdbio_sync* sync) {
  for (int batch = 0; batch <= rank; ++batch) {
    float value = 1;
    lmdbio_sync_op* op = NULL;
    CHECK(lmdbio_sync_allreduce(sync, "batch", &value, 1, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
    finish(op);
    CHECK(value == (float)(size - batch));
  }
  lmdbio_sync_request join = LMDBIO_SYNC_REQUEST_INIT;
  join.operation = LMDBIO_JOIN;
  lmdbio_sync_op* op = submit(sync, &join);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  const lmdbio_sync_result* result = NULL;
  CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_OK && result->last_joined == size - 1);
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
}

static void test_group(lmdbio_sync* sync) {
  float a[2] = {1, 2}, b[3] = {3, 4, 5};
  lmdbio_sync_request of_a = LMDBIO_SYNC_REQUEST_INIT, of_b = LMDBIO_SYNC_REQUEST_INIT;
  of_a.name = "group a";
  of_a.count = 2;
  of_a.input = of_a.output = a;
  of_b.name = "group b";
  of_b.count = 3;
  of_b.input = of_b.output = b;
  const lmdbio_sync_request* const both[] = {&of_a, &of_b};
  lmdbio_sync_op* ops[2] = {NULL, NULL};
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit_group(sync, both, 2, ops), lmdbio_sync_message(sync));
  finish(ops[0]);
  finish(ops[1]);
  CHECK(a[1] == (float)(2 * size) && b[2] == (float)(5 * size));
}

static void test_every_operation(const char* collective) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.collective = collective;
  options.gradient_bytes = 4096;
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, &options);
  test_broadcast_and_scales(sync);
  test_allgather(sync);
  test_alltoall(sync);
  test_reduce_scatter_and_barrier(sync);
  test_group(sync);
  test_join(sync);
  void* placed = NULL;
  CHECK(lmdbio_sync_place(sync, 4 * sizeof(float), &placed) == LMDBIO_OK);
  float* values = placed;
  for (int i = 0; i < 4; ++i) values[i] = (float)(rank + i);
  lmdbio_sync_op* op = NULL;
  CHECK(lmdbio_sync_allreduce(sync, "placed", values, 4, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
  finish(op);
  for (int i = 0; i < 4; ++i) CHECK(values[i] == (float)(size * (size - 1) / 2 + size * i));
  close_sync(sync);
}

/* --- Ranks that differ ---------------------------------------------------------------------- */

/* All ranks get the name of the tensor; the other operations continue. */
static void test_mismatch(void) {
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, NULL);
  float values[8] = {0}, good = 1;
  lmdbio_sync_op *op = NULL, *other = NULL;
  const int count = rank == size - 1 ? 8 : 4;
  CHECK(lmdbio_sync_allreduce(sync, "odd", values, count, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
  CHECK(lmdbio_sync_allreduce(sync, "even", &good, 1, LMDBIO_FLOAT32, &other) == LMDBIO_OK);
  if (size > 1) {
    CHECK(lmdbio_sync_op_wait(op) == LMDBIO_INVALID_ARGUMENT);
    expect_words(lmdbio_sync_op_message(op), "'odd'");
    expect_words(lmdbio_sync_op_message(op), "8");
    const lmdbio_sync_result* result = NULL;
    CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_INVALID_ARGUMENT);
  } else {
    CHECK(lmdbio_sync_op_wait(op) == LMDBIO_OK);
  }
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  finish(other);
  CHECK(good == (float)size);
  close_sync(sync);
}

static void test_one_rank_is_wrong(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  lmdbio_sync* sync = NULL;
  if (rank == size - 1) options.coordinator = "boss";
  CHECK(lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync) ==
        (rank == size - 1 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
  expect_words(lmdbio_sync_message(sync), "'boss'");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);

  options.coordinator = rank == size - 1 ? "cache" : "topo";
  const int status = lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync);
  if (size > 1) {
    CHECK(status == (rank == size - 1 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
    expect_words(lmdbio_sync_message(sync), "this rank has coordinator cache");
    expect_words(lmdbio_sync_message(sync), "rank 0 has coordinator topo");
  }
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);

  CHECK(lmdbio_sync_open_mpi(MPI_COMM_NULL, NULL, &sync) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strlen(lmdbio_sync_message(sync)) > 0);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_open_mpi(MPI_COMM_WORLD, NULL, rank == 0 ? NULL : &sync) ==
        (rank == 0 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
  if (rank > 0) CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* Only one rank selects MPI's exchanges, or its collectives. */
static void test_one_rank_wants_mpi(int is_transport) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  lmdbio_sync* sync = NULL;
  const char** const field = is_transport ? &options.transport : &options.collective;
  if (rank == size - 1) *field = "mpi";
  const int status = lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync);
  if (size > 1) {
    CHECK(status == (rank == size - 1 ? LMDBIO_INVALID_ARGUMENT : LMDBIO_PEER_FAILED));
    expect_words(lmdbio_sync_message(sync),
                 is_transport ? "this rank has transport mpi" : "collective mpi");
    expect_words(lmdbio_sync_message(sync),
                 is_transport ? "rank 0 has transport own" : "collective auto");
    CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  } else {
    close_sync(sync);
  }
}

/* The last rank never submits a tensor that the others wait for in MPI's collectives: after the
 * limit all ranks get an error. */
static void test_stall_in_mpi(void) {
  if (size == 1) return;
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.collective = "mpi";
  options.stall_report_ms = 300;
  options.stall_limit_ms = 1500;
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, &options);
  train(sync, MPI_COMM_WORLD);
  static float values[TENSORS][COUNT];
  lmdbio_sync_op* ops[TENSORS] = {NULL};
  for (int t = 0; t < TENSORS && rank < size - 1; ++t) {
    char name[20];
    snprintf(name, sizeof name, "tensor %d", t);
    CHECK(lmdbio_sync_allreduce(sync, name, values[t], COUNT, LMDBIO_FLOAT32, &ops[t]) ==
          LMDBIO_OK);
  }
  for (int t = 0; t < TENSORS && rank < size - 1; ++t) {
    CHECK(lmdbio_sync_op_wait(ops[t]) == LMDBIO_PEER_FAILED);
    expect_words(lmdbio_sync_op_message(ops[t]), "tensor");
    CHECK(lmdbio_sync_op_close(ops[t]) == LMDBIO_OK);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_PEER_FAILED);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* A rank closes while the others wait for it, here or in MPI's collectives. */
static void test_one_rank_leaves(const char* collective) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.collective = collective;
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, &options);
  float value = 1;
  lmdbio_sync_op* op = NULL;
  if (rank > 0) {
    CHECK(lmdbio_sync_allreduce(sync, "a", &value, 1, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
    CHECK(lmdbio_sync_op_wait(op) == LMDBIO_PEER_FAILED);
    expect_words(lmdbio_sync_op_message(op), "rank 0");
    CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
    CHECK(lmdbio_sync_allreduce(sync, "b", &value, 1, LMDBIO_FLOAT32, &op) == LMDBIO_PEER_FAILED);
    CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_PEER_FAILED);
  }
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* --- Process sets --------------------------------------------------------------------------- */

/* One synchronizer over all ranks, one over every second, at the same time. */
static void test_process_sets(void) {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
  lmdbio_sync* all = open_sync(MPI_COMM_WORLD, NULL);
  lmdbio_sync* some = open_sync(part, NULL);
  int part_size = 0;
  MPI_Comm_size(part, &part_size);
  for (int i = 0; i < ITERATIONS; ++i) {
    double of_all = 1, of_some = 1;
    lmdbio_sync_op *all_op = NULL, *some_op = NULL;
    CHECK(lmdbio_sync_allreduce(some, "x", &of_some, 1, LMDBIO_FLOAT64, &some_op) == LMDBIO_OK);
    CHECK(lmdbio_sync_allreduce(all, "x", &of_all, 1, LMDBIO_FLOAT64, &all_op) == LMDBIO_OK);
    finish(all_op);
    finish(some_op);
    CHECK(of_all == size && of_some == part_size);
  }
  train(some, part);
  close_sync(some);
  close_sync(all);
  MPI_Comm_free(&part);
}

/* --- Levels of thread support --------------------------------------------------------------- */

#ifndef LMDBIO_TEST_LAUNCHED
static void test_mpi_is_refused(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  lmdbio_sync* sync = NULL;
  options.collective = "mpi";
  CHECK(lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync) == LMDBIO_UNSUPPORTED);
  expect_words(lmdbio_sync_message(sync), "MPI_THREAD_MULTIPLE");
  expect_words(lmdbio_sync_message(sync), "MPI_THREAD_FUNNELED");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  options.collective = NULL;
  options.transport = "mpi";
  CHECK(lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync) == LMDBIO_UNSUPPORTED);
  expect_words(lmdbio_sync_message(sync), "MPI_THREAD_MULTIPLE");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}
#else
static void test_mpi_is_refused(void) {}           /* c_launch_test.c */
#endif

#ifndef LMDBIO_TEST_LAUNCHED
/* MPI says at run time whether it takes memory of GPUs. */
static void test_device_memory_is_refused(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device_collective = "mpi";
  lmdbio_sync* sync = NULL;
  CHECK(lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync) == LMDBIO_UNSUPPORTED);
  expect_words(lmdbio_sync_message(sync), "device_collective: 'mpi': MPI");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* With a GPU of the stand-in. */
static void test_note_of_device_memory(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.device = 1;
  lmdbio_sync* sync = open_sync(MPI_COMM_WORLD, &options);
  const char* text = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_describe(sync, &text), lmdbio_sync_message(sync));
  expect_words(text, "; messages between GPUs of several hosts do not use it");
  close_sync(sync);
}
#else
static void test_device_memory_is_refused(void) {} /* needs MPI */
static void test_note_of_device_memory(void) {}
#endif

int main(int argc, char** argv) {
  is_multiple = argc == 2 && strcmp(argv[1], "multiple") == 0;
  const int wanted = is_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (is_multiple && provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) printf("skipped: this MPI has no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 77;
  }
  if (argc == 2 && strcmp(argv[1], "device") == 0) {
    test_note_of_device_memory();
  } else if (is_multiple) {
    test_sums("cache", "event", "mpi", NULL);
    test_sums("horovod", "cycle", "mpi", "mpi");
    test_sums("topo", "event", "auto", "mpi");
    test_sums("cache", "nbcs", "auto", "mpi");
    test_every_operation("mpi");
    test_one_rank_wants_mpi(1);
    test_one_rank_wants_mpi(0);
    test_one_rank_leaves("mpi");
    test_device_memory_is_refused();
    test_stall_in_mpi();
  } else {
    test_sums("topo", "event", NULL, NULL);
    test_sums("cache", "event", "ring", NULL);
    test_sums("horovod", "cycle", "halving", "own");
    test_sums("hierarchical", "gs", "shm", NULL);
    test_graph(1);
    test_graph(0);
    test_every_operation(NULL);
    test_every_operation("direct");
    test_mismatch();
    test_one_rank_is_wrong();
    test_one_rank_leaves(NULL);
    test_process_sets();
    if (provided == MPI_THREAD_FUNNELED) test_mpi_is_refused();
    test_device_memory_is_refused();
  }
  int failures = 0;
  MPI_Allreduce(&c_check_failures, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures > 0;
}
