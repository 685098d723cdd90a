/* Prints the number of records of an epoch and of bytes in their values. */
#include <inttypes.h>
#include <stdio.h>

#include <lmdbio.h>

int main(int argc, char** argv) {
  lmdbio_options options = LMDBIO_OPTIONS_INIT;
  options.tail = LMDBIO_TAIL_SHORT;
  lmdbio_loader* loader = NULL;
  int status = argc == 2 ? lmdbio_open(argv[1], &options, &loader) : LMDBIO_INVALID_ARGUMENT;
  uint64_t records = 0, bytes = 0;
  const lmdbio_batch* batch = NULL;
  while (status == LMDBIO_OK && (batch == NULL || !batch->ends_epoch)) {
    status = lmdbio_next(loader, &batch);
    for (size_t i = 0; status == LMDBIO_OK && i < batch->record_count; ++i) {
      ++records;
      bytes += batch->records[i].value_size;
    }
  }
  if (status != LMDBIO_OK) fprintf(stderr, "%s\n", lmdbio_message(loader));
  lmdbio_close(loader);
  printf("%" PRIu64 " records, %" PRIu64 " bytes\n", records, bytes);
  return status;
}
