/* lmdbio.h - batches of an LMDB database, and records by number, in C11.
 *
 *   lmdbio_options options = LMDBIO_OPTIONS_INIT;
 *   options.global_batch_size = 256;
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
  LMDBIO_END = 100,    /* the stream is over (lmdbio_options.max_batches) */
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

/* Begin generated enums: scripts/generate_options.py, from api/options.toml. */
/* The order of the records in the stream. */
enum lmdbio_order {
  /* The order of the database. */
  LMDBIO_ORDER_SEQUENTIAL = 0,
  /* Another order in each epoch; see shuffle. */
  LMDBIO_ORDER_SHUFFLE = 1,
  /* Neighbouring records are dealt in turn to the batches of a group. */
  LMDBIO_ORDER_CHUNKED = 3
};

/* The end of an epoch, if the batch size does not divide the number of records. */
enum lmdbio_tail {
  /* The last batch of an epoch is smaller: each record comes exactly once. */
  LMDBIO_TAIL_SHORT = 1,
  /* The last records of an epoch are left out. */
  LMDBIO_TAIL_DROP = 2,
  /* The last batch continues with the first records of the next epoch, as in Caffe. */
  LMDBIO_TAIL_WRAP = 3
};

/* The share of a rank in a batch. */
enum lmdbio_share {
  /* Rank r of P gets the r-th contiguous part. */
  LMDBIO_SHARE_BLOCK = 0,
  /* Rank r of P gets the positions that are r modulo P, as Caffe's solvers. */
  LMDBIO_SHARE_ROUND_ROBIN = 1,
  /* As block, but in a short batch the first ranks get parts of full size. */
  LMDBIO_SHARE_FILL = 2
};

/* The reaction to a record that cannot be read or is damaged. */
enum lmdbio_on_error {
  /* Every rank gets an error. */
  LMDBIO_ON_ERROR_RAISE = 0,
  /* The record is left out of its batch and counted. */
  LMDBIO_ON_ERROR_SKIP = 1
};

/* The protection against a writer that changes the file. */
enum lmdbio_snapshot {
  /* No process writes. A change is detected at the end of an epoch. */
  LMDBIO_SNAPSHOT_IMMUTABLE = 0,
  /* Every slot is checked after it was read. */
  LMDBIO_SNAPSHOT_OPTIMISTIC = 1,
  /* A read transaction of liblmdb keeps the pages in place. It needs the lock file. */
  LMDBIO_SNAPSHOT_PINNED = 2
};

/* The way to shuffle, with order = shuffle. Each epoch has every record once. */
enum lmdbio_shuffle {
  /* A permutation of all records. */
  LMDBIO_SHUFFLE_GLOBAL = 0,
  /* Blocks of neighbours in random order, mixed within groups of batches: larger reads, less
   * random. */
  LMDBIO_SHUFFLE_BLOCK = 1
};

/* The rank that gets a record again, with reuse. */
enum lmdbio_reuse_among {
  /* The same rank in each pass. */
  LMDBIO_REUSE_AMONG_RANK = 0,
  /* Another rank of the same host in each pass. */
  LMDBIO_REUSE_AMONG_HOST = 1
};
/* End generated enums. */

/* What the library has to say beside failures: one line for each compromise it made, as that a
 * provenance file is stale. Called from within a call on the handle, in its thread.
 * message  without a newline; valid during the call */
typedef void (*lmdbio_log)(void* context, const char* message);

/* The options of a loader. 0 or NULL in a field is its default; a switch is 1 for yes, -1 for no.
 * All ranks of a job have the same values, unless docs/options.md says that an option may differ.
 */
typedef struct lmdbio_options { /* check-tree: large-class (a field for each option) */
  size_t struct_size;           /* sizeof(lmdbio_options): LMDBIO_OPTIONS_INIT sets it */
  /* Begin generated lmdbio_options: scripts/generate_options.py, from api/options.toml. */
  /* The named database to read. NULL: the main database. */
  const char* database_name;
  /* Records of one batch, over all ranks. 0: 64. */
  uint64_t global_batch_size;
  /* The stream ends after so many batches. 0: no limit. */
  uint64_t max_batches;
  /* enum lmdbio_order. The order of the records in the stream. */
  int order;
  /* enum lmdbio_tail. The end of an epoch, if the batch size does not divide the number of
   * records. 0: LMDBIO_TAIL_SHORT. */
  int tail;
  /* enum lmdbio_share. The share of a rank in a batch. */
  int share;
  /* enum lmdbio_on_error. The reaction to a record that cannot be read or is damaged. */
  int on_error;
  /* enum lmdbio_snapshot. The protection against a writer that changes the file. */
  int snapshot;
  /* Selects the random order of shuffling, and of the batches that reuse composes. */
  uint64_t seed;
  /* Records of a block, with shuffle = block. 0: as many as fill 1 MiB of pages. */
  uint64_t block_records;
  /* Consecutive batches among which records are dealt out: with order = chunked, with shuffle =
   * block and with reuse. At most 1,024. Not with share = round-robin. 0: as many as hold 32 MiB
   * of pages. */
  uint64_t group_batches;
  /* How often each record is handed out while it is in memory, in batches composed anew. An
   * epoch is so many times as long. 1 to 1,000. 0: 1. */
  uint64_t reuse;
  /* The stream begins with the first record of this epoch. Excludes state. */
  uint64_t epoch;
  /* The stream begins at a saved state. The saved block_records and group_batches are used where
   * the options have 0. */
  const char* state;
  /* Jobs that share each batch, as if their ranks were the ranks of one job. For processes
   * without MPI. 0: 1. */
  int num_shards;
  /* The number of this job among the shards, below num_shards. */
  int shard_id;
  /* Memory of a host for the records that are read ahead. At least 1 MiB. 0: 256 MiB. */
  uint64_t memory_budget_bytes;
  /* Memory of a host, beside the budget, in which strategy auto may keep the file as far as it
   * was read, so that nothing is read twice. The whole data file must fit. 0: an eighth of the
   * free memory, for records that lie scattered, without shards. -1: the file is never kept. */
  int64_t keep_bytes;
  /* About so many batches of all ranks are read ahead. A few are in any case. 0: as many as the
   * memory budget holds. */
  uint64_t prefetch_batches;
  /* 1: yes; -1: no; 0: yes. Batches may be views into a map of the file, if all of it is in the
   * page cache of the only host. If a process truncates the file meanwhile, the system ends this
   * process with SIGBUS. Only with strategy auto; not with snapshot = optimistic. */
  int allow_map;
  /* Ranks of each host that read. 0: 1. */
  uint32_t readers_per_host;
  /* Reads in flight, for each reader. 0: 32. */
  uint32_t queue_depth;
  /* The largest read. A multiple of 4,096. 0: 1 MiB. */
  uint64_t block_bytes;
  /* The method to find and to fetch records; docs/loader.md describes the strategies. One of
   * "auto", "scan", "lmdb", "lmm", "lmm-dm", "lmm-dio", "lmm-dio-prov", "lmm-dio-prov-coal",
   * "lmm-dio-prov-coal-stag". NULL: "auto". */
  const char* strategy;
  /* The code that executes reads, where the strategy leaves it open. One of "mmap", "pread",
   * "uring". NULL: the strategy chooses. */
  const char* engine;
  /* Called with each note of the library. NULL: notes are dropped. */
  lmdbio_log log;
  /* The first argument of log. */
  void* log_context;
  /* The cores of the threads: "scp" (of the cores of a rank one reads and one synchronises
   * gradients, if it has three), "compute=0-5,input=6,sync=7", or such groups for the ranks of a
   * host in their order, separated by semicolons. Reading threads run on the input cores. NULL:
   * any core. If one rank has a placement, all have one; the values may differ. */
  const char* placement;
  /* enum lmdbio_shuffle. The way to shuffle, with order = shuffle. Each epoch has every record
   * once. */
  int shuffle;
  /* enum lmdbio_reuse_among. The rank that gets a record again, with reuse. */
  int reuse_among;
  /* The use of the page cache, where the strategy leaves it open. One of "buffered", "direct".
   * NULL: the strategy chooses. */
  const char* cache;
  /* How many readers of the job read at a time, with strategies in which readers take turns. 0:
   * a trial of the first slots of the stream decides. */
  uint32_t stagger;
  /* End generated lmdbio_options. */
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
typedef struct lmdbio_counters { /* check-tree: large-class (a field for each counter) */
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

/* The effective options, as one JSON object with a member for each option, by name. Choices are
 * names; an option that the strategy chooses is null.
 * out_text  until the loader is closed */
LMDBIO_API int lmdbio_get_options(lmdbio_loader* loader, const char** out_text);

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
 * options      of these, database_name, snapshot, queue_depth, block_bytes, engine, cache and log
 *              have an effect
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
