/* c_threads_test DIGITS: threads that share a handle, on the database that lmdbio-make digits
 * writes. Each thread gets the records that it requested, and batches of its own, without a lock of
 * its own; results can be handed to other threads; each thread has its own message. Oracle: the
 * records that one thread has read before. */
#include <lmdbio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/c/c_check.h"

enum { RECORD_COUNT = 1797, THREAD_COUNT = 8, ROUND_COUNT = 150, LIST_MAX = 40 };

static lmdbio_dataset* dataset;
static lmdbio_loader* loader;
static pthread_mutex_t failures_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
  void* bytes;
  size_t size;
} values[RECORD_COUNT];

/* CHECK is for one thread at a time. */
static void check_in_thread(int holds, const char* what) {
  if (holds) return;
  pthread_mutex_lock(&failures_lock);
  fprintf(stderr, "%s\n", what);
  ++c_check_failures;
  pthread_mutex_unlock(&failures_lock);
}

static void read_values(void) {
  for (uint64_t i = 0; i < RECORD_COUNT; ++i) {
    const lmdbio_record* record = NULL;
    CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_read(dataset, &i, 1, &record),
                 lmdbio_dataset_message(dataset));
    values[i].size = record->value_size;
    values[i].bytes = malloc(record->value_size + 1u);
    if (record->value_size > 0) memcpy(values[i].bytes, record->value, record->value_size);
  }
}

/* 1 to LIST_MAX numbers. */
static size_t any_numbers(unsigned* seed, uint64_t* numbers) {
  const size_t count = 1 + (size_t)rand_r(seed) % LIST_MAX;
  for (size_t i = 0; i < count; ++i) numbers[i] = (uint64_t)rand_r(seed) % RECORD_COUNT;
  return count;
}

static void compare(const lmdbio_record* records, const uint64_t* numbers, size_t count) {
  for (size_t k = 0; k < count && records != NULL; ++k) {
    check_in_thread(
        records[k].position == numbers[k] && records[k].value_size == values[numbers[k]].size &&
            memcmp(records[k].value, values[numbers[k]].bytes, records[k].value_size) == 0,
        "another record than was asked for");
  }
}

static void* read_and_compare(void* seed_of_thread) {
  unsigned seed = *(unsigned*)seed_of_thread;
  uint64_t numbers[LIST_MAX];
  for (int i = 0; i < ROUND_COUNT; ++i) {
    const lmdbio_record* records = NULL;
    const size_t count = any_numbers(&seed, numbers);
    check_in_thread(lmdbio_dataset_read(dataset, numbers, count, &records) == LMDBIO_OK,
                    "lmdbio_dataset_read fails");
    compare(records, numbers, count);
  }
  return NULL;
}

/* A result on its way from the thread that has fetched it to any other. */
static struct {
  lmdbio_result* result;
  const lmdbio_record* records;
  uint64_t numbers[LIST_MAX];
  size_t count;
} handed[THREAD_COUNT];
static pthread_mutex_t handed_lock = PTHREAD_MUTEX_INITIALIZER;

static void* fetch_and_hand_over(void* seed_of_thread) {
  unsigned seed = *(unsigned*)seed_of_thread;
  for (int i = 0; i < ROUND_COUNT; ++i) {
    uint64_t numbers[LIST_MAX];
    lmdbio_result* result = NULL;
    const lmdbio_record* records = NULL;
    const size_t count = any_numbers(&seed, numbers);
    check_in_thread(lmdbio_dataset_fetch(dataset, numbers, count, &result, &records) == LMDBIO_OK,
                    "lmdbio_dataset_fetch fails");
    /* Takes what another thread has left there, and leaves its own. */
    const size_t at = (size_t)rand_r(&seed) % THREAD_COUNT;
    pthread_mutex_lock(&handed_lock);
    compare(handed[at].records, handed[at].numbers, handed[at].count);
    check_in_thread(lmdbio_result_close(handed[at].result) == LMDBIO_OK, "a result does not close");
    handed[at].result = result;
    handed[at].records = records;
    handed[at].count = count;
    memcpy(handed[at].numbers, numbers, sizeof numbers);
    pthread_mutex_unlock(&handed_lock);
  }
  return NULL;
}

static void* fail_and_ask_why(void* seed_of_thread) {
  const uint64_t number = 10000000 + *(unsigned*)seed_of_thread;
  char expected[64];
  snprintf(expected, sizeof expected, "record %llu is out of range", (unsigned long long)number);
  for (int i = 0; i < ROUND_COUNT; ++i) {
    const lmdbio_record* records = NULL;
    const int status = lmdbio_dataset_read(dataset, &number, 1, &records);
    check_in_thread(status == LMDBIO_INVALID_ARGUMENT, "a record that does not exist");
    check_in_thread(strstr(lmdbio_dataset_message(dataset), expected) != NULL,
                    "the message of another thread");
  }
  return NULL;
}

static pthread_mutex_t batches_lock = PTHREAD_MUTEX_INITIALIZER;
static int batch_counts[10000]; /* by number */

static void count_batch(const lmdbio_batch* batch) {
  pthread_mutex_lock(&batches_lock);
  ++batch_counts[batch->number];
  pthread_mutex_unlock(&batches_lock);
}

/* In an ordered stream the position of a record tells its number. */
static void compare_batch(const lmdbio_batch* batch) {
  for (size_t i = 0; i < batch->record_count; ++i) {
    const lmdbio_record* record = &batch->records[i];
    const uint64_t number = record->position % RECORD_COUNT;
    check_in_thread(record->value_size == values[number].size &&
                        memcmp(record->value, values[number].bytes, record->value_size) == 0,
                    "another record than that of its position");
  }
}

/* Its last batch ends with the thread. */
static void* use_loader(void* seed_of_thread) {
  unsigned seed = *(unsigned*)seed_of_thread;
  for (int i = 0; i < ROUND_COUNT; ++i) {
    const lmdbio_batch* batch = NULL;
    const lmdbio_counters* counters = NULL;
    const char* text = NULL;
    int status = lmdbio_next(loader, &batch);
    check_in_thread(status == LMDBIO_OK, lmdbio_message(loader));
    if (batch == NULL) return NULL;
    count_batch(batch);
    status = rand_r(&seed) % 2 == 0 ? lmdbio_get_counters(loader, &counters)
                                    : lmdbio_save(loader, &text);
    check_in_thread(status == LMDBIO_OK, "a call on a loader fails beside others");
    check_in_thread(lmdbio_errno(loader) == 0, "errno without a failure");
    compare_batch(batch); /* after others have taken batches */
  }
  return NULL;
}

/* The batch on its way from a thread that fetches to one that uses it. */
static struct {
  lmdbio_result* result; /* NULL: there is none */
  const lmdbio_batch* batch;
} handed_batch;
static pthread_cond_t handed_changes = PTHREAD_COND_INITIALIZER;

static void hand_batch(lmdbio_result* result, const lmdbio_batch* batch) {
  pthread_mutex_lock(&handed_lock);
  while (handed_batch.result != NULL) pthread_cond_wait(&handed_changes, &handed_lock);
  handed_batch.result = result;
  handed_batch.batch = batch;
  pthread_cond_broadcast(&handed_changes);
  pthread_mutex_unlock(&handed_lock);
}

static lmdbio_result* take_handed_batch(const lmdbio_batch** out_batch) {
  pthread_mutex_lock(&handed_lock);
  while (handed_batch.result == NULL) pthread_cond_wait(&handed_changes, &handed_lock);
  lmdbio_result* const result = handed_batch.result;
  *out_batch = handed_batch.batch;
  handed_batch.result = NULL;
  pthread_cond_broadcast(&handed_changes);
  pthread_mutex_unlock(&handed_lock);
  return result;
}

/* Every other thread fetches. */
static void* fetch_or_use_batches(void* seed_of_thread) {
  const unsigned seed = *(unsigned*)seed_of_thread;
  static char rows[THREAD_COUNT][64 * 4096];
  char* const mine = rows[seed % THREAD_COUNT];
  for (int i = 0; i < ROUND_COUNT; ++i) {
    lmdbio_result* result = NULL;
    const lmdbio_batch* batch = NULL;
    if (seed % 2 == 0) {
      const int status = lmdbio_fetch(loader, UINT32_MAX, &result, &batch);
      check_in_thread(status == LMDBIO_OK, lmdbio_message(loader));
      if (result == NULL) exit(1); /* the other threads would wait for it */
      count_batch(batch);
      hand_batch(result, batch);
      continue;
    }
    result = take_handed_batch(&batch);
    compare_batch(batch);
    check_in_thread(lmdbio_result_copy_values(result, mine, 1, 64) == LMDBIO_INVALID_ARGUMENT,
                    "a value fits into one byte");
    check_in_thread(strstr(lmdbio_result_message(result), "bytes, but row_bytes is 1") != NULL,
                    lmdbio_result_message(result));
    int status = lmdbio_result_copy_values(result, mine, 4096, 64);
    check_in_thread(status == LMDBIO_OK, lmdbio_result_message(result));
    check_in_thread(memcmp(mine, batch->records[0].value, batch->records[0].value_size) == 0,
                    "another value in the first row");
    check_in_thread(lmdbio_result_close(result) == LMDBIO_OK, "a result does not close");
  }
  return NULL;
}

static void run(void* (*work)(void*)) {
  pthread_t threads[THREAD_COUNT];
  unsigned seeds[THREAD_COUNT];
  for (unsigned i = 0; i < THREAD_COUNT; ++i) {
    seeds[i] = 100 + i;
    CHECK(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0);
  }
  for (unsigned i = 0; i < THREAD_COUNT; ++i) pthread_join(threads[i], NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "c_threads_test DIGITS\n");
    return 2;
  }
  CHECK(lmdbio_dataset_open(argv[1], NULL, &dataset) == LMDBIO_OK);
  read_values();
  run(read_and_compare);
  run(fetch_and_hand_over);
  run(fail_and_ask_why);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
  for (size_t i = 0; i < THREAD_COUNT; ++i) { /* results outlive their dataset */
    compare(handed[i].records, handed[i].numbers, handed[i].count);
    CHECK(lmdbio_result_close(handed[i].result) == LMDBIO_OK);
  }

  /* Little memory, so that a batch that is not returned would stop the others. */
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.memory_budget_bytes = 1 << 20;
  options.allow_map = -1;
  CHECK(lmdbio_open(argv[1], &options, &loader) == LMDBIO_OK);
  for (int round = 0; round < 3; ++round) {
    run(use_loader);
    run(fetch_or_use_batches);
    lmdbio_result* result = NULL;
    const lmdbio_batch* batch = NULL;
    const char* state = NULL;
    CHECK_STATUS(LMDBIO_OK, lmdbio_save(loader, &state), lmdbio_message(loader));
    CHECK_STATUS(LMDBIO_OK, lmdbio_fetch(loader, UINT32_MAX, &result, &batch),
                 lmdbio_message(loader));
    CHECK(lmdbio_restore(loader, state) == LMDBIO_INVALID_ARGUMENT);
    CHECK(strstr(lmdbio_message(loader), "while threads hold batches") != NULL);
    CHECK(lmdbio_result_close(result) == LMDBIO_OK);
    CHECK_STATUS(LMDBIO_OK, lmdbio_restore(loader, state), lmdbio_message(loader));
  }
  const lmdbio_counters* counters = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_get_counters(loader, &counters), lmdbio_message(loader));
  const size_t batch_count = 3 * (THREAD_COUNT + THREAD_COUNT / 2) * ROUND_COUNT;
  CHECK(counters->batch_count == batch_count + 3); /* those that restore took back */
  size_t once_count = 0;
  while (once_count < batch_count && batch_counts[once_count] == 1) ++once_count;
  CHECK(once_count == batch_count);
  /* A result that is closed after its loader. */
  lmdbio_result* result = NULL;
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_fetch(loader, UINT32_MAX, NULL, &batch) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_fetch(loader, UINT32_MAX, &result, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_fetch(loader, UINT32_MAX, &result, &batch) == LMDBIO_OK);
  CHECK(batch->number == batch_count); /* the calls that failed took none */
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
  CHECK(lmdbio_result_close(result) == LMDBIO_BAD_HANDLE);
  for (size_t i = 0; i < RECORD_COUNT; ++i) free(values[i].bytes);
  return c_check_failures > 0;
}
