// tools/storage/striped_disks.h - a model of the disks under a striped file.
//
// It gives the places of a request, and the time at which the disks have served it. It reads no
// clock and does not wait, so that tests can use any time. It is C and C++.
//
// The file is cut into stripes of equal size. Stripe n lies on disk n mod K, right behind stripe
// n - K. A request that spans stripes has a piece in each of them. A disk has one head and serves
// one piece at a time, in the order of arrival. A piece that begins near the end of the last one is
// in order and takes no time. Any other piece takes one seek. Disks work in parallel.
#ifndef LMDBIO_TOOLS_STORAGE_STRIPED_DISKS_H_
#define LMDBIO_TOOLS_STORAGE_STRIPED_DISKS_H_

#include <stddef.h>
#include <stdint.h>

#define DISK_COUNT_MAX 256
#define DISK_STRIPE_UNIT 4096
#define DISK_STRIPE_MAX (UINT64_C(1) << 40)
#define DISK_SEEK_NS_MAX (INT64_C(1000000) * 1000000)  // 1,000 s

typedef struct {
  uint32_t count;         // K, 1 to DISK_COUNT_MAX
  uint64_t stripe_bytes;  // a multiple of DISK_STRIPE_UNIT, at most DISK_STRIPE_MAX
  uint64_t free_bytes;    // a piece is near if the end of the last one is at most this far away
  int64_t seek_ns;        // 0 to DISK_SEEK_NS_MAX; with 0, seeks are only counted
} DiskModel;

// With all bytes 0 it has served nothing, and its first piece takes a seek.
typedef struct {
  uint64_t in_order;  // pieces without a seek
  uint64_t seeks;     // pieces with a seek
  uint64_t position;  // end of the last piece, in the disk's own bytes
  int64_t free_ns;    // time at which all its pieces are served
} Disk;

// The part of a request that lies in one stripe.
typedef struct {
  uint32_t disk;
  uint64_t position;  // its begin, in the disk's own bytes
  uint64_t bytes;
} DiskPiece;

// The limit that a model exceeds, for an error message; a null pointer if the model is valid.
static inline const char* disk_model_error(const DiskModel* model) {
  if (model->count < 1 || model->count > DISK_COUNT_MAX) {
    return "the number of stripes is 1 to 256";
  }
  if (model->stripe_bytes == 0 || model->stripe_bytes > DISK_STRIPE_MAX ||
      model->stripe_bytes % DISK_STRIPE_UNIT != 0) {
    return "the bytes of a stripe are a multiple of 4096, at most 1T";
  }
  if (model->seek_ns < 0 || model->seek_ns > DISK_SEEK_NS_MAX) {
    return "the time of a seek is 0 to 1000000 ms";
  }
  return NULL;
}

// The first piece of a request for `bytes` bytes (at least 1) at `offset` of the file.
static inline DiskPiece disk_first_piece(const DiskModel* model, uint64_t offset, uint64_t bytes) {
  const uint64_t stripe = offset / model->stripe_bytes;
  const uint64_t within = offset % model->stripe_bytes;
  const uint64_t left_in_stripe = model->stripe_bytes - within;
  DiskPiece piece;
  piece.disk = (uint32_t)(stripe % model->count);
  piece.position = stripe / model->count * model->stripe_bytes + within;
  piece.bytes = bytes < left_in_stripe ? bytes : left_in_stripe;
  return piece;
}

// Whether a piece needs no seek after those that the disk has served.
static inline int disk_is_in_order(const DiskModel* model, const Disk* disk,
                                   const DiskPiece* piece) {
  const int has_served = disk->in_order + disk->seeks > 0;
  const uint64_t distance = piece->position < disk->position ? disk->position - piece->position
                                                             : piece->position - disk->position;
  return has_served && distance <= model->free_bytes;
}

// Queues the request that arrives at time `now_ns`, and counts its pieces. Returns the time at
// which the last piece is served; a request without bytes is served at once. All times are of one
// clock. `disks` has model->count entries.
//
// Threads: one call at a time.
static inline int64_t disks_serve(const DiskModel* model, Disk* disks, uint64_t offset,
                                  uint64_t bytes, int64_t now_ns) {
  int64_t served_ns = now_ns;
  while (bytes > 0) {
    const DiskPiece piece = disk_first_piece(model, offset, bytes);
    Disk* disk = &disks[piece.disk];
    if (disk->free_ns < now_ns) disk->free_ns = now_ns;
    if (disk_is_in_order(model, disk, &piece)) {
      ++disk->in_order;
    } else {
      ++disk->seeks;
      disk->free_ns += model->seek_ns;
    }
    disk->position = piece.position + piece.bytes;
    if (served_ns < disk->free_ns) served_ns = disk->free_ns;
    offset += piece.bytes;
    bytes -= piece.bytes;
  }
  return served_ns;
}

#endif  // LMDBIO_TOOLS_STORAGE_STRIPED_DISKS_H_
