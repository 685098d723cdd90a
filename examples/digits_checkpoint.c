#include "examples/digits_checkpoint.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char kMagic[8] = {'d', 'i', 'g', 'i', 't', 's', '0', '1'};

_Static_assert(sizeof(struct checkpoint) ==
                   8 + 3 * sizeof(uint64_t) + 2 * sizeof(struct network) + 1024 + sizeof(uint64_t),
               "a checkpoint has no padding, which would hold anything");

/* FNV-1a. */
static uint64_t checksum_of(const struct checkpoint* checkpoint) {
  const unsigned char* bytes = (const unsigned char*)checkpoint;
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  for (size_t i = 0; i < offsetof(struct checkpoint, checksum); ++i) {
    hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
  }
  return hash;
}

static int write_file(const char* path, const struct checkpoint* checkpoint) {
  FILE* file = fopen(path, "wb");
  if (file == NULL) return errno;
  const bool is_written = fwrite(checkpoint, sizeof *checkpoint, 1, file) == 1 &&
                          fflush(file) == 0 && fsync(fileno(file)) == 0;
  const int error = is_written ? 0 : errno;
  return fclose(file) != 0 && is_written ? errno : error;
}

const char* checkpoint_write(const char* path, struct checkpoint* checkpoint) {
  char temporary[4096];
  const int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
  if (length < 0 || (size_t)length >= sizeof temporary) return strerror(ENAMETOOLONG);
  memcpy(checkpoint->magic, kMagic, sizeof kMagic);
  checkpoint->checksum = checksum_of(checkpoint);
  int error = write_file(temporary, checkpoint);
  if (error == 0 && rename(temporary, path) != 0) error = errno;
  if (error == 0) return NULL;
  remove(temporary);
  return strerror(error);
}

const char* checkpoint_read(const char* path, struct checkpoint* out_checkpoint) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return errno == ENOENT ? NULL : strerror(errno);
  struct checkpoint found;
  errno = 0;
  const bool is_whole = fread(&found, sizeof found, 1, file) == 1 && fgetc(file) == EOF;
  const int error = ferror(file) ? errno : 0;
  fclose(file);
  if (error != 0) return strerror(error);
  if (!is_whole) return "is no checkpoint, or one that was cut short";
  if (memcmp(found.magic, kMagic, sizeof kMagic) != 0) return "is no checkpoint";
  if (found.checksum != checksum_of(&found)) return "is damaged: its checksum does not fit";
  found.state[sizeof found.state - 1] = '\0';
  *out_checkpoint = found;
  return NULL;
}
