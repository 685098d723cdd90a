/* c_files_test DIGITS: a list of files as one, on the database that lmdbio-make digits writes. The
 * list has the file twice. Oracle: the file alone. */
#include <lmdbio.h>
#include <string.h>

#include "tests/api/c/c_check.h"

enum { RECORD_COUNT = 1797, BATCH = 100 };

static lmdbio_files list_of(const char* const* paths, size_t count) {
  lmdbio_files files = LMDBIO_FILES_INIT;
  files.paths = paths;
  files.count = count;
  return files;
}

static int same(const lmdbio_record* a, const lmdbio_record* b) {
  return a->key_size == b->key_size && memcmp(a->key, b->key, a->key_size) == 0 &&
         a->value_size == b->value_size && memcmp(a->value, b->value, a->value_size) == 0;
}

/* Compares record i of `two` with record i mod RECORD_COUNT of `one`. */
static void compare(lmdbio_dataset* two, lmdbio_dataset* one) {
  static uint64_t all[2 * RECORD_COUNT], once[2 * RECORD_COUNT];
  for (uint64_t i = 0; i < 2 * RECORD_COUNT; ++i) {
    all[i] = i;
    once[i] = i % RECORD_COUNT;
  }
  uint64_t count = 0;
  CHECK(lmdbio_dataset_count(two, &count) == LMDBIO_OK && count == 2 * RECORD_COUNT);
  const lmdbio_record *found = NULL, *expected = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_read(two, all, 2 * RECORD_COUNT, &found),
               lmdbio_dataset_message(two));
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_read(one, once, 2 * RECORD_COUNT, &expected),
               lmdbio_dataset_message(one));
  for (uint64_t i = 0; i < 2 * RECORD_COUNT && found != NULL && expected != NULL; ++i) {
    CHECK(found[i].position == i && same(&found[i], &expected[i]));
  }
}

static void test_dataset(const char* path) {
  const char* const paths[] = {path, path};
  const char* const names[] = {NULL, ""};
  lmdbio_files files = list_of(paths, 2);
  lmdbio_dataset *one = NULL, *two = NULL;
  CHECK(lmdbio_dataset_open(path, NULL, &one) == LMDBIO_OK);
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_open_files(&files, NULL, &two),
               lmdbio_dataset_message(two));
  compare(two, one);
  CHECK(lmdbio_dataset_close(two) == LMDBIO_OK);
  files.database_names = names;
  CHECK(lmdbio_dataset_open_files(&files, NULL, &two) == LMDBIO_OK);
  compare(two, one);
  CHECK(lmdbio_dataset_close(two) == LMDBIO_OK);
  CHECK(lmdbio_dataset_close(one) == LMDBIO_OK);
}

/* A store of one rank, which meets nobody. */
static int set_value(void* context, const char* key, const void* value, size_t value_bytes) {
  (void)context, (void)key, (void)value, (void)value_bytes;
  return LMDBIO_OK;
}
static int get_value(void* context, const char* key, void* value, size_t capacity_bytes,
                     size_t* out_value_bytes) {
  (void)context, (void)key, (void)value, (void)capacity_bytes, (void)out_value_bytes;
  return LMDBIO_NOT_FOUND;
}

/* Counts the records of a loader, and compares the first ones of both files. */
static void read_all(lmdbio_loader* loader) {
  uint64_t count = 0;
  const lmdbio_batch* batch = NULL;
  int status = LMDBIO_OK;
  while ((status = lmdbio_next(loader, &batch)) == LMDBIO_OK) count += batch->record_count;
  CHECK_STATUS(LMDBIO_END, status, lmdbio_message(loader));
  CHECK(count == 2 * RECORD_COUNT);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

static void test_loader(const char* path) {
  const char* const paths[] = {path, path};
  const lmdbio_files files = list_of(paths, 2);
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = BATCH;
  options.max_batches = (2 * RECORD_COUNT + BATCH - 1) / BATCH;
  options.open_files_max = 2;
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open_files(&files, &options, &loader), lmdbio_message(loader));
  uint64_t records = 0;
  CHECK(lmdbio_count(loader, &records, NULL) == LMDBIO_OK && records == 2 * RECORD_COUNT);
  read_all(loader);
  lmdbio_launch launch = LMDBIO_LAUNCH_INIT;
  launch.rank_count = 1;
  launch.set = set_value;
  launch.get = get_value;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open_launched_files(&launch, &files, &options, &loader),
               lmdbio_message(loader));
  read_all(loader);
}

/* Opens both kinds with a bad list. */
static void refuse(const lmdbio_files* files, int status, const char* words) {
  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open_files(files, NULL, &dataset) == status);
  CHECK(strstr(lmdbio_dataset_message(dataset), words) != NULL);
  lmdbio_dataset_close(dataset);
  lmdbio_loader* loader = NULL;
  CHECK(lmdbio_open_files(files, NULL, &loader) == status);
  CHECK(strstr(lmdbio_message(loader), words) != NULL);
  lmdbio_close(loader);
}

static void test_bad_lists(const char* path) {
  const char* const paths[] = {path, NULL};
  lmdbio_files files = list_of(paths, 2);
  refuse(NULL, LMDBIO_INVALID_ARGUMENT, "files is NULL");
  refuse(&files, LMDBIO_INVALID_ARGUMENT, "files.paths[1]: is NULL");
  files.count = 0;
  refuse(&files, LMDBIO_INVALID_ARGUMENT, "is empty");
  files.paths = NULL;
  files.count = 1;
  refuse(&files, LMDBIO_INVALID_ARGUMENT, "files.paths: is NULL");
  files.struct_size = 3;
  refuse(&files, LMDBIO_INVALID_ARGUMENT, "LMDBIO_FILES_INIT");
  const char* const absent[] = {path, "/nowhere/at/all"};
  files = list_of(absent, 2);
  refuse(&files, LMDBIO_NOT_FOUND, "/nowhere/at/all: cannot be opened");
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  test_dataset(argv[1]);
  test_loader(argv[1]);
  test_bad_lists(argv[1]);
  return c_check_failures == 0 ? 0 : 1;
}
