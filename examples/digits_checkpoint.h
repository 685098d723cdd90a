/* digits_checkpoint.h - all that a training job needs to go on as if it had never stopped. */
#ifndef EXAMPLES_DIGITS_CHECKPOINT_H_
#define EXAMPLES_DIGITS_CHECKPOINT_H_

#include <stdint.h>

#include "examples/digits_network.h"

/* The file is this struct, in this machine's order of bytes. */
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

/* Both return NULL, or what is wrong. */

/* Writes a file beside `path`, brings it to the disk and gives it its name: whenever the job is
 * stopped, `path` is the last whole checkpoint. A symbolic link stays, and the file that it leads
 * to is replaced. Sets magic and checksum. */
const char* checkpoint_write(const char* path, struct checkpoint* checkpoint);

/* Without a file, *out_checkpoint stays as it is. */
const char* checkpoint_read(const char* path, struct checkpoint* out_checkpoint);

#endif /* EXAMPLES_DIGITS_CHECKPOINT_H_ */
