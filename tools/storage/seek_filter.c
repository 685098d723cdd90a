// tools/storage/seek_filter.c - a filter of nbdkit: each read waits for the disks of
// striped_disks.h. scripts/remote-storage compiles and loads it; lmdbio/docs/cluster.md describes
// the model.
//
// A filter decides at the arrival of a read, in front of the filters that delay it. A plugin would
// see the reads in the order in which their delays end. The filter leaves the data alone.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <nbdkit-filter.h>

#include "tools/storage/striped_disks.h"

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

// Settings; constant as soon as connections arrive.
static DiskModel model = {1, 1 << 20, 0, 0};
static const char* counts_file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of `disks`
static Disk* disks;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int parse_bytes(const char* value, uint64_t* bytes) {
  const int64_t parsed = nbdkit_parse_size(value);  // reports errors
  if (parsed < 0) return -1;
  *bytes = (uint64_t)parsed;
  return 0;
}

static int seek_config(nbdkit_next_config* next, nbdkit_backend* backend, const char* key,
                       const char* value) {
  if (strcmp(key, "seek-ms") == 0) {
    uint32_t ms = 0;
    const int result = nbdkit_parse_uint32_t(key, value, &ms);
    model.seek_ns = ms * NS_PER_MS;
    return result;
  }
  if (strcmp(key, "seek-stripes") == 0) return nbdkit_parse_uint32_t(key, value, &model.count);
  if (strcmp(key, "seek-stripe-bytes") == 0) return parse_bytes(value, &model.stripe_bytes);
  if (strcmp(key, "seek-free-bytes") == 0) return parse_bytes(value, &model.free_bytes);
  if (strcmp(key, "seek-counts") == 0) {
    counts_file = value;
    return 0;
  }
  return next(backend, key, value);
}

static int seek_config_complete(nbdkit_next_config_complete* next, nbdkit_backend* backend) {
  const char* error = disk_model_error(&model);
  if (error != NULL) {
    nbdkit_error("%s", error);
    return -1;
  }
  if (counts_file == NULL) {
    nbdkit_error("seek-counts=FILE is missing");
    return -1;
  }
  return next(backend);
}

// Makes the disks in the file of the counts, so that other processes can read them at any time.
static int seek_get_ready(int thread_model) {
  const size_t bytes = model.count * sizeof(Disk);
  const int file = open(counts_file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  (void)thread_model;
  if (file != -1 && ftruncate(file, (off_t)bytes) == 0) {
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (memory == MAP_FAILED) {
    nbdkit_error("cannot write %s: %m", counts_file);
    return -1;
  }
  close(file);
  disks = memory;
  return 0;
}

static int wait_until(int64_t time_ns) {
  const int64_t left = time_ns - now_ns();
  if (left <= 0) return 0;
  return nbdkit_nanosleep((unsigned)(left / NS_PER_S), (unsigned)(left % NS_PER_S));
}

// Waits for the disks, and then passes the read on. The end of the server ends the wait.
static int seek_pread(nbdkit_next* next, void* handle, void* buffer, uint32_t count,
                      uint64_t offset, uint32_t flags, int* error) {
  (void)handle;
  pthread_mutex_lock(&lock);
  const int64_t served_ns = disks_serve(&model, disks, offset, count, now_ns());
  pthread_mutex_unlock(&lock);
  if (wait_until(served_ns) == -1) {
    *error = errno;
    return -1;
  }
  return next->pread(next, buffer, count, offset, flags, error);
}

static struct nbdkit_filter filter = {
    .name = "seek",
    .longname = "reads that wait for the seeks of emulated disks",
    .config = seek_config,
    .config_complete = seek_config_complete,
    .config_help =
        "seek-ms=N seek-stripes=K seek-stripe-bytes=B seek-free-bytes=F "
        "seek-counts=FILE",
    .get_ready = seek_get_ready,
    .pread = seek_pread,
};

NBDKIT_REGISTER_FILTER(filter)
