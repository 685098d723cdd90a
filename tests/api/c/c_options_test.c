/* c_options_test DIGITS: each field of lmdbio_options reaches the loader, also from structs of
 * version 0.1.0.
 * DIGITS  the database that lmdbio-make digits writes
 * Oracle: lmdbio_get_options, which tests/load/plan/option_text_test.cc checks. */
#include <lmdbio.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/api/c/c_check.h"

static const char* digits;

/* Checks that a loader with these options has "name":value among the effective options. */
static void expect(const lmdbio_options* options, const char* name, const char* value) {
  lmdbio_loader* loader = NULL;
  const char* text = "";
  char member[256];
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(digits, options, &loader), lmdbio_message(loader));
  CHECK_STATUS(LMDBIO_OK, lmdbio_get_options(loader, &text), lmdbio_message(loader));
  snprintf(member, sizeof member, "\"%s\":%s", name, value);
  const char* found = strstr(text, member);
  if (found == NULL || strchr(",}", found[strlen(member)]) == NULL) {
    fprintf(stderr, "no %s in %s\n", member, text);
    ++c_check_failures;
  }
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

#define EXPECT(field, given, value)               \
  do {                                            \
    lmdbio_options options = LMDBIO_OPTIONS_INIT; \
    options.field = (given);                      \
    expect(&options, #field, value);              \
  } while (0)

static void test_each_field(void) {
  EXPECT(global_batch_size, 48, "48");
  EXPECT(max_batches, 3, "3");
  EXPECT(order, LMDBIO_ORDER_SHUFFLE, "\"shuffle\"");
  EXPECT(order, LMDBIO_ORDER_CHUNKED, "\"chunked\"");
  EXPECT(tail, LMDBIO_TAIL_SHORT, "\"short\"");
  EXPECT(tail, LMDBIO_TAIL_DROP, "\"drop\"");
  EXPECT(tail, LMDBIO_TAIL_WRAP, "\"wrap\"");
  EXPECT(share, LMDBIO_SHARE_ROUND_ROBIN, "\"round-robin\"");
  EXPECT(share, LMDBIO_SHARE_FILL, "\"fill\"");
  EXPECT(on_error, LMDBIO_ON_ERROR_SKIP, "\"skip\"");
  EXPECT(snapshot, LMDBIO_SNAPSHOT_OPTIMISTIC, "\"optimistic\"");
  EXPECT(seed, 7, "7");
  EXPECT(block_records, 10, "10");
  EXPECT(group_batches, 4, "4");
  EXPECT(reuse, 2, "2");
  EXPECT(epoch, 5, "5");
  EXPECT(num_shards, 2, "2");
  EXPECT(memory_budget_bytes, 1 << 23, "8388608");
  EXPECT(keep_bytes, 1 << 20, "1048576");
  EXPECT(keep_bytes, -1, "-1");
  EXPECT(prefetch_batches, 6, "6");
  EXPECT(allow_map, 1, "true");
  EXPECT(allow_map, -1, "false");
  EXPECT(readers_per_host, 2, "2");
  EXPECT(queue_depth, 16, "16");
  EXPECT(block_bytes, 65536, "65536");
  EXPECT(strategy, "scan", "\"scan\"");
  EXPECT(engine, "pread", "\"pread\"");
  EXPECT(placement, "compute=0,input=0,sync=0", "\"compute=0,input=0,sync=0\"");
  EXPECT(shuffle, LMDBIO_SHUFFLE_BLOCK, "\"block\"");
  EXPECT(reuse_among, LMDBIO_REUSE_AMONG_HOST, "\"host\"");
  EXPECT(cache, "direct", "\"direct\"");
  EXPECT(stagger, 3, "3");
  lmdbio_options shard = LMDBIO_OPTIONS_INIT;
  shard.num_shards = 2;
  shard.shard_id = 1;
  expect(&shard, "shard_id", "1");
}

/* Fields that refer to an object: a name that no database has, and a state. */
static void test_texts(void) {
  lmdbio_options other = LMDBIO_OPTIONS_INIT;
  other.database_name = "other";
  lmdbio_loader* loader = NULL;
  CHECK(lmdbio_open(digits, &other, &loader) == LMDBIO_NOT_FOUND);
  CHECK(strstr(lmdbio_message(loader), "other") != NULL);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);

  const char* state = NULL;
  CHECK(lmdbio_open(digits, NULL, &loader) == LMDBIO_OK);
  CHECK(lmdbio_save(loader, &state) == LMDBIO_OK);
  lmdbio_options again = LMDBIO_OPTIONS_INIT;
  again.state = state;
  expect(&again, "epoch", "0");
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

static void test_defaults(void) {
  expect(NULL, "global_batch_size", "64");
  expect(NULL, "max_batches", "0");
  expect(NULL, "tail", "\"short\"");
  expect(NULL, "allow_map", "true");
  expect(NULL, "keep_bytes", "0");
  expect(NULL, "engine", "null");
  expect(NULL, "cache", "null");
  lmdbio_options zeros = LMDBIO_OPTIONS_INIT;
  expect(&zeros, "tail", "\"short\"");
  expect(&zeros, "global_batch_size", "64");
}

/* The struct of version 0.1.0, up to its last field but one and to its last. Later fields are not
 * read. */
static void test_earlier_structs(void) {
  const size_t sizes[] = {offsetof(lmdbio_options, placement), offsetof(lmdbio_options, shuffle)};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    lmdbio_options earlier = LMDBIO_OPTIONS_INIT;
    earlier.struct_size = sizes[i];
    earlier.stagger = 77;
    expect(&earlier, "tail", "\"wrap\"");
    expect(&earlier, "allow_map", "true");
    expect(&earlier, "stagger", "0");
    earlier.tail = 1;
    expect(&earlier, "tail", "\"short\"");
    earlier.tail = 2;
    expect(&earlier, "tail", "\"drop\"");
    earlier.allow_map = 1; /* no_map */
    expect(&earlier, "allow_map", "false");
    earlier.order = 2; /* LMDBIO_ORDER_SHUFFLE_BLOCK */
    expect(&earlier, "order", "\"shuffle\"");
    expect(&earlier, "shuffle", "\"block\"");
    earlier.order = 3;
    expect(&earlier, "order", "\"chunked\"");
    expect(&earlier, "shuffle", "\"global\"");
  }
}

/* The offsets of version 0.1.0 on machines with addresses of 64 bits. */
static void test_offsets(void) {
  if (sizeof(void*) != 8) return;
  CHECK(offsetof(lmdbio_options, database_name) == 8);
  CHECK(offsetof(lmdbio_options, global_batch_size) == 16);
  CHECK(offsetof(lmdbio_options, max_batches) == 24);
  CHECK(offsetof(lmdbio_options, order) == 32);
  CHECK(offsetof(lmdbio_options, tail) == 36);
  CHECK(offsetof(lmdbio_options, snapshot) == 48);
  CHECK(offsetof(lmdbio_options, seed) == 56);
  CHECK(offsetof(lmdbio_options, state) == 96);
  CHECK(offsetof(lmdbio_options, num_shards) == 104);
  CHECK(offsetof(lmdbio_options, memory_budget_bytes) == 112);
  CHECK(offsetof(lmdbio_options, keep_bytes) == 120);
  CHECK(offsetof(lmdbio_options, allow_map) == 136);
  CHECK(offsetof(lmdbio_options, block_bytes) == 152);
  CHECK(offsetof(lmdbio_options, log_context) == 184);
  CHECK(offsetof(lmdbio_options, placement) == 192);
  CHECK(offsetof(lmdbio_options, shuffle) == 200);
}

static void test_wrong_values(void) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  lmdbio_loader* loader = NULL;
  options.allow_map = 2;
  CHECK(lmdbio_open(digits, &options, &loader) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_message(loader), "options.allow_map") != NULL);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  options.allow_map = 0;
  options.cache = "warm";
  CHECK(lmdbio_open(digits, &options, &loader) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_message(loader), "options.cache") != NULL);
  CHECK(strstr(lmdbio_message(loader), "buffered, direct") != NULL);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
  CHECK(lmdbio_get_options(NULL, NULL) == LMDBIO_BAD_HANDLE);
  CHECK(lmdbio_open(digits, NULL, &loader) == LMDBIO_OK);
  CHECK(lmdbio_get_options(loader, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  digits = argv[1];
  test_each_field();
  test_texts();
  test_defaults();
  test_earlier_structs();
  test_offsets();
  test_wrong_values();
  return c_check_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
