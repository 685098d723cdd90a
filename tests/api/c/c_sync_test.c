/* c_sync_test: lmdbio_sync.h from C11, in one process: every call, wrong calls, calls too late,
 * callbacks, threads and fork. Sums of one rank are its own values, scaled. */
#define _DEFAULT_SOURCE /* usleep */
#include <lmdbio_sync.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/c/c_check.h"

static lmdbio_sync* open_sync(const lmdbio_sync_options* options) {
  lmdbio_sync* sync = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_open(options, &sync), lmdbio_sync_message(sync));
  return sync;
}

static void expect_words(const char* message, const char* word) {
  if (strstr(message, word) != NULL) return;
  fprintf(stderr, "\"%s\" says nothing of %s\n", message, word);
  ++c_check_failures;
}

static void refuse_options(const lmdbio_sync_options* options, int status, const char* word) {
  lmdbio_sync* sync = NULL;
  CHECK_STATUS(status, lmdbio_sync_open(options, &sync), word);
  CHECK(sync != NULL);
  expect_words(lmdbio_sync_message(sync), word);
  CHECK(lmdbio_sync_rank(sync, NULL, NULL) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* Waits for an operation and closes it. */
static void finish(lmdbio_sync_op* op) {
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
}

static lmdbio_sync_request request_of(const char* name, int operation, void* values,
                                      int64_t count) {
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = name;
  request.operation = operation;
  request.count = count;
  request.input = values;
  request.output = values;
  return request;
}

static void test_sums(void) {
  lmdbio_sync* sync = open_sync(NULL);
  int rank = -1, rank_count = -1;
  CHECK(lmdbio_sync_rank(sync, &rank, &rank_count) == LMDBIO_OK && rank == 0 && rank_count == 1);
  float values[3] = {1, 2, 3};
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_allreduce(sync, "a", values, 3, LMDBIO_FLOAT32, &op),
               lmdbio_sync_message(sync));
  finish(op);
  CHECK(values[0] == 1 && values[2] == 3);

  const double input[4] = {1, 2, 3, 4};
  double output[4] = {0};
  const int64_t shape[2] = {2, 2};
  lmdbio_sync_request request = request_of("b", LMDBIO_ALLREDUCE, NULL, 0);
  request.type = LMDBIO_FLOAT64;
  request.shape = shape;
  request.dimension_count = 2;
  request.input = input;
  request.output = output;
  request.prescale = 3;
  request.postscale = 0.5;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit(sync, &request, &op), lmdbio_sync_message(sync));
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait_within(op, 60000), lmdbio_sync_op_message(op));
  int is_done = 0;
  CHECK(lmdbio_sync_op_test(op, &is_done) == LMDBIO_OK && is_done == 1);
  CHECK(output[0] == 1.5 && output[3] == 6);
  finish(op);

  request.dimension_count = 0; /* with a shape, one element */
  output[1] = 0;
  CHECK(lmdbio_sync_submit(sync, &request, &op) == LMDBIO_OK);
  finish(op);
  CHECK(output[0] == 1.5 && output[1] == 0);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_shutdown(sync), lmdbio_sync_message(sync));
  CHECK(lmdbio_sync_submit(sync, &request, &op) == LMDBIO_INVALID_ARGUMENT);
  expect_words(lmdbio_sync_message(sync), "shut down");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_every_operation(void) {
  lmdbio_sync* sync = open_sync(NULL);
  float values[4] = {1, 2, 3, 4};
  const int64_t splits[1] = {4};
  for (int operation = LMDBIO_ALLREDUCE; operation <= LMDBIO_JOIN; ++operation) {
    lmdbio_sync_request request = request_of("t", operation, values, 4);
    request.splits = splits;
    lmdbio_sync_op* op = NULL;
    CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit(sync, &request, &op), lmdbio_sync_message(sync));
    CHECK_STATUS(LMDBIO_OK, lmdbio_sync_op_wait(op), lmdbio_sync_op_message(op));
    const lmdbio_sync_result* result = NULL;
    CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_OK);
    const int has_rows = operation >= LMDBIO_ALLGATHER && operation <= LMDBIO_REDUCE_SCATTER;
    CHECK(result->size_bytes == (has_rows ? sizeof values : 0));
    CHECK((result->data != NULL) == has_rows);
    if (has_rows) {
      CHECK(memcmp(result->data, values, sizeof values) == 0);
      CHECK(result->part_count == 1 && result->rows[0] == 4);
    }
    CHECK(result->last_joined == (operation == LMDBIO_JOIN ? 0 : -1));
    CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
  }
  float more[2] = {5, 6};
  const lmdbio_sync_request one = request_of("one", LMDBIO_ALLREDUCE, values, 4);
  const lmdbio_sync_request two = request_of("two", LMDBIO_ALLREDUCE, more, 2);
  const lmdbio_sync_request* const both[] = {&one, &two};
  lmdbio_sync_op* ops[2] = {NULL, NULL};
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit_group(sync, both, 2, ops), lmdbio_sync_message(sync));
  finish(ops[0]);
  finish(ops[1]);
  CHECK(values[3] == 4 && more[1] == 6);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_graph_memory_and_what_is_seen(void) {
  lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
  options.gradient_bytes = 256;
  lmdbio_sync* sync = open_sync(&options);
  void *first = NULL, *second = NULL, *third = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_place(sync, 100, &first), lmdbio_sync_message(sync));
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_place(sync, 128, &second), lmdbio_sync_message(sync));
  CHECK((char*)second - (char*)first == 128);
  CHECK(lmdbio_sync_place(sync, 1, &third) == LMDBIO_RESOURCE_EXHAUSTED && third == NULL);
  expect_words(lmdbio_sync_message(sync), "gradient_bytes 256");

  const lmdbio_sync_request a = request_of("a", LMDBIO_ALLREDUCE, first, 25);
  const lmdbio_sync_request b = request_of("b", LMDBIO_ALLREDUCE, second, 32);
  const lmdbio_sync_request* const nodes[] = {NULL, &a, &b};
  const uint32_t edges[] = {0, 1, 1, 2};
  const uint32_t cycle[] = {0, 1, 1, 0};
  const uint32_t beyond[] = {0, 3};
  CHECK(lmdbio_sync_set_graph(sync, nodes, 3, cycle, 2) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_set_graph(sync, nodes, 3, beyond, 1) == LMDBIO_INVALID_ARGUMENT);
  expect_words(lmdbio_sync_message(sync), "no node 3");
  CHECK(lmdbio_sync_set_graph(sync, NULL, 3, edges, 2) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_set_graph(sync, nodes, 3, NULL, 2) == LMDBIO_INVALID_ARGUMENT);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_set_graph(sync, nodes, 3, edges, 2),
               lmdbio_sync_message(sync));
  for (int iteration = 0; iteration < 3; ++iteration) {
    lmdbio_sync_op *of_a = NULL, *of_b = NULL;
    CHECK(lmdbio_sync_submit(sync, &a, &of_a) == LMDBIO_OK);
    CHECK(lmdbio_sync_submit(sync, &b, &of_b) == LMDBIO_OK);
    finish(of_a);
    finish(of_b);
  }
  const lmdbio_sync_counters* counters = NULL;
  CHECK(lmdbio_sync_get_counters(sync, &counters) == LMDBIO_OK);
  CHECK(counters->tensor_count >= 6 && counters->plan_count == 1);
  const char *text = NULL, *record = NULL;
  CHECK(lmdbio_sync_describe(sync, &text) == LMDBIO_OK);
  expect_words(text, "coordinator topo, pacing event");
  CHECK(lmdbio_sync_flight_record(sync, &record) == LMDBIO_OK);
  expect_words(record, "'a'");
  expect_words(text, "coordinator topo, pacing event"); /* still there */
  CHECK(lmdbio_sync_set_graph(sync, nodes, 3, edges, 2) == LMDBIO_INVALID_ARGUMENT); /* too late */
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);

  options.coordinator = "cache";
  sync = open_sync(&options);
  CHECK(lmdbio_sync_set_graph(sync, nodes, 3, edges, 2) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* --- Order of computing --------------------------------------------------------------------- */

static void refuse_graph(lmdbio_sync* sync, const lmdbio_sync_compute_graph* graph,
                         const char* word) {
  const lmdbio_sync_compute_order* order = NULL;
  CHECK_STATUS(LMDBIO_INVALID_ARGUMENT, lmdbio_sync_order_computing(sync, graph, &order), word);
  CHECK(order == NULL);
  expect_words(lmdbio_sync_message(sync), word);
}

static int has_numbers(const uint32_t* numbers, size_t count, const uint32_t* expected) {
  return memcmp(numbers, expected, count * sizeof *numbers) == 0;
}

/* Node 0 begins two branches: 1, and 2 with 3. 4 needs nothing, and is no gradient. */
static void test_order_of_computing(void) {
  lmdbio_sync* sync = open_sync(NULL);
  const int64_t costs[] = {5, 10, 3, 2, 1};
  const uint32_t edges[] = {0, 1, 0, 2, 2, 3};
  const uint32_t gradients[] = {1, 3};
  lmdbio_sync_compute_graph graph = LMDBIO_SYNC_COMPUTE_GRAPH_INIT;
  graph.costs_ns = costs;
  graph.node_count = 5;
  graph.edges = edges;
  graph.edge_count = 3;
  graph.gradients = gradients;
  graph.gradient_count = 2;
  const lmdbio_sync_compute_order* order = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_order_computing(sync, &graph, &order),
               lmdbio_sync_message(sync));
  CHECK(order->gradient_count == 2 && order->node_count == 5 && order->edge_count == 1);
  CHECK(has_numbers(order->gradients, 2, (const uint32_t[]){1, 0}));
  CHECK(has_numbers(order->nodes, 5, (const uint32_t[]){0, 2, 3, 1, 4}));
  CHECK(has_numbers(order->edges, 2, (const uint32_t[]){3, 1}));
  /* The memory of the last result is used again. */
  graph.costs_ns = (const int64_t[]){5, 1, 3, 2, 1};
  CHECK(lmdbio_sync_order_computing(sync, &graph, &order) == LMDBIO_OK);
  CHECK(order->edge_count == 1 && has_numbers(order->edges, 2, (const uint32_t[]){1, 2}));
  graph.costs_ns = costs;
  graph.gradient_count = 1;
  CHECK(lmdbio_sync_order_computing(sync, &graph, &order) == LMDBIO_OK);
  CHECK(order->gradient_count == 1 && order->edge_count == 0);
  CHECK(has_numbers(order->nodes, 5, (const uint32_t[]){0, 1, 2, 3, 4}));
  CHECK(lmdbio_sync_order_computing(sync, &graph, NULL) == LMDBIO_INVALID_ARGUMENT);
  lmdbio_sync_compute_graph none = LMDBIO_SYNC_COMPUTE_GRAPH_INIT;
  CHECK(lmdbio_sync_order_computing(sync, &none, &order) == LMDBIO_OK && order->node_count == 0);

  refuse_graph(sync, NULL, "graph is NULL");
  const uint32_t cycle[] = {1, 2, 2, 1}, to_nobody[] = {0, 5}, from_nobody[] = {5, 0};
  const uint32_t twice[] = {1, 1};
  lmdbio_sync_compute_graph wrong = graph;
  wrong.edges = cycle;
  wrong.edge_count = 2;
  refuse_graph(sync, &wrong, "the graph has a cycle");
  wrong.edge_count = 1;
  wrong.edges = to_nobody;
  refuse_graph(sync, &wrong, "edge 0: there is no node 5; the graph has 5 nodes");
  wrong.edges = from_nobody;
  refuse_graph(sync, &wrong, "node 0 needs node 5, and the graph has 5 nodes");
  wrong.edges = NULL;
  refuse_graph(sync, &wrong, "edges or gradients is NULL");
  wrong = graph;
  wrong.costs_ns = NULL;
  refuse_graph(sync, &wrong, "costs_ns, edges");
  wrong.costs_ns = (const int64_t[]){1, 1, -1, 1, 1};
  refuse_graph(sync, &wrong, "node 2: it costs -1 ns");
  wrong = graph;
  wrong.gradients = twice;
  wrong.gradient_count = 2;
  refuse_graph(sync, &wrong, "node 1 is a gradient already");
  wrong.gradients = NULL;
  refuse_graph(sync, &wrong, "gradients is NULL");
  wrong = graph;
  wrong.struct_size = 3;
  refuse_graph(sync, &wrong, "LMDBIO_SYNC_COMPUTE_GRAPH_INIT");
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_order_computing(sync, &graph, &order) == LMDBIO_BAD_HANDLE);
}

/* --- Callbacks ------------------------------------------------------------------------------ */

struct called {
  lmdbio_sync* sync;
  int count, status;
  char message[200];
  lmdbio_sync_op* next; /* submitted by the callback */
  float value;
};

static void on_done(void* context, int status, const char* message) {
  struct called* called = context;
  ++called->count;
  called->status = status;
  snprintf(called->message, sizeof called->message, "%s", message);
  if (status != LMDBIO_OK) return;
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_OK,
               lmdbio_sync_allreduce(called->sync, "next", &called->value, 1, LMDBIO_FLOAT32, &op),
               lmdbio_sync_message(called->sync));
  CHECK(lmdbio_sync_op_wait(op) == LMDBIO_INVALID_ARGUMENT);
  expect_words(lmdbio_sync_op_message(op), "must not wait");
  CHECK(lmdbio_sync_op_wait_within(op, 1) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_shutdown(called->sync) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_close(called->sync) == LMDBIO_INVALID_ARGUMENT);
  called->next = op;
}

static void test_callbacks(void) {
  struct called called = {.sync = open_sync(NULL), .value = 7};
  float value = 1;
  lmdbio_sync_request request = request_of("first", LMDBIO_ALLREDUCE, &value, 1);
  request.callback = on_done;
  request.callback_context = &called;
  lmdbio_sync_op* op = NULL;
  CHECK(lmdbio_sync_submit(called.sync, &request, &op) == LMDBIO_OK);
  finish(op);
  CHECK(called.count == 1 && called.status == LMDBIO_OK && called.message[0] == '\0');
  finish(called.next);
  CHECK(called.value == 7);
  CHECK(strcmp(lmdbio_sync_message(called.sync), "") == 0); /* of this thread */
  CHECK(lmdbio_sync_close(called.sync) == LMDBIO_OK);
}

/* --- Threads -------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 50 };

struct worker {
  pthread_t thread;
  lmdbio_sync* sync;
  int number, failures;
};

/* Each thread has its own tensor, and its own messages. */
static void* work(void* context) {
  struct worker* worker = context;
  char name[20], other[20];
  snprintf(name, sizeof name, "tensor %d", worker->number);
  for (int i = 0; i < ROUNDS; ++i) {
    float value = (float)i;
    lmdbio_sync_op* op = NULL;
    const int status = lmdbio_sync_allreduce(worker->sync, name, &value, 1, LMDBIO_FLOAT32, &op);
    worker->failures += status != LMDBIO_OK || lmdbio_sync_op_wait(op) != LMDBIO_OK ||
                        lmdbio_sync_op_close(op) != LMDBIO_OK || value != (float)i;
    snprintf(other, sizeof other, "wrong %d", worker->number);
    worker->failures +=
        lmdbio_sync_allreduce(worker->sync, other, &value, -1, 0, &op) != LMDBIO_INVALID_ARGUMENT ||
        strstr(lmdbio_sync_message(worker->sync), other) == NULL;
  }
  return NULL;
}

static void test_threads(void) {
  lmdbio_sync* sync = open_sync(NULL);
  struct worker workers[THREADS] = {0};
  for (int i = 0; i < THREADS; ++i) {
    workers[i].sync = sync;
    workers[i].number = i;
    CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < THREADS; ++i) {
    CHECK(pthread_join(workers[i].thread, NULL) == 0);
    CHECK(workers[i].failures == 0);
  }
  CHECK(strcmp(lmdbio_sync_message(sync), "") == 0);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* --- Wrong calls ---------------------------------------------------------------------------- */

static void test_wrong_handles(void) {
  lmdbio_sync* closed = open_sync(NULL);
  CHECK(lmdbio_sync_close(closed) == LMDBIO_OK);
  lmdbio_sync* sync = open_sync(NULL);
  lmdbio_sync_op* op = NULL;
  float value = 1;
  CHECK(lmdbio_sync_allreduce(sync, "a", &value, 1, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
  const lmdbio_sync_request request = request_of("b", LMDBIO_ALLREDUCE, &value, 1);
  const lmdbio_sync_request* const requests[] = {&request};
  const lmdbio_sync_counters* counters = NULL;
  const lmdbio_sync_result* result = NULL;
  const char* text = NULL;
  void* memory = NULL;
  lmdbio_sync_op* none = NULL;
  int number = 0;
  lmdbio_sync* const wrong[] = {NULL, closed, (lmdbio_sync*)op, (lmdbio_sync*)&value};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK(lmdbio_sync_rank(wrong[i], &number, &number) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_place(wrong[i], 1, &memory) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_shutdown(wrong[i]) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_submit(wrong[i], &request, &none) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_submit_group(wrong[i], requests, 1, &none) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_allreduce(wrong[i], "c", &value, 1, 0, &none) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_set_graph(wrong[i], requests, 1, NULL, 0) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_get_counters(wrong[i], &counters) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_describe(wrong[i], &text) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_flight_record(wrong[i], &text) == LMDBIO_BAD_HANDLE);
    expect_words(lmdbio_sync_message(wrong[i]), "no such handle");
    CHECK(lmdbio_sync_close(wrong[i]) == (wrong[i] == NULL ? LMDBIO_OK : LMDBIO_BAD_HANDLE));
  }
  finish(op);
  lmdbio_sync_op* const wrong_ops[] = {NULL, op, (lmdbio_sync_op*)sync, (lmdbio_sync_op*)&value};
  for (size_t i = 0; i < sizeof wrong_ops / sizeof *wrong_ops; ++i) {
    CHECK(lmdbio_sync_op_test(wrong_ops[i], &number) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_op_wait(wrong_ops[i]) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_op_wait_within(wrong_ops[i], 1) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_sync_op_result(wrong_ops[i], &result) == LMDBIO_BAD_HANDLE);
    expect_words(lmdbio_sync_op_message(wrong_ops[i]), "no such handle");
    CHECK(lmdbio_sync_op_close(wrong_ops[i]) ==
          (wrong_ops[i] == NULL ? LMDBIO_OK : LMDBIO_BAD_HANDLE));
  }
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void refuse_request(lmdbio_sync* sync, const lmdbio_sync_request* request,
                           const char* word) {
  lmdbio_sync_op* op = NULL;
  CHECK_STATUS(LMDBIO_INVALID_ARGUMENT, lmdbio_sync_submit(sync, request, &op), word);
  CHECK(op == NULL);
  expect_words(lmdbio_sync_message(sync), word);
}

static void test_wrong_requests(void) {
  lmdbio_sync* sync = open_sync(NULL);
  float value = 1;
  lmdbio_sync_op* op = NULL;
  refuse_request(sync, NULL, "NULL");
#define REFUSE_REQUEST(field, value_, word)                                   \
  do {                                                                        \
    lmdbio_sync_request bad = request_of("bad", LMDBIO_ALLREDUCE, &value, 1); \
    bad.field = value_;                                                       \
    refuse_request(sync, &bad, word);                                         \
  } while (0)
  REFUSE_REQUEST(struct_size, 0, "struct_size");
  REFUSE_REQUEST(struct_size, sizeof(lmdbio_sync_request) - 1, "struct_size");
  REFUSE_REQUEST(name, NULL, "request.name");
  REFUSE_REQUEST(name, "", "no name");
  REFUSE_REQUEST(name, "lmdbio.shutdown", "reserved");
  REFUSE_REQUEST(operation, 7, "request.operation");
  REFUSE_REQUEST(operation, -1, "request.operation");
  REFUSE_REQUEST(operation, LMDBIO_ALLTOALL, "request.splits");
  REFUSE_REQUEST(type, 6, "request.type");
  REFUSE_REQUEST(reduction, 4, "request.reduction");
  REFUSE_REQUEST(dimension_count, 1, "request.shape");
  REFUSE_REQUEST(count, -1, "shape [-1] is invalid");
  REFUSE_REQUEST(input, NULL, "no input");
  REFUSE_REQUEST(output, NULL, "no output");
  lmdbio_sync_request root = request_of("bad", LMDBIO_BROADCAST, &value, 1);
  root.root = 1;
  refuse_request(sync, &root, "root 1 is out of range");
  const int64_t splits[1] = {2};
  lmdbio_sync_request split = request_of("bad", LMDBIO_ALLTOALL, &value, 1);
  split.splits = splits;
  refuse_request(sync, &split, "splits [2]: the sum must be");
  CHECK(lmdbio_sync_allreduce(sync, "a", &value, 1, 0, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_place(sync, 0, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_get_counters(sync, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_describe(sync, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_flight_record(sync, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_submit_group(sync, NULL, 1, &op) == LMDBIO_INVALID_ARGUMENT);
  const lmdbio_sync_request good = request_of("good", LMDBIO_ALLREDUCE, &value, 1);
  const lmdbio_sync_request* const twice[] = {&good, &good};
  lmdbio_sync_op* ops[2] = {NULL, NULL};
  CHECK(lmdbio_sync_submit_group(sync, twice, 2, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_submit_group(sync, twice, 0, ops) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_submit_group(sync, twice, 2, ops) == LMDBIO_INVALID_ARGUMENT);
  expect_words(lmdbio_sync_message(sync), "'good'");
  CHECK(ops[0] == NULL && ops[1] == NULL);
  CHECK_STATUS(LMDBIO_OK, lmdbio_sync_submit(sync, &good, &op), lmdbio_sync_message(sync));
  CHECK(lmdbio_sync_op_test(op, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_sync_op_wait(op) == LMDBIO_OK);
  CHECK(lmdbio_sync_op_result(op, NULL) == LMDBIO_INVALID_ARGUMENT);
  finish(op);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

static void test_wrong_options(void) {
  CHECK(lmdbio_sync_open(NULL, NULL) == LMDBIO_INVALID_ARGUMENT);
#define REFUSE_OPTION(field, value, status, word)       \
  do {                                                  \
    lmdbio_sync_options bad = LMDBIO_SYNC_OPTIONS_INIT; \
    bad.field = value;                                  \
    refuse_options(&bad, status, word);                 \
  } while (0)
  REFUSE_OPTION(struct_size, 0, LMDBIO_INVALID_ARGUMENT, "struct_size");
  REFUSE_OPTION(struct_size, (size_t)-1, LMDBIO_INVALID_ARGUMENT, "struct_size");
  REFUSE_OPTION(coordinator, "boss", LMDBIO_INVALID_ARGUMENT, "coordinator: 'boss'");
  REFUSE_OPTION(pacing, "run", LMDBIO_INVALID_ARGUMENT, "pacing: 'run'");
  REFUSE_OPTION(collective, "mail", LMDBIO_INVALID_ARGUMENT, "collective: 'mail'");
  REFUSE_OPTION(transport, "mail", LMDBIO_INVALID_ARGUMENT, "transport: 'mail'");
  REFUSE_OPTION(collective, "mpi", LMDBIO_UNSUPPORTED, "options.collective");
  REFUSE_OPTION(transport, "mpi", LMDBIO_UNSUPPORTED, "options.transport");
  REFUSE_OPTION(cycle_time_us, -2, LMDBIO_INVALID_ARGUMENT, "options.cycle_time_us");
  REFUSE_OPTION(cycle_time_us, INT64_MAX, LMDBIO_INVALID_ARGUMENT, "options.cycle_time_us");
  REFUSE_OPTION(fusion_threshold_bytes, -2, LMDBIO_INVALID_ARGUMENT, "options.fusion_threshold");
  REFUSE_OPTION(cache_capacity, (int64_t)1 << 40, LMDBIO_INVALID_ARGUMENT, "options.cache");
  REFUSE_OPTION(reproducible, 2, LMDBIO_INVALID_ARGUMENT, "options.reproducible");
  REFUSE_OPTION(stall_report_ms, -2, LMDBIO_INVALID_ARGUMENT, "options.stall_report_ms");
  REFUSE_OPTION(stall_limit_ms, -2, LMDBIO_INVALID_ARGUMENT, "options.stall_limit_ms");
  REFUSE_OPTION(placement, "sync=1000000", LMDBIO_INVALID_ARGUMENT, "1000000");
  REFUSE_OPTION(timeline_path, "nowhere/at/all", LMDBIO_IO, "nowhere/at/all");

  struct later {
    lmdbio_sync_options known;
    uint64_t unknown;
  } later;
  memset(&later, 0, sizeof later);
  later.known.struct_size = sizeof later;
  CHECK(lmdbio_sync_close(open_sync(&later.known)) == LMDBIO_OK);
  later.unknown = 1;
  refuse_options(&later.known, LMDBIO_UNSUPPORTED, "this version");

  lmdbio_sync_options all = LMDBIO_SYNC_OPTIONS_INIT;
  all.coordinator = "horovod";
  all.pacing = "gs";
  all.collective = "shm";
  all.transport = "own";
  all.cycle_time_us = 200;
  all.gs_cycles = 3;
  all.num_groups = 2;
  all.group_by = "tensors";
  all.bucket_bytes = 1 << 20;
  all.fusion_threshold_bytes = -1;
  all.cache_capacity = -1;
  all.chunk_bytes = 65536;
  all.chunk_depth = 2;
  all.plan_patience_ms = 10;
  all.stall_report_ms = -1;
  all.stall_limit_ms = -1;
  all.silence_limit_ms = 100;
  lmdbio_sync* sync = open_sync(&all);
  const char* text = NULL;
  CHECK(lmdbio_sync_describe(sync, &text) == LMDBIO_OK);
  expect_words(text, "coordinator horovod, pacing gs");
  expect_words(text, "fusion up to 0 bytes, cache of 0");
  expect_words(text, "iterations of 2 tensor groups, of as many tensors each");
  CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

/* Programs of version 0.1.0 have a shorter struct, and what follows it is not theirs. */
static void test_options_of_0_1_0(void) {
  enum { SIZE_BYTES = 160 };
  lmdbio_sync_options options;
  memset(&options, 0xFF, sizeof options);
  memset(&options, 0, SIZE_BYTES);
  options.struct_size = SIZE_BYTES;
  options.gs_cycles = 3;
  CHECK(lmdbio_sync_close(open_sync(&options)) == LMDBIO_OK);
  options.struct_size = SIZE_BYTES - 1;
  refuse_options(&options, LMDBIO_INVALID_ARGUMENT, "struct_size");
  options.struct_size = SIZE_BYTES + 1;
  refuse_options(&options, LMDBIO_INVALID_ARGUMENT, "struct_size");
}

/* An operation outlives its synchronizer, and still returns its outcome. */
static void test_operation_after_close(void) {
  lmdbio_sync* sync = open_sync(NULL);
  float value = 3;
  lmdbio_sync_op* op = NULL;
  CHECK(lmdbio_sync_allreduce(sync, "a", &value, 1, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
  const int status = lmdbio_sync_op_wait(op);
  CHECK(status == LMDBIO_OK || status == LMDBIO_PEER_FAILED);
  if (status != LMDBIO_OK) {
    expect_words(lmdbio_sync_op_message(op), "tensor 'a'");
    const lmdbio_sync_result* result = NULL;
    CHECK(lmdbio_sync_op_result(op, &result) == LMDBIO_INVALID_ARGUMENT);
  }
  CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
}

static void test_fork(void) {
  if (!c_check_can_fork()) return;
  lmdbio_sync* sync = open_sync(NULL);
  float value = 3;
  lmdbio_sync_op *op = NULL, *other = NULL;
  CHECK(lmdbio_sync_allreduce(sync, "a", &value, 1, LMDBIO_FLOAT32, &op) == LMDBIO_OK);
  /* The address sanitizer's allocator does not survive a fork while another thread allocates. */
  CHECK(lmdbio_sync_op_wait(op) == LMDBIO_OK);
  usleep(100000);
  const pid_t child = fork();
  if (child == 0) {
    const char* text = NULL;
    CHECK(lmdbio_sync_allreduce(sync, "b", &value, 1, LMDBIO_FLOAT32, &other) == LMDBIO_FORKED);
    expect_words(lmdbio_sync_message(sync), "fork");
    CHECK(lmdbio_sync_describe(sync, &text) == LMDBIO_FORKED);
    CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_FORKED);
    CHECK(lmdbio_sync_op_wait(op) == LMDBIO_FORKED);
    expect_words(lmdbio_sync_op_message(op), "fork");
    CHECK(lmdbio_sync_op_close(op) == LMDBIO_OK);
    CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
    CHECK(lmdbio_sync_close(sync) == LMDBIO_BAD_HANDLE);
    lmdbio_sync* own = open_sync(NULL);
    CHECK(lmdbio_sync_allreduce(own, "b", &value, 1, LMDBIO_FLOAT32, &other) == LMDBIO_OK);
    finish(other);
    CHECK(lmdbio_sync_close(own) == LMDBIO_OK);
    _exit(c_check_failures > 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  finish(op);
  CHECK(lmdbio_sync_shutdown(sync) == LMDBIO_OK);
  CHECK(lmdbio_sync_close(sync) == LMDBIO_OK);
}

int main(void) {
  test_sums();
  test_every_operation();
  test_graph_memory_and_what_is_seen();
  test_order_of_computing();
  test_callbacks();
  test_threads();
  test_wrong_handles();
  test_wrong_requests();
  test_wrong_options();
  test_options_of_0_1_0();
  test_operation_after_close();
  test_fork();
  return c_check_failures > 0;
}
