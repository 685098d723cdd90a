/* digits_checkpoint.h - the state from which a training job continues exactly. */
#ifndef LMDBIO_EXAMPLES_DIGITS_CHECKPOINT_H_
#define LMDBIO_EXAMPLES_DIGITS_CHECKPOINT_H_

#include <stdint.h>

#include "examples/digits_network.h"

/* The file consists of this struct, in the byte order of this machine. */
struct checkpoint {
  char magic[8];
  uint64_t epoch_count; /* trained */
  uint64_t seed;
  uint64_t batch_size;
  struct network weights;
  struct network velocity;
  char state[1024];  /* of the stream of records, from lmdbio_save */
  uint64_t checksum; /* of all before it */
};

/* Both functions return NULL, or a text with the reason of the failure. */

/* Writes a new file, syncs it to the disk and renames it to `path`. So `path` is always the last
 * complete checkpoint. A symbolic link stays, and the file at its end is replaced. Sets magic and
 * checksum. */
const char* checkpoint_write(const char* path, struct checkpoint* checkpoint);

/* If the file does not exist, *out_checkpoint does not change. */
const char* checkpoint_read(const char* path, struct checkpoint* out_checkpoint);

#endif /* LMDBIO_EXAMPLES_DIGITS_CHECKPOINT_H_ */
