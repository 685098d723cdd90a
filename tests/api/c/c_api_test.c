/* c_api_test DIGITS STALE LARGE: the C API from C11. Right calls, wrong calls, calls too late, and
 * fork.
 * DIGITS  the database that lmdbio-make digits writes: 1,797 records of a byte-wise increasing key
 * STALE   the same beside a file that is not a valid provenance file
 * LARGE   some MB of records with overflow runs */
#define _GNU_SOURCE /* O_DIRECT */
#include <errno.h>
#include <fcntl.h>
#include <lmdbio.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/c/c_check.h"

enum { RECORD_COUNT = 1797, LARGE_RECORD_COUNT = 2000 }; /* of DIGITS and of LARGE */

static const char* digits;

/* FNV-1a of keys and values, in order. */
static uint64_t mix(uint64_t sum, const void* bytes, size_t size) {
  const unsigned char* at = bytes;
  for (size_t i = 0; i < size; ++i) sum = (sum ^ at[i]) * 1099511628211u;
  return sum;
}
static uint64_t mix_record(uint64_t sum, const lmdbio_record* record) {
  return mix(mix(sum, record->key, record->key_size), record->value, record->value_size);
}

static lmdbio_loader* open_digits(const lmdbio_options* options) {
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(digits, options, &loader), lmdbio_message(loader));
  return loader;
}

static int refused_errno; /* of the last refusal */

static void refuse(const char* path, const lmdbio_options* options, int status, const char* word) {
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(status, lmdbio_open(path, options, &loader), word);
  CHECK(loader != NULL);
  if (strstr(lmdbio_message(loader), word) == NULL) {
    fprintf(stderr, "\"%s\" says nothing of %s\n", lmdbio_message(loader), word);
    ++c_check_failures;
  }
  refused_errno = lmdbio_errno(loader);
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_BAD_HANDLE);
  CHECK_STATUS(LMDBIO_OK, lmdbio_close(loader), "");
}

/* One epoch in order has the same records by batches and by numbers. */
static void test_one_epoch(void) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = 100;
  options.tail = LMDBIO_TAIL_SHORT;
  lmdbio_loader* loader = open_digits(&options);
  uint64_t records = 0, batches = 0;
  CHECK_STATUS(LMDBIO_OK, lmdbio_count(loader, &records, &batches), lmdbio_message(loader));
  CHECK(records == RECORD_COUNT && batches == 18);
  uint64_t sum = 0, count = 0;
  const lmdbio_batch* batch = NULL;
  do {
    CHECK_STATUS(LMDBIO_OK, lmdbio_next(loader, &batch), lmdbio_message(loader));
    for (size_t i = 0; i < batch->record_count; ++i) {
      CHECK(batch->records[i].position == count++);
      sum = mix_record(sum, &batch->records[i]);
    }
  } while (!batch->ends_epoch);
  CHECK(count == RECORD_COUNT && batch->number == 17 && batch->record_count == 97);

  const lmdbio_counters* counters = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_get_counters(loader, &counters), lmdbio_message(loader));
  CHECK(counters->record_count == RECORD_COUNT && counters->epoch_count == 1);
  const char* text = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_describe(loader, &text), lmdbio_message(loader));
  CHECK(strlen(text) > 0);
  CHECK(lmdbio_pin_compute(loader) == LMDBIO_OK); /* there is no placement */
  CHECK(lmdbio_close(loader) == LMDBIO_OK);

  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open(digits, NULL, &dataset) == LMDBIO_OK);
  CHECK(lmdbio_dataset_count(dataset, &records) == LMDBIO_OK && records == RECORD_COUNT);
  uint64_t sum_by_number = 0;
  for (uint64_t number = 0; number < RECORD_COUNT; ++number) {
    const lmdbio_record* record = NULL;
    CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_read(dataset, &number, 1, &record),
                 lmdbio_dataset_message(dataset));
    CHECK(record->position == number);
    sum_by_number = mix_record(sum_by_number, record);
  }
  CHECK(sum_by_number == sum);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
}

static void test_copied_values(void) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = 4;
  lmdbio_loader* loader = open_digits(&options);
  unsigned char rows[5][200];
  memset(rows, 0xff, sizeof rows);
  CHECK(lmdbio_copy_values(loader, rows, 200, 5) == LMDBIO_INVALID_ARGUMENT); /* no batch yet */
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK);
  CHECK(lmdbio_copy_values(loader, rows, 200, 3) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_copy_values(loader, rows, 10, 5) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_message(loader), "row_bytes is 10") != NULL);
  CHECK(lmdbio_copy_values(loader, NULL, 200, 5) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_copy_values(loader, NULL, (size_t)1 << 62, 16) == LMDBIO_INVALID_ARGUMENT);
  CHECK(rows[0][0] == 0xff && rows[4][199] == 0xff);
  CHECK_STATUS(LMDBIO_OK, lmdbio_copy_values(loader, rows, 200, 5), lmdbio_message(loader));
  const unsigned char zeros[200] = {0};
  for (size_t i = 0; i < 4; ++i) {
    const lmdbio_record* record = &batch->records[i];
    CHECK(memcmp(rows[i], record->value, record->value_size) == 0);
    CHECK(memcmp(rows[i] + record->value_size, zeros, 200 - record->value_size) == 0);
  }
  CHECK(memcmp(rows[4], zeros, 200) == 0);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

/* A stream that is saved, closed and restored continues without a difference. */
static void test_states(void) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.order = LMDBIO_ORDER_SHUFFLE;
  options.seed = 5;
  options.global_batch_size = 64;
  options.max_batches = 60;
  lmdbio_loader* loader = open_digits(&options);
  const lmdbio_batch* batch = NULL;
  char state[1001] = "";
  uint64_t sum = 0;
  int status;
  while ((status = lmdbio_next(loader, &batch)) == LMDBIO_OK) {
    if (batch->number >= 40) sum = mix_record(sum, &batch->records[7]);
    if (batch->number != 39) continue;
    const char* saved = NULL;
    CHECK(lmdbio_save(loader, &saved) == LMDBIO_OK && strlen(saved) < sizeof state);
    memcpy(state, saved, strlen(saved) + 1);
  }
  CHECK(status == LMDBIO_END && lmdbio_next(loader, &batch) == LMDBIO_END);
  CHECK_STATUS(LMDBIO_OK, lmdbio_restore(loader, state), lmdbio_message(loader));
  uint64_t again = 0;
  while (lmdbio_next(loader, &batch) == LMDBIO_OK) {
    again = mix_record(again, &batch->records[7]);
  }
  CHECK(again == sum);
  CHECK(lmdbio_restore(loader, "{}") == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_restore(loader, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strlen(lmdbio_message(loader)) > 0);
  CHECK_STATUS(LMDBIO_OK, lmdbio_set_epoch(loader, 0), lmdbio_message(loader));
  CHECK(lmdbio_close(loader) == LMDBIO_OK);

  options.state = state;
  loader = open_digits(&options);
  again = 0;
  while (lmdbio_next(loader, &batch) == LMDBIO_OK) {
    again = mix_record(again, &batch->records[7]);
  }
  CHECK(again == sum);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  options.seed = 6;
  refuse(digits, &options, LMDBIO_INVALID_ARGUMENT, "seed");
}

static void test_wrong_handles(void) {
  const lmdbio_batch* batch = NULL;
  const lmdbio_record* record = NULL;
  const lmdbio_counters* counters = NULL;
  const char* text = NULL;
  uint64_t count = 0;
  lmdbio_loader* closed = open_digits(NULL);
  CHECK(lmdbio_close(closed) == LMDBIO_OK);
  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open(digits, NULL, &dataset) == LMDBIO_OK);
  lmdbio_loader* const wrong[] = {NULL, closed, (lmdbio_loader*)dataset, (lmdbio_loader*)&count};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK(lmdbio_next(wrong[i], &batch) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_next_within(wrong[i], 1, &batch) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_copy_values(wrong[i], NULL, 0, 0) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_save(wrong[i], &text) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_restore(wrong[i], "{}") == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_set_epoch(wrong[i], 0) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_count(wrong[i], &count, NULL) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_get_counters(wrong[i], &counters) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_describe(wrong[i], &text) == LMDBIO_BAD_HANDLE);
    CHECK(lmdbio_pin_compute(wrong[i]) == LMDBIO_BAD_HANDLE);
    CHECK(strstr(lmdbio_message(wrong[i]), "no such handle") != NULL);
    CHECK(lmdbio_close(wrong[i]) == (wrong[i] == NULL ? LMDBIO_OK : LMDBIO_BAD_HANDLE));
  }
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_dataset_close(NULL) == LMDBIO_OK);
  count = 0;
  CHECK(lmdbio_dataset_read(dataset, &count, 1, &record) == LMDBIO_BAD_HANDLE);
  lmdbio_result* result = (lmdbio_result*)dataset;
  CHECK(lmdbio_dataset_fetch(dataset, &count, 1, &result, &record) == LMDBIO_BAD_HANDLE);
  CHECK(result == NULL);
  CHECK(lmdbio_result_close(NULL) == LMDBIO_OK);
  CHECK(lmdbio_result_close((lmdbio_result*)dataset) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_dataset_count(NULL, &count) == LMDBIO_BAD_HANDLE);
  CHECK(strlen(lmdbio_dataset_message(NULL)) > 0);
}

static void test_wrong_arguments(void) {
  CHECK(lmdbio_open(digits, NULL, NULL) == LMDBIO_INVALID_ARGUMENT);
  refuse(NULL, NULL, LMDBIO_INVALID_ARGUMENT, "path");
  refuse("no such file", NULL, LMDBIO_NOT_FOUND, "no such file");
  lmdbio_loader* loader = open_digits(NULL);
  CHECK(lmdbio_next(loader, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_save(loader, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_get_counters(loader, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_describe(loader, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_count(loader, NULL, NULL) == LMDBIO_OK);
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK && batch->number == 0); /* none was lost */
  CHECK(lmdbio_close(loader) == LMDBIO_OK);

  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open(digits, NULL, &dataset) == LMDBIO_OK);
  const lmdbio_record* record = NULL;
  const uint64_t beyond = RECORD_COUNT;
  CHECK(lmdbio_dataset_read(dataset, &beyond, 1, &record) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_dataset_message(dataset), "record 1797 is out of range") != NULL);
  CHECK(lmdbio_dataset_read(dataset, NULL, 1, &record) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_read(dataset, NULL, 0, &record) == LMDBIO_OK);
  CHECK(lmdbio_dataset_read(dataset, &beyond, 1, NULL) == LMDBIO_INVALID_ARGUMENT);
  lmdbio_result* result = (lmdbio_result*)dataset;
  CHECK(lmdbio_dataset_fetch(dataset, &beyond, 1, &result, &record) == LMDBIO_INVALID_ARGUMENT);
  CHECK(result == NULL); /* nothing to close */
  CHECK(strstr(lmdbio_dataset_message(dataset), "record 1797 is out of range") != NULL);
  CHECK(lmdbio_dataset_fetch(dataset, NULL, 1, &result, &record) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_fetch(dataset, NULL, 0, NULL, &record) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_fetch(dataset, NULL, 0, &result, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_fetch(dataset, NULL, 0, &result, &record) == LMDBIO_OK);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
  CHECK(lmdbio_result_close(result) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
}

/* The errno of a failed system call reaches the caller; the next failure replaces it. */
static void test_errno(void) {
  refuse("no such file", NULL, LMDBIO_NOT_FOUND, "no such file");
  CHECK(refused_errno == ENOENT);
  lmdbio_options wrong = LMDBIO_OPTIONS_INIT;
  wrong.order = 99;
  refuse(digits, &wrong, LMDBIO_INVALID_ARGUMENT, "options.order");
  CHECK(refused_errno == 0);

  struct rlimit limit, none;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  none = limit;
  none.rlim_cur = 0;
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  refuse(digits, NULL, LMDBIO_RESOURCE_EXHAUSTED, "Too many open files");
  CHECK(refused_errno == EMFILE);
  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open(digits, NULL, &dataset) == LMDBIO_RESOURCE_EXHAUSTED);
  CHECK(lmdbio_dataset_errno(dataset) == EMFILE);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);

  lmdbio_loader* loader = open_digits(NULL);
  CHECK(lmdbio_errno(loader) == 0);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_errno(loader) == 0);
  CHECK(lmdbio_errno(NULL) == 0 && lmdbio_dataset_errno(NULL) == 0);
}

static void test_wrong_options(void) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.struct_size = 0;
  refuse(digits, &options, LMDBIO_INVALID_ARGUMENT, "struct_size");
  options.struct_size = sizeof options - 1;
  refuse(digits, &options, LMDBIO_INVALID_ARGUMENT, "struct_size");
  options.struct_size = (size_t)-1;
  refuse(digits, &options, LMDBIO_INVALID_ARGUMENT, "struct_size");
  lmdbio_options nowhere = LMDBIO_OPTIONS_INIT;
  nowhere.placement = "input=1000000";
  refuse(digits, &nowhere, LMDBIO_INVALID_ARGUMENT, "core 1000000 does not exist");
#define REFUSE_FIELD(field, value)                                    \
  do {                                                                \
    lmdbio_options bad = LMDBIO_OPTIONS_INIT;                         \
    bad.field = value;                                                \
    refuse(digits, &bad, LMDBIO_INVALID_ARGUMENT, "options." #field); \
  } while (0)
  REFUSE_FIELD(order, 4);
  REFUSE_FIELD(order, -1);
  REFUSE_FIELD(tail, 4);
  REFUSE_FIELD(share, 3);
  REFUSE_FIELD(on_error, 99);
  REFUSE_FIELD(snapshot, 3);
  REFUSE_FIELD(strategy, "fast");
  REFUSE_FIELD(engine, "telepathy");
  REFUSE_FIELD(keep_bytes, -2);
  lmdbio_options shard = LMDBIO_OPTIONS_INIT;
  shard.num_shards = 2;
  shard.shard_id = 2;
  refuse(digits, &shard, LMDBIO_INVALID_ARGUMENT, "shard_id 2 is out of range");

  /* Options of an earlier version: the bytes after them are not read. */
  lmdbio_options earlier = LMDBIO_OPTIONS_INIT;
  earlier.struct_size = offsetof(lmdbio_options, placement);
  earlier.placement = "nonsense";
  CHECK(lmdbio_close(open_digits(&earlier)) == LMDBIO_OK);

  /* Options of a later version: valid as long as no new field is set. */
  struct later {
    lmdbio_options known;
    uint64_t unknown;
  } later;
  memset(&later, 0, sizeof later);
  later.known.struct_size = sizeof later;
  lmdbio_loader* loader = open_digits(&later.known);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  later.unknown = 1;
  refuse(digits, &later.known, LMDBIO_UNSUPPORTED, "this version");
}

/* The child does not touch the open objects of its parent, and reports that. */
static void test_fork(void) {
  if (!c_check_can_fork()) return;
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = 7;
  lmdbio_loader* loader = open_digits(&options);
  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open(digits, NULL, &dataset) == LMDBIO_OK);
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK);
  lmdbio_result* result = NULL;
  const lmdbio_record* record = NULL;
  const uint64_t number = 0;
  CHECK(lmdbio_dataset_read(dataset, &number, 1, &record) == LMDBIO_OK);
  CHECK(lmdbio_dataset_fetch(dataset, &number, 1, &result, &record) == LMDBIO_OK);
  /* The address sanitizer's allocator does not bear a fork while another thread allocates: until
   * the reading thread rests, its window full. */
  sleep(1);
  const pid_t child = fork();
  if (child == 0) {
    const char* state = NULL;
    CHECK(lmdbio_next(loader, &batch) == LMDBIO_FORKED);
    CHECK(strstr(lmdbio_message(loader), "fork") != NULL);
    CHECK(lmdbio_set_epoch(loader, 0) == LMDBIO_FORKED);
    CHECK(lmdbio_dataset_read(dataset, &number, 1, &record) == LMDBIO_FORKED);
    CHECK(lmdbio_result_close(result) == LMDBIO_OK);
    CHECK(lmdbio_save(loader, &state) == LMDBIO_OK);
    options.state = state;
    lmdbio_loader* own = open_digits(&options);
    CHECK(lmdbio_next(own, &batch) == LMDBIO_OK && batch->number == 1);
    CHECK(lmdbio_close(own) == LMDBIO_OK);
    CHECK(lmdbio_close(loader) == LMDBIO_OK);
    CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
    _exit(c_check_failures > 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK && batch->number == 1);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
  CHECK(record->position == 0 && lmdbio_result_close(result) == LMDBIO_OK);
}

struct heard {
  lmdbio_loader* loader;
  uint64_t record_count; /* that the loader must report */
  int lines;
};

/* The log callback may use the handle of the note. */
static void count_line(void* context, const char* message) {
  struct heard* heard = context;
  uint64_t records = 0;
  CHECK(strchr(message, '\n') == NULL && strlen(message) > 0);
  CHECK_STATUS(LMDBIO_OK, lmdbio_count(heard->loader, &records, NULL),
               lmdbio_message(heard->loader));
  CHECK(records == heard->record_count);
  ++heard->lines;
}

/* Opens with options that this kernel may not support, or with a damaged provenance file: see
 * c_api_log. */
static void test_log(const char* stale) {
  struct heard heard = {NULL, RECORD_COUNT, 0};
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.log = count_line;
  options.log_context = &heard;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(stale, &options, &heard.loader),
               lmdbio_message(heard.loader));
  CHECK(heard.lines == 1);
  CHECK(lmdbio_close(heard.loader) == LMDBIO_OK);
}

/* Replaces all direct descriptors by one that cannot be read. Returns 0 if there is none. */
static int spoil_direct_descriptors(void) {
  int count = 0;
  char byte = 0;
  const int refusing = open("/proc/self/clear_refs", O_RDONLY);
  if (refusing < 0 || pread(refusing, &byte, 1, 0) != -1) return 0; /* not root */
  for (int fd = 0; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0) count += dup2(refusing, fd) == fd;
  }
  close(refusing);
  return count;
}

/* The window is small, so most of the stream is read after the descriptor was replaced. */
static void test_late_log(const char* large) {
  struct heard heard = {NULL, LARGE_RECORD_COUNT, 0};
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.strategy = "scan";
  options.engine = "pread";
  options.memory_budget_bytes = 4 << 20;
  options.log = count_line;
  options.log_context = &heard;
  const lmdbio_batch* batch = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(large, &options, &heard.loader),
               lmdbio_message(heard.loader));
  CHECK_STATUS(LMDBIO_OK, lmdbio_next(heard.loader, &batch), lmdbio_message(heard.loader));
  if (heard.lines == 0 && spoil_direct_descriptors() > 0) {
    for (int i = 0; i < 1000 && heard.lines == 0; ++i) {
      CHECK_STATUS(LMDBIO_OK, lmdbio_next(heard.loader, &batch), lmdbio_message(heard.loader));
    }
    CHECK(heard.lines == 1);
  } else {
    fprintf(stderr, "skipped: no direct read can be refused here\n");
  }
  CHECK(lmdbio_close(heard.loader) == LMDBIO_OK);
}

static void test_words(void) {
  int number = 0;
  CHECK(strcmp(lmdbio_version(NULL), lmdbio_version(&number)) == 0);
  CHECK(number ==
        LMDBIO_VERSION_MAJOR * 1000000 + LMDBIO_VERSION_MINOR * 1000 + LMDBIO_VERSION_PATCH);
  CHECK(strcmp(lmdbio_strerror(LMDBIO_OK), "success") == 0);
  CHECK(strcmp(lmdbio_strerror(LMDBIO_CORRUPTION), "corruption") == 0);
  CHECK(strcmp(lmdbio_strerror(-1), "unknown status") == 0);
  for (int status = 0; status <= LMDBIO_FORKED; ++status) {
    CHECK(strcmp(lmdbio_strerror(status), "unknown status") != 0);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "c_api_test DIGITS STALE LARGE\n");
    return 2;
  }
  digits = argv[1];
  test_words();
  test_one_epoch();
  test_copied_values();
  test_states();
  test_wrong_handles();
  test_wrong_arguments();
  test_errno();
  test_wrong_options();
  test_fork();
  test_log(argv[2]);
  test_late_log(argv[3]);
  return c_check_failures > 0;
}
