/* c_caffe_order_test DATABASE...: the records that Caffe's solvers get through options of
 * examples/caffe/caffe_order.h are those of the closed form there, for more than two epochs, at
 * several numbers of solvers and batch sizes. A dataset returns the n-th record. */
#include <stdlib.h>

#include "examples/caffe/caffe_order.h"
#include "tests/api/c/c_check.h"

enum { SOLVER_COUNT_MAX = 8 };

/* Every record of a database, by its number. */
typedef struct CaffeOracle {
  const char* path;
  lmdbio_dataset* dataset;
  const lmdbio_record* records; /* [count] */
  uint64_t count;
} CaffeOracle;

static int open_oracle(const char* path, CaffeOracle* oracle) {
  *oracle = (CaffeOracle){.path = path};
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_open(path, NULL, &oracle->dataset),
               lmdbio_dataset_message(oracle->dataset));
  if (lmdbio_dataset_count(oracle->dataset, &oracle->count) != LMDBIO_OK) return 0;
  uint64_t* numbers = malloc(oracle->count * sizeof *numbers);
  if (numbers == NULL) return 0;
  for (uint64_t i = 0; i < oracle->count; ++i) numbers[i] = i;
  const int status = lmdbio_dataset_read(oracle->dataset, numbers, oracle->count, &oracle->records);
  CHECK_STATUS(LMDBIO_OK, status, lmdbio_dataset_message(oracle->dataset));
  free(numbers);
  return status == LMDBIO_OK;
}

static int equal(const lmdbio_record* a, const lmdbio_record* b) {
  return a->key_size == b->key_size && a->value_size == b->value_size &&
         memcmp(a->key, b->key, a->key_size) == 0 && memcmp(a->value, b->value, a->value_size) == 0;
}

/* Checks the records of one solver in iteration t. */
static void check_batch(const CaffeOracle* oracle, const lmdbio_batch* batch, uint64_t t,
                        uint64_t B, int S, int r) {
  CHECK(batch->record_count == B);
  for (uint64_t i = 0; i < batch->record_count; ++i) {
    const uint64_t number = ((t * B + i) * (uint64_t)S + (uint64_t)r) % oracle->count;
    if (equal(&batch->records[i], &oracle->records[number])) continue;
    fprintf(stderr, "%s: S=%d B=%d: item %d of solver %d in iteration %d is not record %d\n",
            oracle->path, S, (int)B, (int)i, r, (int)t, (int)number);
    ++c_check_failures;
    return;
  }
}

/* Simulates S solver processes in lockstep: each has a loader of its own. */
static void check_order(const CaffeOracle* oracle, uint64_t B, int S) {
  lmdbio_loader* loaders[SOLVER_COUNT_MAX] = {NULL};
  for (int r = 0; r < S; ++r) {
    lmdbio_options options = LMDBIO_OPTIONS_INIT;
    set_caffe_order(&options, B, S);
    options.num_shards = S;
    options.shard_id = r;
    CHECK_STATUS(LMDBIO_OK, lmdbio_open(oracle->path, &options, &loaders[r]),
                 lmdbio_message(loaders[r]));
  }
  const uint64_t iterations = 2 * oracle->count / (B * (uint64_t)S) + 3;
  for (uint64_t t = 0; t < iterations && c_check_failures == 0; ++t) {
    for (int r = 0; r < S; ++r) {
      const lmdbio_batch* batch = NULL;
      const int status = lmdbio_next(loaders[r], &batch);
      CHECK_STATUS(LMDBIO_OK, status, lmdbio_message(loaders[r]));
      if (status == LMDBIO_OK) check_batch(oracle, batch, t, B, S, r);
    }
  }
  for (int r = 0; r < S; ++r) CHECK(lmdbio_close(loaders[r]) == LMDBIO_OK);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: c_caffe_order_test DATABASE...\n");
    return 2;
  }
  const int solver_counts[] = {1, 2, 3, SOLVER_COUNT_MAX};
  const uint64_t batch_sizes[] = {1, 7, 64};
  for (int argument = 1; argument < argc; ++argument) {
    CaffeOracle oracle;
    if (open_oracle(argv[argument], &oracle)) {
      for (int s = 0; s < 4; ++s) {
        for (int b = 0; b < 3; ++b) check_order(&oracle, batch_sizes[b], solver_counts[s]);
      }
    }
    CHECK(lmdbio_dataset_close(oracle.dataset) == LMDBIO_OK);
  }
  return c_check_failures == 0 ? 0 : 1;
}
