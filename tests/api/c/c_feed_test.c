/* c_feed_test: batches on a GPU through lmdbio_feed.h, from C11. The GPU is that of a stand-in
 * (tests/emulated_gpu). Arguments: "none" if there is no driver; a database of digits. */
#include <lmdbio_feed.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/c/c_driver.h"

enum { SKIPPED = 77, BATCH = 32, BATCHES = 20 };

static const char* path = NULL;

static lmdbio_loader* open_loader_at(const char* state) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = BATCH;
  options.max_batches = BATCHES;
  options.order = LMDBIO_ORDER_SHUFFLE;
  options.allow_map = -1;
  options.keep_bytes = -1;
  options.state = state;
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(path, &options, &loader), lmdbio_message(loader));
  return loader;
}

static lmdbio_loader* open_loader(void) { return open_loader_at(NULL); }

static lmdbio_feed* open_feed(lmdbio_loader* loader, int shape) {
  lmdbio_feed_options options = LMDBIO_FEED_OPTIONS_INIT;
  options.shape = shape;
  lmdbio_feed* feed = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_feed_open(loader, &options, &feed), lmdbio_feed_message(feed));
  return feed;
}

/* Copies bytes that work on the stream sees. To be freed. */
static unsigned char* copied(const void* address, uint64_t size_bytes) {
  unsigned char* const bytes = malloc(size_bytes + 1);
  if (bytes == NULL) exit(1);
  read_device(bytes, (uint64_t)(uintptr_t)address, size_bytes);
  return bytes;
}

/* Whether the rows on the GPU are those of the batch of the host. */
static int same_values(const lmdbio_device_batch* fed, const lmdbio_batch* batch) {
  if (fed->record_count != batch->record_count || fed->field_count != 1) return 0;
  const lmdbio_device_rows* const rows = fed->fields;
  unsigned char* const bytes = copied(rows->rows, rows->size_bytes);
  uint64_t* const offsets =
      rows->offsets == NULL ? NULL
                            : (uint64_t*)(void*)copied(rows->offsets, 8 * (fed->record_count + 1));
  int same = offsets == NULL ? rows->size_bytes == rows->row_bytes * fed->record_count
                             : rows->row_bytes == 0;
  for (size_t i = 0; i < fed->record_count && same; ++i) {
    const lmdbio_record* const record = &batch->records[i];
    const uint64_t at = offsets == NULL ? i * rows->row_bytes : offsets[i];
    same = fed->records[i].position == record->position && fed->records[i].value == NULL &&
           fed->records[i].value_size == record->value_size &&
           fed->records[i].key_size == record->key_size &&
           memcmp(fed->records[i].key, record->key, record->key_size) == 0 &&
           memcmp(bytes + at, record->value, record->value_size) == 0;
  }
  free(bytes);
  free(offsets);
  return same;
}

static void delivers_the_batches_of_the_loader(int shape) {
  lmdbio_loader* const plain = open_loader();
  lmdbio_loader* const loader = open_loader();
  lmdbio_feed* const feed = open_feed(loader, shape);
  const lmdbio_batch* batch = NULL;
  const lmdbio_device_batch* fed = NULL;
  for (int i = 0; i < BATCHES; ++i) {
    CHECK_STATUS(LMDBIO_OK, lmdbio_next(plain, &batch), lmdbio_message(plain));
    CHECK_STATUS(LMDBIO_OK, lmdbio_feed_next(feed, stream, &fed), lmdbio_feed_message(feed));
    CHECK(fed->number == batch->number && fed->epoch == batch->epoch);
    CHECK(fed->first_position == batch->first_position);
    CHECK(fed->global_record_count == batch->global_record_count);
    CHECK(fed->ends_epoch == batch->ends_epoch && fed->skipped_count == batch->skipped_count);
    CHECK(same_values(fed, batch));
  }
  CHECK(lmdbio_feed_next(feed, stream, &fed) == LMDBIO_END);
  const lmdbio_feed_counters* counters = NULL;
  CHECK(lmdbio_feed_get_counters(feed, &counters) == LMDBIO_OK);
  CHECK(counters->batch_count == BATCHES);
  CHECK(counters->gathered_count + counters->staged_count == BATCHES);
  CHECK(counters->device_bytes > 0 && counters->grown_count > 0);
  const char* text = NULL;
  CHECK(lmdbio_feed_describe(feed, &text) == LMDBIO_OK);
  CHECK(strstr(text, "GPU 0") != NULL);
  CHECK(lmdbio_feed_close(feed) == LMDBIO_OK);
  CHECK(lmdbio_feed_close(feed) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_close(plain) == LMDBIO_OK);
}

/* A result keeps its rows, and outlives the feed and the loader. */
static void keeps_results(void) {
  lmdbio_loader* const plain = open_loader();
  lmdbio_loader* const loader = open_loader();
  lmdbio_feed* const feed = open_feed(loader, LMDBIO_FEED_SHAPE_ROWS);
  lmdbio_result* results[8];
  const lmdbio_device_batch* fed[8];
  for (int i = 0; i < 8; ++i) {
    CHECK_STATUS(LMDBIO_OK, lmdbio_feed_fetch(feed, UINT32_MAX, NULL, &results[i], &fed[i]),
                 lmdbio_feed_message(feed));
    CHECK(lmdbio_result_use_on(results[i], stream) == LMDBIO_OK);
  }
  CHECK(lmdbio_close(loader) == LMDBIO_OK); /* released with the feed */
  CHECK(lmdbio_feed_close(feed) == LMDBIO_OK);
  unsigned char row[8];
  CHECK(lmdbio_result_copy_values(results[0], row, 8, 1) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_result_message(results[0]), "on a GPU") != NULL);
  CHECK(lmdbio_result_copy_field(results[0], 0, row, 8, 1) == LMDBIO_INVALID_ARGUMENT);
  for (int i = 0; i < 8; ++i) {
    const lmdbio_batch* batch = NULL;
    CHECK(lmdbio_next(plain, &batch) == LMDBIO_OK);
    CHECK(same_values(fed[i], batch));
    CHECK(lmdbio_result_close(results[i]) == LMDBIO_OK);
  }
  lmdbio_result* of_host = NULL;
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_fetch(plain, UINT32_MAX, &of_host, &batch) == LMDBIO_OK);
  CHECK(lmdbio_result_use_on(of_host, stream) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_result_close(of_host) == LMDBIO_OK);
  CHECK(lmdbio_close(plain) == LMDBIO_OK);
}

/* The calls of the loader are about the program's batches while it has a feed. */
static void gives_the_position_of_the_program(void) {
  lmdbio_loader* const loader = open_loader();
  lmdbio_feed* const feed = open_feed(loader, LMDBIO_FEED_SHAPE_ROWS);
  const lmdbio_device_batch* fed = NULL;
  for (int i = 0; i < 5; ++i) CHECK(lmdbio_feed_next(feed, stream, &fed) == LMDBIO_OK);
  const char* text = NULL;
  CHECK(lmdbio_save(loader, &text) == LMDBIO_OK);
  char* const state = strdup(text);
  lmdbio_loader* const resumed = open_loader_at(state);
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(resumed, &batch) == LMDBIO_OK);
  CHECK(lmdbio_feed_next(feed, stream, &fed) == LMDBIO_OK);
  CHECK(fed->number == 5 && same_values(fed, batch));

  CHECK(lmdbio_next(loader, &batch) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_message(loader), "has a feed") != NULL);
  lmdbio_result* result = NULL;
  CHECK(lmdbio_fetch(loader, 0, &result, &batch) == LMDBIO_INVALID_ARGUMENT);
  lmdbio_feed* second = NULL;
  CHECK(lmdbio_feed_open(loader, NULL, &second) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_feed_message(second), "has a feed") != NULL);
  CHECK(lmdbio_feed_next(second, stream, &fed) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_feed_close(second) == LMDBIO_OK);

  CHECK_STATUS(LMDBIO_OK, lmdbio_restore(loader, state), lmdbio_message(loader));
  CHECK(lmdbio_feed_next(feed, stream, &fed) == LMDBIO_OK);
  CHECK(fed->number == 5);
  CHECK(lmdbio_restore(loader, "nonsense") == LMDBIO_INVALID_ARGUMENT);
  CHECK_STATUS(LMDBIO_OK, lmdbio_set_epoch(loader, 0), lmdbio_message(loader));
  CHECK(lmdbio_feed_next(feed, stream, &fed) == LMDBIO_OK);
  CHECK(fed->first_position == 0);

  CHECK(lmdbio_feed_close(feed) == LMDBIO_OK);
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK); /* the loader goes on alone */
  free(state);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_close(resumed) == LMDBIO_OK);
}

static void refuses_wrong_calls(void) {
  lmdbio_loader* const loader = open_loader();
  lmdbio_feed* feed = NULL;
  CHECK(lmdbio_feed_open(NULL, NULL, &feed) == LMDBIO_BAD_HANDLE && feed == NULL);
  CHECK(lmdbio_feed_open(loader, NULL, NULL) == LMDBIO_INVALID_ARGUMENT);
  lmdbio_feed_options options = LMDBIO_FEED_OPTIONS_INIT;
  const struct {
    int shape;
    uint32_t depth;
    int device;
    size_t struct_size;
    int status;
    const char* word;
  } wrong[] = {{2, 0, 0, sizeof options, LMDBIO_INVALID_ARGUMENT, "options.shape"},
               {0, 65, 0, sizeof options, LMDBIO_INVALID_ARGUMENT, "expected 1 to 64"},
               {0, 0, 9, sizeof options, LMDBIO_NOT_FOUND, "GPU 9"},
               {0, 0, 0, 8, LMDBIO_INVALID_ARGUMENT, "struct_size"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    options.shape = wrong[i].shape;
    options.depth = wrong[i].depth;
    options.device = wrong[i].device;
    options.struct_size = wrong[i].struct_size;
    CHECK(lmdbio_feed_open(loader, &options, &feed) == wrong[i].status);
    CHECK(strstr(lmdbio_feed_message(feed), wrong[i].word) != NULL);
    CHECK(lmdbio_feed_errno(feed) == 0);
    CHECK(lmdbio_feed_close(feed) == LMDBIO_OK);
  }
  feed = open_feed(loader, LMDBIO_FEED_SHAPE_ROWS);
  const lmdbio_device_batch* fed = NULL;
  lmdbio_result* result = NULL;
  CHECK(lmdbio_feed_next(feed, stream, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_feed_fetch(feed, 0, stream, NULL, &fed) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_feed_fetch(feed, 0, stream, &result, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_feed_get_counters(feed, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_feed_describe(feed, NULL) == LMDBIO_INVALID_ARGUMENT);
  int at_once = LMDBIO_TIMEOUT; /* the batch comes, with as many limits as it takes */
  while (at_once == LMDBIO_TIMEOUT) at_once = lmdbio_feed_fetch(feed, 0, stream, &result, &fed);
  CHECK(at_once == LMDBIO_OK && fed->number == 0);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);

  const pid_t child = fork();
  if (child == 0) {
    const char* state = NULL;
    const int right = lmdbio_feed_next(feed, stream, &fed) == LMDBIO_FORKED &&
                      lmdbio_feed_open(loader, NULL, &feed) == LMDBIO_FORKED &&
                      lmdbio_save(loader, &state) == LMDBIO_FORKED &&
                      lmdbio_close(loader) == LMDBIO_OK;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(lmdbio_feed_next(feed, stream, &fed) == LMDBIO_OK && fed->number == 1);
  CHECK(lmdbio_feed_close(feed) == LMDBIO_OK);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

static int without_driver(void) {
  lmdbio_loader* const loader = open_loader();
  lmdbio_feed* feed = NULL;
  if (lmdbio_feed_open(loader, NULL, &feed) == LMDBIO_OK) return SKIPPED; /* there is one */
  CHECK(lmdbio_feed_open(loader, NULL, &feed) == LMDBIO_NOT_FOUND);
  CHECK(strstr(lmdbio_feed_message(feed), "libcuda.so.1") != NULL);
  CHECK(lmdbio_feed_close(feed) == LMDBIO_OK);
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK && batch->number == 0);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  return c_check_failures == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  path = argv[argc - 1];
  if (argc > 2) return without_driver();
  open_driver();
  delivers_the_batches_of_the_loader(LMDBIO_FEED_SHAPE_ROWS);
  delivers_the_batches_of_the_loader(LMDBIO_FEED_SHAPE_PACKED);
  keeps_results();
  gives_the_position_of_the_program();
  refuses_wrong_calls();
  return c_check_failures == 0 ? 0 : 1;
}
