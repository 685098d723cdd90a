/* c_keys_test DIGITS: records by their keys, on the database that lmdbio-make digits writes.
 * Oracle: the same records by their numbers. */
#include <lmdbio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/c/c_check.h"

enum { RECORD_COUNT = 1797, THREAD_COUNT = 6, ROUND_COUNT = 40, LIST_MAX = 30 };

static lmdbio_dataset* dataset;
static lmdbio_key keys[RECORD_COUNT]; /* of all records, in order */
static const lmdbio_record* records;  /* the same */
static pthread_mutex_t failures_lock = PTHREAD_MUTEX_INITIALIZER;

static int same(const lmdbio_record* a, const lmdbio_record* b) {
  return a->key_size == b->key_size && memcmp(a->key, b->key, a->key_size) == 0 &&
         a->value_size == b->value_size && memcmp(a->value, b->value, a->value_size) == 0;
}

static void test_keys(const lmdbio_record* listed) {
  for (uint64_t i = 0; i < RECORD_COUNT; ++i) {
    CHECK(listed[i].key_size == records[i].key_size &&
          memcmp(listed[i].key, records[i].key, records[i].key_size) == 0);
    CHECK(listed[i].value == NULL && listed[i].value_size == 0 && listed[i].position == i);
  }
}

static void test_find_and_get(void) {
  static uint64_t numbers[RECORD_COUNT], counts[RECORD_COUNT];
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_find(dataset, keys, RECORD_COUNT, numbers, counts),
               lmdbio_dataset_message(dataset));
  for (uint64_t i = 0; i < RECORD_COUNT; ++i) CHECK(numbers[i] == i && counts[i] == 1);
  memset(counts, 0, sizeof counts);
  CHECK(lmdbio_dataset_find(dataset, keys, RECORD_COUNT, NULL, counts) == LMDBIO_OK);
  for (uint64_t i = 0; i < RECORD_COUNT; ++i) CHECK(counts[i] == 1);
  lmdbio_result* result = NULL;
  const lmdbio_record* found = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_get(dataset, keys, RECORD_COUNT, &result, &found),
               lmdbio_dataset_message(dataset));
  for (uint64_t i = 0; i < RECORD_COUNT && found != NULL; ++i) {
    CHECK(found[i].position == i && same(&found[i], &records[i]));
  }
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
}

/* Absent, empty and long keys, and a key that comes twice. */
static void test_absent_keys(void) {
  static char long_key[100000];
  const lmdbio_key some[] = {
      {"absent", 6}, keys[7], {NULL, 0}, {long_key, sizeof long_key}, keys[7]};
  enum { SOME = sizeof some / sizeof some[0] };
  uint64_t numbers[SOME], counts[SOME];
  CHECK(lmdbio_dataset_find(dataset, some, SOME, numbers, counts) == LMDBIO_OK);
  lmdbio_result* result = NULL;
  const lmdbio_record* found = NULL;
  CHECK(lmdbio_dataset_get(dataset, some, SOME, &result, &found) == LMDBIO_OK);
  for (size_t i = 0; i < SOME; ++i) {
    const int is_there = i == 1 || i == 4;
    CHECK(numbers[i] == (is_there ? 7 : LMDBIO_NO_RECORD) && counts[i] == (is_there ? 1u : 0u));
    CHECK(found[i].position == i);
    CHECK(is_there ? same(&found[i], &records[7])
                   : found[i].key == NULL && found[i].value == NULL && found[i].value_size == 0);
  }
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
}

static void test_wrong_calls(lmdbio_dataset* closed) {
  lmdbio_result* result = (lmdbio_result*)dataset;
  const lmdbio_record* found = NULL;
  uint64_t number = 5;
  const lmdbio_key wrong = {NULL, 3};
  CHECK(lmdbio_dataset_find(dataset, NULL, 1, &number, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_dataset_message(dataset), "keys is NULL") != NULL);
  CHECK(lmdbio_dataset_find(dataset, &wrong, 1, &number, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_dataset_message(dataset), "index 0 is NULL and has 3 bytes") != NULL);
  CHECK(lmdbio_dataset_find(dataset, NULL, 0, NULL, NULL) == LMDBIO_OK);
  CHECK(lmdbio_dataset_find(dataset, keys, 1, NULL, NULL) == LMDBIO_OK);
  CHECK(number == 5);
  CHECK(lmdbio_dataset_get(dataset, &wrong, 1, &result, &found) == LMDBIO_INVALID_ARGUMENT);
  CHECK(result == NULL);
  CHECK(lmdbio_dataset_get(dataset, keys, 1, NULL, &found) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_get(dataset, keys, 1, &result, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_get(dataset, NULL, 0, &result, &found) == LMDBIO_OK);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
  CHECK(lmdbio_dataset_keys(dataset, 0, RECORD_COUNT + 1, &result, &found) ==
        LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_dataset_message(dataset), "there are 1797") != NULL);
  CHECK(lmdbio_dataset_keys(dataset, RECORD_COUNT, 0, &result, &found) == LMDBIO_OK);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
  CHECK(lmdbio_dataset_find(closed, keys, 1, &number, NULL) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_dataset_get(closed, keys, 1, &result, &found) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_dataset_keys(NULL, 0, 1, &result, &found) == LMDBIO_BAD_HANDLE);
}

static void* find_in_thread(void* seed_of_thread) {
  unsigned seed = *(unsigned*)seed_of_thread;
  int failures = 0;
  for (int round = 0; round < ROUND_COUNT; ++round) {
    lmdbio_key some[LIST_MAX];
    uint64_t expected[LIST_MAX], numbers[LIST_MAX];
    const size_t count = 1 + (size_t)rand_r(&seed) % LIST_MAX;
    for (size_t i = 0; i < count; ++i) {
      expected[i] = (uint64_t)rand_r(&seed) % RECORD_COUNT;
      some[i] = keys[expected[i]];
    }
    lmdbio_result* result = NULL;
    const lmdbio_record* found = NULL;
    failures += lmdbio_dataset_find(dataset, some, count, numbers, NULL) != LMDBIO_OK;
    failures += lmdbio_dataset_get(dataset, some, count, &result, &found) != LMDBIO_OK;
    for (size_t i = 0; i < count && found != NULL; ++i) {
      failures += numbers[i] != expected[i] || !same(&found[i], &records[expected[i]]);
    }
    failures += lmdbio_result_close(result) != LMDBIO_OK;
  }
  pthread_mutex_lock(&failures_lock);
  CHECK(failures == 0);
  pthread_mutex_unlock(&failures_lock);
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[THREAD_COUNT];
  unsigned seeds[THREAD_COUNT];
  for (unsigned i = 0; i < THREAD_COUNT; ++i) {
    seeds[i] = 1 + i;
    CHECK(pthread_create(&threads[i], NULL, find_in_thread, &seeds[i]) == 0);
  }
  for (unsigned i = 0; i < THREAD_COUNT; ++i) pthread_join(threads[i], NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "c_keys_test DIGITS\n");
    return 2;
  }
  lmdbio_dataset* closed = NULL;
  CHECK(lmdbio_dataset_open(argv[1], NULL, &closed) == LMDBIO_OK);
  CHECK(lmdbio_dataset_close(closed) == LMDBIO_OK);
  CHECK(lmdbio_dataset_open(argv[1], NULL, &dataset) == LMDBIO_OK);
  static uint64_t numbers[RECORD_COUNT];
  for (uint64_t i = 0; i < RECORD_COUNT; ++i) numbers[i] = i;
  lmdbio_result* all = NULL;
  lmdbio_result* list = NULL;
  const lmdbio_record* listed = NULL;
  CHECK(lmdbio_dataset_fetch(dataset, numbers, RECORD_COUNT, &all, &records) == LMDBIO_OK);
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_keys(dataset, 0, RECORD_COUNT, &list, &listed),
               lmdbio_dataset_message(dataset));
  test_keys(listed);
  for (size_t i = 0; i < RECORD_COUNT; ++i) {
    keys[i].data = listed[i].key;
    keys[i].size = listed[i].key_size;
  }
  test_find_and_get();
  test_absent_keys();
  test_wrong_calls(closed);
  test_threads();
  CHECK(lmdbio_dataset_use_key_index(closed) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_dataset_use_key_index(dataset) == LMDBIO_OK);
  test_find_and_get();
  test_absent_keys();
  test_threads();
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
  test_keys(listed); /* results outlive their dataset */
  CHECK(lmdbio_result_close(list) == LMDBIO_OK);
  CHECK(lmdbio_result_close(all) == LMDBIO_OK);
  return c_check_failures > 0;
}
