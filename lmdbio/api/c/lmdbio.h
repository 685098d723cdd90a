/* lmdbio.h - batches of an LMDB database, and records by number, in C11.
 *
 *   lmdbio_options options = LMDBIO_OPTIONS_INIT;
 *   options.batch_size = 256;
 *   options.order = LMDBIO_ORDER_SHUFFLE;
 *   lmdbio_loader *loader;
 *   int rc = lmdbio_open("train.lmdb", &options, &loader);
 *   const lmdbio_batch *batch;
 *   while (rc == LMDBIO_OK && (rc = lmdbio_next(loader, &batch)) == LMDBIO_OK) {
 *     for (size_t i = 0; i < batch->record_count; ++i) {
 *       train(batch->records[i].value, batch->records[i].value_size);
 *     }
 *   }
 *   if (rc != LMDBIO_END) fprintf(stderr, "%s\n", lmdbio_message(loader));
 *   lmdbio_close(loader);
 *
 * Rules for every call, unless its comment says otherwise:
 *  1. It returns a status: LMDBIO_OK (0) or another LMDBIO_ code, all positive. Results go to the
 *     trailing out_ arguments, which must not be NULL and are written on success only.
 *  2. Handles are opaque and no addresses: never dereference one. NULL, a handle that was closed
 *     and a number that never was one give LMDBIO_BAD_HANDLE.
 *  3. Handles are independent of each other. Calls of several threads on one handle wait for each
 *     other, and none fails for that. But each call ends the life of what an earlier one handed out
 *     (rule 5), also in another thread: threads that share a handle hold a lock of their own from a
 *     call until they have used its results. What is closed beside a call of another thread is let
 *     go of when that call ends.
 *  4. lmdbio_message() says in one line what the last call on a handle that failed had to say, and
 *     lmdbio_errno() has the errno behind it. Nothing is printed; errno itself is not touched on
 *     purpose.
 *  5. What a call hands out belongs to the library and is valid until the next call on the same
 *     handle that names it as its end, at the latest until the handle is closed.
 *  6. "Collective" means, for a loader opened by lmdbio_open_mpi: every rank makes the call, and
 *     all get a failure if one does. For other loaders it means nothing.
 *  7. Structs that are passed in begin with struct_size; zero in a field is its default, and fields
 *     are only ever appended. Structs that are handed out only ever grow at their end.
 *  8. After fork() the child may call lmdbio_save and lmdbio_close on a handle of its parent's,
 *     which do not disturb the parent; everything else gives LMDBIO_FORKED. The child opens its
 *     own.
 */
#ifndef LMDBIO_CAPI_LMDBIO_H_
#define LMDBIO_CAPI_LMDBIO_H_

#include <stddef.h>
#include <stdint.h>

#define LMDBIO_VERSION_MAJOR 0
#define LMDBIO_VERSION_MINOR 1
#define LMDBIO_VERSION_PATCH 0

#if defined(LMDBIO_BUILDING) && (defined(__GNUC__) || defined(__clang__))
#define LMDBIO_API __attribute__((visibility("default")))
#else
#define LMDBIO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- Statuses ------------------------------------------------------------------------------- */

/* The numbers never change. */
enum {
  LMDBIO_OK = 0,
  LMDBIO_INVALID_ARGUMENT = 1,   /* the call was wrong: mend the arguments */
  LMDBIO_NOT_FOUND = 2,          /* the file, database or record is not there */
  LMDBIO_PERMISSION = 3,         /* there, but this process may not read it */
  LMDBIO_IO = 4,                 /* the storage failed: see lmdbio_errno */
  LMDBIO_CORRUPTION = 5,         /* the bytes break a rule of the format; restore the file */
  LMDBIO_UNSUPPORTED = 6,        /* well-formed, but of a kind this library refuses by name */
  LMDBIO_STALE = 7,              /* the file is not, or no longer, the one that was meant */
  LMDBIO_RESOURCE_EXHAUSTED = 8, /* memory, disk or a configured limit ran out */
  LMDBIO_INTERNAL = 9,           /* a dependency broke its contract */
  LMDBIO_PEER_FAILED = 10,       /* another rank failed; the message names it and says why */
  LMDBIO_BAD_HANDLE = 11,        /* NULL, closed, of another kind, or never handed out */
  LMDBIO_FORKED = 12,            /* the handle was opened before fork(), in the parent */
  /* No failures; they leave the message of a handle alone. */
  LMDBIO_END = 100,    /* the stream is over (lmdbio_options.batch_count_max) */
  LMDBIO_TIMEOUT = 101 /* nothing happened in the time given */
};

/* A status in words, as "corruption"; "unknown status" for other numbers. Never NULL.
 * Threads: any. */
LMDBIO_API const char* lmdbio_strerror(int status);

/* The version of the library that runs, as "0.1.0", and as a number: major * 1000000 + minor * 1000
 * + patch. out_number may be NULL.
 * Threads: any. */
LMDBIO_API const char* lmdbio_version(int* out_number);

/* --- Options -------------------------------------------------------------------------------- */

enum lmdbio_order {
  LMDBIO_ORDER_SEQUENTIAL = 0,    /* the database's own order */
  LMDBIO_ORDER_SHUFFLE = 1,       /* any record may come anywhere; each once an epoch */
  LMDBIO_ORDER_SHUFFLE_BLOCK = 2, /* blocks of neighbours, mixed: large reads, less random */
  LMDBIO_ORDER_CHUNKED = 3        /* batches in a row take turns with neighbouring records */
};

enum lmdbio_tail {
  LMDBIO_TAIL_WRAP = 0,  /* the last batch goes on with the first records of the next epoch */
  LMDBIO_TAIL_SHORT = 1, /* the last batch of an epoch is smaller */
  LMDBIO_TAIL_DROP = 2   /* the last records of an epoch are left out */
};

enum lmdbio_share {
  LMDBIO_SHARE_BLOCK = 0,       /* rank r gets the r-th contiguous part of each batch */
  LMDBIO_SHARE_ROUND_ROBIN = 1, /* rank r of P gets the positions that are r modulo P */
  LMDBIO_SHARE_FILL = 2 /* as BLOCK; of a batch that is cut short the first get whole parts */
};

enum lmdbio_on_error {
  LMDBIO_ON_ERROR_RAISE = 0, /* a record that cannot be read is an error */
  LMDBIO_ON_ERROR_SKIP = 1   /* it is left out of its batch, and counted */
};

enum lmdbio_snapshot {
  LMDBIO_SNAPSHOT_IMMUTABLE = 0,  /* nobody writes; a change is noticed at an epoch's end */
  LMDBIO_SNAPSHOT_OPTIMISTIC = 1, /* every piece is checked after it was read */
  LMDBIO_SNAPSHOT_PINNED = 2      /* a read transaction keeps the pages; needs the lock file */
};

/* What the library has to say beside failures: one line for each compromise it made, as that a
 * provenance file is stale. Called from within a call on the handle, in its thread.
 * message  without a newline; valid during the call */
typedef void (*lmdbio_log)(void* context, const char* message);

typedef struct lmdbio_options {
  size_t struct_size;        /* sizeof(lmdbio_options): LMDBIO_OPTIONS_INIT sets it */
  const char* database_name; /* NULL: the main database */
  uint64_t batch_size;       /* records of the global batch, of all ranks; 0: 64 */
  uint64_t batch_count_max;  /* the stream ends after so many batches; 0: never */
  int order;                 /* enum lmdbio_order */
  int tail;                  /* enum lmdbio_tail */
  int share;                 /* enum lmdbio_share */
  int on_error;              /* enum lmdbio_on_error */
  int snapshot;              /* enum lmdbio_snapshot */
  uint64_t seed;             /* of shuffling */
  uint64_t block_records;    /* with SHUFFLE_BLOCK, of a block; 0: as many as fill 1 MiB */
  uint64_t group_batches;    /* with CHUNKED and SHUFFLE_BLOCK; 0: as many as hold 32 MiB */
  uint64_t reuse;            /* how often a record is handed out while in memory; 0: once */
  uint64_t epoch;            /* where the stream begins */
  const char* state;         /* or: where another has stood (lmdbio_save); NULL: at epoch */

  /* Several processes, each with a loader of its own, share batches as if they were ranks of one
   * job: no word passes between them. 0 shards are one. */
  int num_shards;
  int shard_id; /* below num_shards */

  uint64_t memory_budget_bytes; /* of a host, for what is read ahead; 0: 256 MiB */
  int64_t keep_bytes_max;    /* memory to keep the file in, as far as it was read, so that nothing
                                   is read twice: 0: a file that is read in scattered order and
                                   fits into an eighth of the free memory; -1: never; else bytes */
  uint64_t prefetch_batches; /* batches of all ranks read ahead; 0: as the budget allows */
  int no_map;                /* 1: never look at a cached file in a map of it, which the kernel
                                   ends with SIGBUS should the file be cut short meanwhile */
  uint32_t readers_per_host; /* ranks that read; 0: one */
  uint32_t queue_depth;      /* reads under way, of each reader; 0: 32 */
  uint64_t block_bytes;      /* the largest read, a multiple of 4096; 0: 1 MiB */
  const char* strategy;      /* "auto", "scan", "lmm-dio-prov-coal", ...; NULL: "auto" */
  const char* engine;        /* "uring", "pread", "mmap"; NULL: as the strategy likes */

  lmdbio_log log; /* NULL: unheard */
  void* log_context;

  /* Which cores read, and which are left to computing: "scp" (of this rank's cores one reads and
   * one synchronises gradients, if it has three), "compute=0-5,input=6,sync=7", or groups like this
   * for the ranks of a host in their order, separated by semicolons; NULL: any. See
   * lmdbio_pin_compute. Where one rank of a job has a placement all have. */
  const char* placement;
} lmdbio_options;

#ifdef __cplusplus
static inline lmdbio_options lmdbio_options_init() {
  lmdbio_options options = lmdbio_options();
  options.struct_size = sizeof(lmdbio_options);
  return options;
}
#define LMDBIO_OPTIONS_INIT lmdbio_options_init()
#else
#define LMDBIO_OPTIONS_INIT \
  { .struct_size = sizeof(lmdbio_options) }
#endif

/* --- Loaders: batches, in order ------------------------------------------------------------- */

typedef struct lmdbio_loader lmdbio_loader;

typedef struct lmdbio_record {
  const void* key;
  const void* value;   /* of any alignment */
  uint64_t position;   /* in the global sequence; of a dataset: the record's number */
  uint32_t value_size; /* bytes */
  uint32_t key_size;   /* bytes */
} lmdbio_record;

typedef struct lmdbio_batch {
  const lmdbio_record* records; /* [record_count] of this rank */
  size_t record_count;          /* may be 0 where a batch has fewer records than ranks */
  size_t skipped_count;         /* of this rank's share that could not be read (ON_ERROR_SKIP) */
  uint64_t number;              /* of the stream's batches, from 0 */
  uint64_t epoch;               /* of its first record */
  uint64_t first_position;      /* of the batch of all ranks, in the global sequence */
  uint64_t global_record_count; /* of all ranks */
  int ends_epoch;               /* 1: an epoch ends with, or within, this batch */
} lmdbio_batch;

/* Seconds, bytes, and numbers of things, since the loader was opened. */
typedef struct lmdbio_counters {
  uint64_t batch_count, record_count, skipped_count, payload_bytes; /* of this rank's batches */
  uint64_t epoch_count;                                             /* ended */
  uint64_t dropped_count, wrapped_count; /* records of all ranks: see lmdbio_tail */
  double wait_s;                         /* asleep until a batch was there */
  double next_cpu_s;                     /* processor time of lmdbio_next */
  double locate_s, read_s, finish_s;     /* of this rank's reader: finding, reading, checking */
  double space_wait_s;                   /* until batches were consumed: the reader is ahead */
  uint64_t read_requests, bytes_read, bytes_direct, bytes_useful, retry_count;
} lmdbio_counters;

/* Opens a database and begins to read.
 * path        a directory with data.mdb, or a data file
 * options     NULL: defaults
 * out_loader  set on failure too, if that left anything to say: to a handle that is good for
 *             lmdbio_message and lmdbio_close only; NULL if there is no memory even for that
 * Errors      LMDBIO_INVALID_ARGUMENT  an option that makes no sense, an empty database
 *             LMDBIO_UNSUPPORTED       options of a newer version that ask for what this one lacks;
 *                                      strategy "lmdb" or a pinned snapshot, and the library was
 *                                      built without liblmdb
 *             LMDBIO_STALE             options.state is of another dataset
 *             and those of the file */
LMDBIO_API int lmdbio_open(const char* path, const lmdbio_options* options,
                           lmdbio_loader** out_loader);

/* Moves to the next batch of this rank, and sleeps until it is there. Not collective.
 * out_batch  with all it points to: until the next lmdbio_next, lmdbio_restore or lmdbio_set_epoch
 * Returns    LMDBIO_OK; LMDBIO_END after the last batch
 * Errors     LMDBIO_IO, LMDBIO_CORRUPTION, LMDBIO_STALE, LMDBIO_RESOURCE_EXHAUSTED (a batch larger
 *            than the memory budget), LMDBIO_PEER_FAILED; every further call then gives the same */
LMDBIO_API int lmdbio_next(lmdbio_loader* loader, const lmdbio_batch** out_batch);

/* The same for a time at most, for those who have to look up now and then. After LMDBIO_TIMEOUT
 * there is no batch at hand; what comes next comes with the next call.
 * limit_ms  milliseconds; 0: does not sleep
 * Returns   as lmdbio_next; LMDBIO_TIMEOUT */
LMDBIO_API int lmdbio_next_within(lmdbio_loader* loader, uint32_t limit_ms,
                                  const lmdbio_batch** out_batch);

/* Copies the values of the batch at hand, one to a row, and fills the rows up with zeros.
 * rows       [row_count * row_bytes] of the caller
 * row_bytes  at least the size of the largest value of the batch
 * row_count  at least the number of its records
 * Errors     LMDBIO_INVALID_ARGUMENT  no batch at hand, or one that does not fit; rows stay as
 *            they are */
LMDBIO_API int lmdbio_copy_values(lmdbio_loader* loader, void* rows, size_t row_bytes,
                                  size_t row_count);

/* Where the stream stands, before the next batch: JSON, less than 1 kB, good at any number of
 * ranks. Ranks that have had as many batches get the same. Not collective; allowed after fork.
 * out_state  until the next call on this handle */
LMDBIO_API int lmdbio_save(lmdbio_loader* loader, const char** out_state);

/* Goes on where `state` stands. Collective. What was read ahead is lost: to begin there, give the
 * state to lmdbio_open.
 * Errors  LMDBIO_INVALID_ARGUMENT (no state, or of another order: names the field), LMDBIO_STALE
 *         (of another dataset): the stream stays where it was; others as lmdbio_open, for good */
LMDBIO_API int lmdbio_restore(lmdbio_loader* loader, const char* state);

/* Goes on with the first record of an epoch; costs nothing where the stream stands there already.
 * Collective, ranks having had as many batches.
 * Errors  as lmdbio_restore */
LMDBIO_API int lmdbio_set_epoch(lmdbio_loader* loader, uint64_t epoch);

/* How many records the database holds, and batches an epoch (any out_ may be NULL). */
LMDBIO_API int lmdbio_count(lmdbio_loader* loader, uint64_t* out_records,
                            uint64_t* out_batches_per_epoch);

/* What the loader has done so far.
 * out_counters  until the next call on this handle */
LMDBIO_API int lmdbio_get_counters(lmdbio_loader* loader, const lmdbio_counters** out_counters);

/* How records are found and read, as "provenance; uring, direct, 32 deep".
 * out_text  until the next call on this handle */
LMDBIO_API int lmdbio_describe(lmdbio_loader* loader, const char** out_text);

/* The calling thread, and those that it starts, run on the cores for computing from now on; does
 * nothing where options.placement names none.
 * Errors  LMDBIO_INVALID_ARGUMENT  the system does not allow any of them any more */
LMDBIO_API int lmdbio_pin_compute(lmdbio_loader* loader);

/* What the last call on `loader` that failed had to say; "" if none has. Never NULL; for a handle
 * that is none, it says so. A const char * until the next call on the handle. */
LMDBIO_API const char* lmdbio_message(lmdbio_loader* loader);

/* errno of the system call that made the last call on `loader` fail, as EIO or EMFILE; 0 if that
 * had another reason, if no call has failed, and for a handle that is none. With LMDBIO_PEER_FAILED
 * it is errno of the rank that failed, where that is known. */
LMDBIO_API int lmdbio_errno(lmdbio_loader* loader);

/* Lets go of everything, the batch at hand too. NULL is fine and does nothing. Collective: waits
 * some seconds for ranks that share this host's memory and do not come. */
LMDBIO_API int lmdbio_close(lmdbio_loader* loader);

/* --- Datasets: records by number ------------------------------------------------------------ */

typedef struct lmdbio_dataset lmdbio_dataset;

/* Opens a database to ask for any records. Finds out where they all lie: from provenance if it
 * fits, else by a walk over the tree's pages.
 * options      of which database_name, snapshot, queue_depth, block_bytes, engine and log count
 * out_dataset  as lmdbio_open's handle
 * Errors       as lmdbio_open */
LMDBIO_API int lmdbio_dataset_open(const char* path, const lmdbio_options* options,
                                   lmdbio_dataset** out_dataset);

/* Fetches records, together, in whatever order the file likes.
 * numbers      [count] in key order from 0; any, also several times
 * out_records  [count] as asked for; until the next call on this handle
 * Errors       LMDBIO_INVALID_ARGUMENT  a number beyond the last record
 *              LMDBIO_IO, LMDBIO_CORRUPTION, LMDBIO_STALE; the handle can still be used */
LMDBIO_API int lmdbio_dataset_read(lmdbio_dataset* dataset, const uint64_t* numbers, size_t count,
                                   const lmdbio_record** out_records);

/* How many records the database holds. */
LMDBIO_API int lmdbio_dataset_count(lmdbio_dataset* dataset, uint64_t* out_records);

/* As lmdbio_message. */
LMDBIO_API const char* lmdbio_dataset_message(lmdbio_dataset* dataset);
/* As lmdbio_errno. */
LMDBIO_API int lmdbio_dataset_errno(lmdbio_dataset* dataset);
/* As lmdbio_close. */
LMDBIO_API int lmdbio_dataset_close(lmdbio_dataset* dataset);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_CAPI_LMDBIO_H_ */
