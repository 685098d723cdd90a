/* lmdbio_feed.h - batches of a loader in the memory of a GPU, in C11.
 *
 *   lmdbio_feed_options options = LMDBIO_FEED_OPTIONS_INIT;
 *   lmdbio_feed *feed;
 *   int rc = lmdbio_feed_open(loader, &options, &feed);
 *   const lmdbio_device_batch *batch;
 *   while (rc == LMDBIO_OK && (rc = lmdbio_feed_next(feed, stream, &batch)) == LMDBIO_OK) {
 *     train_on(stream, batch->fields[0].rows, batch->fields[0].row_bytes, batch->record_count);
 *   }
 *   if (rc != LMDBIO_END) fprintf(stderr, "%s\n", lmdbio_feed_message(feed));
 *   lmdbio_feed_close(feed);
 *
 * The rules of lmdbio.h hold. It has been tried without a GPU only: docs/device_feed.md.
 *
 * A loader has one feed at a time. While it has one, the feed takes the batches: lmdbio_next,
 * lmdbio_next_within and lmdbio_fetch return LMDBIO_INVALID_ARGUMENT. lmdbio_save, lmdbio_restore
 * and lmdbio_set_epoch are about the batches that the program has got from the feed; after fork()
 * lmdbio_save returns LMDBIO_FORKED. If the loader is closed first, it is released with its feed.
 */
#ifndef LMDBIO_API_C_LMDBIO_FEED_H_
#define LMDBIO_API_C_LMDBIO_FEED_H_

#include <stddef.h>
#include <stdint.h>

#include <lmdbio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the values of a field lie on the GPU: one to a row, which ends in zeros; or packed, one
 * behind the other. */
enum lmdbio_feed_shape { LMDBIO_FEED_SHAPE_ROWS = 0, LMDBIO_FEED_SHAPE_PACKED = 1 };

typedef struct lmdbio_feed_options {
  size_t struct_size;     /* sizeof(lmdbio_feed_options): LMDBIO_FEED_OPTIONS_INIT sets it */
  int device;             /* the number of the GPU, from 0, among those that the process sees */
  int shape;              /* enum lmdbio_feed_shape */
  uint64_t row_bytes_min; /* the least size of a row; 0: that of the largest value of a batch */
  uint32_t depth;         /* batches under way ahead of the program, at most 64; 0: 2 */
} lmdbio_feed_options;

#define LMDBIO_FEED_OPTIONS_INIT \
  { sizeof(lmdbio_feed_options), 0, 0, 0, 0 }

/* The values of one field. All addresses are of the GPU: the host must not follow them. */
typedef struct lmdbio_device_rows {
  void* rows;          /* [sample count * row_bytes], or [size_bytes] packed */
  uint64_t size_bytes; /* of all rows or values */
  uint64_t row_bytes;  /* 0 of packed values */
  void* offsets;       /* [sample count + 1] uint64_t of packed values: value i is the bytes from
                          offsets[i] on, up to offsets[i + 1]; else NULL */
} lmdbio_device_rows;

/* A batch of this rank: its values on the GPU, all else on the host. The fields from number on are
 * those of lmdbio_batch. */
typedef struct lmdbio_device_batch {
  const lmdbio_device_rows* fields; /* [field_count] */
  const lmdbio_record* records;     /* [record_count] `value` is NULL; value_size is its size */
  size_t record_count;
  size_t skipped_count;
  uint64_t number;
  uint64_t epoch;
  uint64_t first_position;
  uint64_t global_record_count;
  int ends_epoch;
  size_t field_count;
} lmdbio_device_batch;

/* Of a feed, since it was opened. */
typedef struct lmdbio_feed_counters {
  uint64_t batch_count;    /* that the program has got */
  uint64_t gathered_count; /* copied out of the loader's memory by the GPU */
  uint64_t staged_count;   /* copied by the host first */
  uint64_t device_bytes;   /* of values and offsets, of both */
  uint64_t grown_count;    /* times at which memory of the GPU was allocated for a batch */
  double wait_s;           /* until the copy of a batch was enqueued */
  double buffer_wait_s;    /* of this: until the GPU was done with memory or a copy */
} lmdbio_feed_counters;

typedef struct lmdbio_feed lmdbio_feed;

/* Opens a feed of the next batches of a loader. Not collective. The driver of the GPU is opened,
 * and the loader's memory is pinned; if that is refused, notes of the loader say so.
 * options   NULL: all default
 * out_feed  as out_loader of lmdbio_open
 * Errors    LMDBIO_BAD_HANDLE          no such loader; then there is no feed
 *           LMDBIO_INVALID_ARGUMENT    an option is out of range; the loader has a feed
 *           LMDBIO_NOT_FOUND           no driver, or no such GPU
 *           LMDBIO_UNSUPPORTED         the driver or the GPU is too old
 *           LMDBIO_RESOURCE_EXHAUSTED  the GPU or the host is out of memory
 *           LMDBIO_INTERNAL            the driver fails; the message has its reason */
LMDBIO_API int lmdbio_feed_open(lmdbio_loader* loader, const lmdbio_feed_options* options,
                                lmdbio_feed** out_feed);

/* Moves this thread to the next batch of this rank. Work that follows on `stream` sees the rows.
 * The batch before is returned: its memory serves again when the work is done that is on its
 * stream now. Threads that share a feed take batches in turn.
 * stream     a CUstream or cudaStream_t of this GPU; NULL: the default stream
 * out_batch  valid, with all it points to, until the next lmdbio_feed_next of this thread
 * Returns    LMDBIO_OK; LMDBIO_END after the last batch
 * Errors     LMDBIO_INVALID_ARGUMENT    the stream is being captured, or is not one of this GPU;
 *                                       no batch is lost
 *            LMDBIO_RESOURCE_EXHAUSTED  no memory of the GPU or the host; a later call tries again
 *            LMDBIO_INTERNAL            the driver fails; every later call returns the same
 *            as lmdbio_next, after the batches that are under way */
LMDBIO_API int lmdbio_feed_next(lmdbio_feed* feed, void* stream,
                                const lmdbio_device_batch** out_batch);

/* Takes the next batch, but it belongs to a result, as with lmdbio_fetch. The program closes the
 * result when all work that uses the rows is enqueued; it need not be done.
 * limit_ms    milliseconds; 0: does not sleep; UINT32_MAX: as long as it takes
 * out_result  to be closed by the caller, in any thread, also after the feed and the loader. It has
 *             no values on the host: lmdbio_result_copy_values refuses it
 * out_batch   valid until the result is closed
 * Returns     as lmdbio_feed_next; LMDBIO_TIMEOUT
 * Errors      as lmdbio_feed_next */
LMDBIO_API int lmdbio_feed_fetch(lmdbio_feed* feed, uint32_t limit_ms, void* stream,
                                 lmdbio_result** out_result, const lmdbio_device_batch** out_batch);

/* Lets work that follows on another stream use the rows of a result of lmdbio_feed_fetch.
 * Errors  LMDBIO_INVALID_ARGUMENT  not such a result; the stream is not one of this GPU */
LMDBIO_API int lmdbio_result_use_on(lmdbio_result* result, void* stream);

/* Returns the counters of the feed.
 * out_counters  valid until the next call of this thread on this handle */
LMDBIO_API int lmdbio_feed_get_counters(lmdbio_feed* feed,
                                        const lmdbio_feed_counters** out_counters);

/* Describes the GPU and the way of the values.
 * out_text  valid until the next call of this thread on this handle */
LMDBIO_API int lmdbio_feed_describe(lmdbio_feed* feed, const char** out_text);

/* Returns the message of the last call of this thread on a feed that failed, as lmdbio_message. */
LMDBIO_API const char* lmdbio_feed_message(lmdbio_feed* feed);
/* Returns the errno of that call, as lmdbio_errno. */
LMDBIO_API int lmdbio_feed_errno(lmdbio_feed* feed);

/* Closes a feed, and returns the batches of all threads. NULL is allowed and does nothing. Batches
 * that were under way are lost: the loader goes on behind them. */
LMDBIO_API int lmdbio_feed_close(lmdbio_feed* feed);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_API_C_LMDBIO_FEED_H_ */
