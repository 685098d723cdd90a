/* c_views_test DIGITS: loaders and datasets with views, on the database that lmdbio-make digits
 * writes. Oracle: the same records by their numbers, without a view. */
#include <lmdbio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/c/c_check.h"

enum { RECORD_COUNT = 1797, START = 100, COUNT = 1000 };

static const char* path;
static const lmdbio_record* records; /* [RECORD_COUNT] in key order */
static char key_template[16];        /* of their keys, which are numbers with leading zeros */

static int same(const lmdbio_record* a, const lmdbio_record* b) {
  return a->key_size == b->key_size && memcmp(a->key, b->key, a->key_size) == 0 &&
         a->value_size == b->value_size && memcmp(a->value, b->value, a->value_size) == 0;
}

static lmdbio_dataset* open_dataset(const lmdbio_view* view) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.view = view;
  lmdbio_dataset* dataset = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_dataset_open(path, &options, &dataset),
               lmdbio_dataset_message(dataset));
  return dataset;
}

/* The message of a dataset that cannot be opened. Valid until the next call. */
static const char* refusal_of(const lmdbio_view* view, int expected) {
  static char message[1024];
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.view = view;
  lmdbio_dataset* dataset = NULL;
  CHECK(lmdbio_dataset_open(path, &options, &dataset) == expected);
  snprintf(message, sizeof message, "%s", lmdbio_dataset_message(dataset));
  lmdbio_dataset_close(dataset);
  lmdbio_loader* loader = NULL; /* a loader refuses the same, in the same words */
  CHECK(lmdbio_open(path, &options, &loader) == expected);
  CHECK(strcmp(lmdbio_message(loader), message) == 0);
  lmdbio_close(loader);
  return message;
}

static void test_subset_of_dataset(void) {
  const lmdbio_key exclude[] = {{records[0].key, records[0].key_size}, {"absent", 6}};
  const uint64_t subset[] = {5, 1795, 0, 5};
  lmdbio_view view = LMDBIO_VIEW_INIT;
  view.order = LMDBIO_VIEW_ORDER_NUMERIC;
  view.exclude = exclude;
  view.exclude_count = 2;
  view.subset = subset;
  view.subset_count = 4;
  lmdbio_dataset* dataset = open_dataset(&view);
  uint64_t count = 0;
  CHECK(lmdbio_dataset_count(dataset, &count) == LMDBIO_OK && count == 4);
  const uint64_t numbers[] = {3, 1};
  const lmdbio_record* found = NULL;
  CHECK(lmdbio_dataset_read(dataset, numbers, 2, &found) == LMDBIO_OK);
  CHECK(same(&found[0], &records[6]) && found[0].position == 3);
  CHECK(same(&found[1], &records[1796]) && found[1].position == 1);
  const lmdbio_key keys[] = {{records[1].key, records[1].key_size}, exclude[0]};
  uint64_t of_keys[2], values[2];
  CHECK(lmdbio_dataset_find(dataset, keys, 2, of_keys, values) == LMDBIO_OK);
  CHECK(of_keys[0] == 2 && values[0] == 1 && of_keys[1] == LMDBIO_NO_RECORD && values[1] == 0);
  const lmdbio_view_info* info = NULL;
  CHECK(lmdbio_dataset_get_view(dataset, &info) == LMDBIO_OK);
  CHECK(info->sample_count == 4 && info->field_count == 1 && info->digest != 0);
  CHECK(strcmp(info->field_names[0], "") == 0);
  CHECK(lmdbio_dataset_get_view(dataset, NULL) == LMDBIO_INVALID_ARGUMENT);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
}

/* Two fields, both of the same records. */
static lmdbio_view view_of_fields(void) {
  static lmdbio_view_field digit, again;
  static const lmdbio_view_field* fields[] = {&digit, &again};
  digit = (lmdbio_view_field)LMDBIO_VIEW_FIELD_INIT;
  again = (lmdbio_view_field)LMDBIO_VIEW_FIELD_INIT;
  digit.name = "digit";
  again.name = "again";
  digit.key_template = again.key_template = key_template;
  lmdbio_view view = LMDBIO_VIEW_INIT;
  view.fields = fields;
  view.field_count = 2;
  view.start = START;
  view.has_count = 1;
  view.count = COUNT;
  return view;
}

static void test_fields_of_dataset(void) {
  const lmdbio_view view = view_of_fields();
  lmdbio_dataset* dataset = open_dataset(&view);
  const uint64_t numbers[] = {999, 0};
  lmdbio_result* result = NULL;
  const lmdbio_record* found = NULL;
  CHECK(lmdbio_dataset_fetch(dataset, numbers, 2, &result, &found) == LMDBIO_OK);
  for (int i = 0; i < 4; ++i) {
    CHECK(same(&found[i], &records[START + numbers[i / 2]]) && found[i].position == numbers[i / 2]);
  }
  static unsigned char rows[2][4096];
  CHECK(lmdbio_result_copy_field(result, 1, rows, sizeof rows[0], 2) == LMDBIO_OK);
  CHECK(memcmp(rows[1], records[START].value, records[START].value_size) == 0);
  CHECK(lmdbio_result_copy_field(result, 2, rows, sizeof rows[0], 2) == LMDBIO_INVALID_ARGUMENT);
  CHECK(strstr(lmdbio_result_message(result), "field 2 is out of range") != NULL);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
  CHECK(lmdbio_dataset_keys(dataset, 7, 1, &result, &found) == LMDBIO_OK);
  CHECK(found[1].key_size == records[START + 7].key_size &&
        memcmp(found[1].key, records[START + 7].key, found[1].key_size) == 0);
  CHECK(lmdbio_result_close(result) == LMDBIO_OK);
  CHECK(lmdbio_dataset_close(dataset) == LMDBIO_OK);
}

static void test_loader(void) {
  const lmdbio_view view = view_of_fields();
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.global_batch_size = 64;
  options.max_batches = 16;
  options.view = &view;
  lmdbio_loader* loader = NULL;
  CHECK_STATUS(LMDBIO_OK, lmdbio_open(path, &options, &loader), lmdbio_message(loader));
  uint64_t samples = 0, batches = 0;
  CHECK(lmdbio_count(loader, &samples, &batches) == LMDBIO_OK && samples == COUNT && batches == 16);
  const lmdbio_view_info* info = NULL;
  CHECK(lmdbio_get_view(loader, &info) == LMDBIO_OK);
  CHECK(info->sample_count == COUNT && info->field_count == 2);
  CHECK(strcmp(info->field_names[0], "digit") == 0 && strcmp(info->field_names[1], "again") == 0);
  const lmdbio_batch* batch = NULL;
  uint64_t seen = 0;
  while (lmdbio_next(loader, &batch) == LMDBIO_OK) {
    CHECK(batch->field_count == 2 && batch->record_count % 2 == 0);
    for (size_t i = 0; i < batch->record_count; ++i) {
      CHECK(same(&batch->records[i], &records[START + seen + i / 2]));
      CHECK(batch->records[i].position == seen + i / 2);
    }
    seen += batch->record_count / 2;
    CHECK(batch->global_record_count * 2 == batch->record_count);
  }
  CHECK(seen == COUNT);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

static void test_without_a_view(void) {
  lmdbio_loader* loader = NULL;
  CHECK(lmdbio_open(path, NULL, &loader) == LMDBIO_OK);
  const lmdbio_view_info* info = NULL;
  CHECK(lmdbio_get_view(loader, &info) == LMDBIO_OK);
  CHECK(info->sample_count == RECORD_COUNT && info->field_count == 1 && info->digest == 0);
  const lmdbio_batch* batch = NULL;
  CHECK(lmdbio_next(loader, &batch) == LMDBIO_OK && batch->field_count == 1);
  CHECK(lmdbio_close(loader) == LMDBIO_OK);
}

static void test_wrong_views(void) {
  lmdbio_view view = view_of_fields();
  view.count = 2000;
  CHECK(strstr(refusal_of(&view, LMDBIO_NOT_FOUND), "field \"digit\" lacks the key") != NULL);
  view.struct_size = 3;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "view.struct_size") != NULL);
  view = view_of_fields();
  view.order = 2;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "view.order: 2") != NULL);
  view = view_of_fields();
  const lmdbio_view_field* missing[] = {NULL};
  view.fields = missing;
  view.field_count = 1;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "view.fields[0]: is NULL") != NULL);
  view.fields = NULL;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "view.fields: is NULL") != NULL);
  view = (lmdbio_view)LMDBIO_VIEW_INIT;
  view.exclude_count = 1;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "view.exclude: is NULL") != NULL);
  const lmdbio_key wrong = {NULL, 3};
  view.exclude = &wrong;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "index 0 is NULL") != NULL);
  view = (lmdbio_view)LMDBIO_VIEW_INIT;
  const uint64_t number = RECORD_COUNT;
  view.subset_count = 1;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "view.subset: is NULL") != NULL);
  view.subset = &number;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "subset[0] is 1797") != NULL);
  view.subset_keys = &wrong;
  CHECK(strstr(refusal_of(&view, LMDBIO_INVALID_ARGUMENT), "excludes view.subset_keys") != NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "c_views_test DIGITS\n");
    return 2;
  }
  path = argv[1];
  static uint64_t numbers[RECORD_COUNT];
  for (uint64_t i = 0; i < RECORD_COUNT; ++i) numbers[i] = i;
  lmdbio_dataset* plain = open_dataset(NULL);
  CHECK(lmdbio_dataset_read(plain, numbers, RECORD_COUNT, &records) == LMDBIO_OK);
  snprintf(key_template, sizeof key_template, "{:0%ud}", (unsigned)records[0].key_size);
  test_subset_of_dataset();
  test_fields_of_dataset();
  test_loader();
  test_without_a_view();
  test_wrong_views();
  CHECK(lmdbio_dataset_close(plain) == LMDBIO_OK);
  return c_check_failures == 0 ? 0 : 1;
}
