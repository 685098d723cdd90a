#include "examples/digits_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kMagic[8] = {'d', 'i', 'g', 'i', 't', 's', '0', '1'};
static const char kIsOtherThanFile[] = "is not a regular file: name a file, or a link to one";
static const char kIsForeignLink[] =
    "is a symbolic link in a folder that everybody may write to: name the file itself";
enum { kLinksMax = 40 }; /* as the kernel follows */

_Static_assert(sizeof(struct checkpoint) ==
                   8 + 3 * sizeof(uint64_t) + 2 * sizeof(struct network) + 1024 + sizeof(uint64_t),
               "a checkpoint must not have padding, whose bytes are undefined");

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
  (void)unlink(path); /* of a run that was killed */
  /* Another user may have made a link of this name. With O_EXCL it is an error. */
  const int number = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  FILE* file = number < 0 ? NULL : fdopen(number, "wb");
  if (file == NULL) return errno;
  const bool is_written = fwrite(checkpoint, sizeof *checkpoint, 1, file) == 1 &&
                          fflush(file) == 0 && fsync(fileno(file)) == 0;
  const int error = is_written ? 0 : errno;
  return fclose(file) != 0 && is_written ? errno : error;
}

/* A rename can replace only a regular file, and reading a FIFO would wait for a writer. */
static bool is_other_than_file(const char* path) {
  struct stat found;
  return stat(path, &found) == 0 && !S_ISREG(found.st_mode);
}

static bool is_in_folder_for_everybody(const char* path) {
  char folder[PATH_MAX];
  const char* slash = strrchr(path, '/');
  const size_t folder_bytes = slash == NULL ? 0 : (size_t)(slash - path) + 1;
  memcpy(folder, path, folder_bytes);
  memcpy(folder + folder_bytes, ".", 2);
  struct stat found;
  return stat(folder, &found) != 0 || (found.st_mode & S_IWOTH) != 0;
}

/* The path at the end of the chain of symbolic links that begins at `path`. Links stay, and the
 * file at their end is replaced. realpath does not serve, because that file need not exist.
 * Returns an error, or NULL. */
static const char* follow_links(const char* path, char target[PATH_MAX]) {
  const size_t path_bytes = strlen(path);
  if (path_bytes + 2 > PATH_MAX) return strerror(ENAMETOOLONG);
  memcpy(target, path, path_bytes + 1);
  for (int i = 0; i < kLinksMax; ++i) {
    char link[PATH_MAX];
    const ssize_t link_bytes = readlink(target, link, sizeof link);
    if (link_bytes < 0) return NULL; /* it is none */
    if (is_in_folder_for_everybody(target)) return kIsForeignLink;
    const char* slash = strrchr(target, '/');
    const bool is_absolute = link[0] == '/';
    const size_t kept_bytes = is_absolute || slash == NULL ? 0 : (size_t)(slash - target) + 1;
    if (kept_bytes + (size_t)link_bytes + 2 > PATH_MAX) return strerror(ENAMETOOLONG);
    memcpy(target + kept_bytes, link, (size_t)link_bytes);
    target[kept_bytes + (size_t)link_bytes] = '\0';
  }
  return strerror(ELOOP);
}

const char* checkpoint_write(const char* path, struct checkpoint* checkpoint) {
  if (is_other_than_file(path)) return kIsOtherThanFile;
  char target[PATH_MAX];
  char temporary[PATH_MAX + 4];
  const char* refusal = follow_links(path, target);
  if (refusal != NULL) return refusal;
  snprintf(temporary, sizeof temporary, "%s.tmp", target);
  memcpy(checkpoint->magic, kMagic, sizeof kMagic);
  checkpoint->checksum = checksum_of(checkpoint);
  int error = write_file(temporary, checkpoint);
  if (error == 0 && rename(temporary, target) != 0) error = errno;
  if (error == 0) return NULL;
  remove(temporary);
  return strerror(error);
}

const char* checkpoint_read(const char* path, struct checkpoint* out_checkpoint) {
  if (is_other_than_file(path)) return kIsOtherThanFile;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return errno == ENOENT ? NULL : strerror(errno);
  struct checkpoint found;
  errno = 0;
  const bool is_whole = fread(&found, sizeof found, 1, file) == 1 && fgetc(file) == EOF;
  const int error = ferror(file) ? errno : 0;
  fclose(file);
  if (error != 0) return strerror(error);
  if (!is_whole) return "is not a checkpoint, or is truncated";
  if (memcmp(found.magic, kMagic, sizeof kMagic) != 0) return "is not a checkpoint";
  if (found.checksum != checksum_of(&found)) return "is damaged: its checksum does not match";
  found.state[sizeof found.state - 1] = '\0';
  *out_checkpoint = found;
  return NULL;
}
