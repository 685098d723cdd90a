/* Opens a database in each way that needs liblmdb or hwloc, and prints each result in one line. */
#include <stdio.h>

#include <lmdbio.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  lmdbio_options baseline = LMDBIO_OPTIONS_INIT;
  baseline.strategy = "lmdb";
  lmdbio_loader* loader = NULL;
  int status = lmdbio_open(argv[1], &baseline, &loader);
  printf("%d: %s\n", status, lmdbio_message(loader));
  lmdbio_close(loader);

  lmdbio_options pinned = LMDBIO_OPTIONS_INIT;
  pinned.snapshot = LMDBIO_SNAPSHOT_PINNED;
  status = lmdbio_open(argv[1], &pinned, &loader);
  printf("%d: %s\n", status, lmdbio_message(loader));
  lmdbio_close(loader);

  lmdbio_dataset* dataset = NULL;
  status = lmdbio_dataset_open(argv[1], &pinned, &dataset);
  printf("%d: %s\n", status, lmdbio_dataset_message(dataset));
  lmdbio_dataset_close(dataset);

  lmdbio_options placed = LMDBIO_OPTIONS_INIT;
  placed.placement = "input=core:0";
  status = lmdbio_open(argv[1], &placed, &loader);
  printf("%d: %s\n", status, lmdbio_message(loader));
  lmdbio_close(loader);
  return 0;
}
