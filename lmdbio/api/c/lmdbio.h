/* lmdbio.h - reads batches of an LMDB database, and records by number, in C11.
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
 *  2. A handle is opaque and not an address: never dereference it. A call returns LMDBIO_BAD_HANDLE
 *     for NULL, for a handle that was closed, and for a number that was never a handle.
 *  3. Handles are independent of each other, and any number of threads may share one. Calls of
 *     several threads run at the same time; those that take a batch of the same loader do so in
 *     turn. Results and messages belong to the thread that made the call, and end with it, or they
 *     belong to a lmdbio_result. If a thread closes a handle during a call of another thread, the
 *     object is released when that call ends. A thread is not cancelled (pthread_cancel) during a
 *     call.
 *  4. lmdbio_message() returns one line about the last call of this thread on a handle that failed,
 *     and lmdbio_errno() returns its errno. The library prints nothing. It does not set errno
 *     deliberately.
 *  5. The results of a call belong to the library. They are valid until the next call of the same
 *     thread on the same handle that the comment of the result names, at the latest until the
 *     thread ends or the handle is closed.
 *  6. "Collective" concerns loaders that lmdbio_open_mpi or lmdbio_open_launched opened: every rank
 *     makes the call, and all ranks get a failure if one rank fails. For other loaders it has no
 *     meaning.
 *  7. Structs of the caller begin with struct_size. Zero in a field is its default, and new fields
 *     are appended. Structs of the library grow at their end only.
 *  8. After fork() the child may call lmdbio_save and lmdbio_close on a handle of its parent;
 *     neither disturbs the parent. All other calls return LMDBIO_FORKED. The child opens handles of
 *     its own.
 */
#ifndef LMDBIO_API_C_LMDBIO_H_
#define LMDBIO_API_C_LMDBIO_H_

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
  LMDBIO_INVALID_ARGUMENT = 1,   /* the call was wrong: correct the arguments */
  LMDBIO_NOT_FOUND = 2,          /* the file, database or record does not exist */
  LMDBIO_PERMISSION = 3,         /* the file exists, but this process may not read it */
  LMDBIO_IO = 4,                 /* the storage failed: see lmdbio_errno */
  LMDBIO_CORRUPTION = 5,         /* the bytes break a rule of the format; restore the file */
  LMDBIO_UNSUPPORTED = 6,        /* valid, but this library does not support it; named in message */
  LMDBIO_STALE = 7,              /* the file is not, or is no longer, the expected one */
  LMDBIO_RESOURCE_EXHAUSTED = 8, /* memory, disk or a configured limit ran out */
  LMDBIO_INTERNAL = 9,           /* a dependency broke its contract */
  LMDBIO_PEER_FAILED = 10,       /* another rank failed; the message names it and says why */
  LMDBIO_BAD_HANDLE = 11,        /* NULL, closed, of another kind, or never returned by a call */
  LMDBIO_FORKED = 12,            /* the handle was opened before fork(), in the parent */
  /* These are not failures; they do not change the message of a handle. */
  LMDBIO_END = 100,    /* the stream has ended (lmdbio_options.max_batches) */
  LMDBIO_TIMEOUT = 101 /* the time limit has passed without a result */
};

/* Returns a status in words, such as "corruption"; "unknown status" for other numbers. Never NULL.
 * Threads: any. */
LMDBIO_API const char* lmdbio_strerror(int status);

/* Returns the version of the loaded library, such as "0.1.0". Writes it as a number, too: major *
 * 1000000 + minor * 1000 + patch. out_number may be NULL.
 * Threads: any. */
LMDBIO_API const char* lmdbio_version(int* out_number);

/* --- Views: which records make which sample ------------------------------------------------- */

/* A key, byte for byte as it is stored. */
typedef struct lmdbio_key {
  const void* data; /* may be NULL if size is 0 */
  size_t size;      /* bytes; of any size */
} lmdbio_key;

/* The order of the samples of a view: that of their keys; or keys are decimal numbers, and samples
 * are in the order of these numbers. */
enum lmdbio_view_order { LMDBIO_VIEW_ORDER_KEY = 0, LMDBIO_VIEW_ORDER_NUMERIC = 1 };

/* A record of each sample. 0 in a field is its default. */
typedef struct lmdbio_view_field {
  size_t struct_size; /* sizeof(lmdbio_view_field): LMDBIO_VIEW_FIELD_INIT sets it */
  const char* name;   /* each field another one */
  /* Its keys, with one place for the number of the sample: "image-{:09d}" for at least 9 digits, or
   * "image-{}". NULL: records with equal keys belong together. All fields have templates, or none.
   */
  const char* key_template;
  /* The database of its records. Both NULL: the one of the loader or dataset; path NULL: another
   * one in the same file; database_name NULL: the main database of the other file. */
  const char* path;
  const char* database_name;
} lmdbio_view_field;

/* Which records make which sample (docs/views.md). 0 in a field is its default. */
typedef struct lmdbio_view {
  size_t struct_size; /* sizeof(lmdbio_view): LMDBIO_VIEW_INIT sets it */
  int order; /* enum lmdbio_view_order; samples with templates are in the order of numbers */
  const lmdbio_key* exclude; /* keys of records that are no samples; each may be absent */
  size_t exclude_count;
  const lmdbio_view_field* const* fields; /* of each sample. NULL: a record of the database */
  size_t field_count;
  uint64_t start; /* with templates: the number of the first sample */
  /* With templates, the number of samples: a number, if has_count is 1, or the key of a record that
   * begins with it, in decimal digits. Neither: all numbers from `start` on that are there. */
  int has_count;
  uint64_t count;
  const char* count_key;
  /* Chosen samples, in this order: their numbers, from 0; or their keys, with templates the numbers
   * in them, in decimal digits. Both NULL: all. */
  const uint64_t* subset;
  const lmdbio_key* subset_keys;
  size_t subset_count; /* of either */
} lmdbio_view;

#ifdef __cplusplus
static inline lmdbio_view_field lmdbio_view_field_init() {
  lmdbio_view_field field = lmdbio_view_field();
  field.struct_size = sizeof(lmdbio_view_field);
  return field;
}
#define LMDBIO_VIEW_FIELD_INIT lmdbio_view_field_init()
static inline lmdbio_view lmdbio_view_init() {
  lmdbio_view view = lmdbio_view();
  view.struct_size = sizeof(lmdbio_view);
  return view;
}
#define LMDBIO_VIEW_INIT lmdbio_view_init()
#else
#define LMDBIO_VIEW_FIELD_INIT \
  { .struct_size = sizeof(lmdbio_view_field) }
#define LMDBIO_VIEW_INIT \
  { .struct_size = sizeof(lmdbio_view) }
#endif

/* A resolved view. Without a view: one field without a name, and digest 0. */
typedef struct lmdbio_view_info {
  uint64_t sample_count;
  size_t field_count;
  const char* const* field_names; /* [field_count] in the order of the records of a sample */
  uint64_t digest; /* equal for equal views: of the records of all samples, in order */
} lmdbio_view_info;

/* --- Options -------------------------------------------------------------------------------- */

/* Begin generated enums: scripts/generate_options.py, from api/options.toml. */
/* The order of the records in the stream. */
enum lmdbio_order {
  /* The order of the database. */
  LMDBIO_ORDER_SEQUENTIAL = 0,
  /* A different random order in each epoch; the option shuffle selects the method. */
  LMDBIO_ORDER_SHUFFLE = 1,
  /* Consecutive records go to the batches of a batch group in turn. */
  LMDBIO_ORDER_CHUNKED = 3
};

/* The end of an epoch, if the batch size does not divide the number of records. */
enum lmdbio_tail {
  /* The last batch of an epoch is smaller, so each record occurs exactly once. */
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
  /* Rank r of P gets the positions that are r modulo P, as the solvers of Caffe do. */
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
  /* For files that no process changes. A change is detected at the end of an epoch. */
  LMDBIO_SNAPSHOT_IMMUTABLE = 0,
  /* Every slot is checked after it has been read. */
  LMDBIO_SNAPSHOT_OPTIMISTIC = 1,
  /* A read transaction of liblmdb keeps the pages in place. It needs the lock file. */
  LMDBIO_SNAPSHOT_PINNED = 2
};

/* The way to shuffle, with order = shuffle. Each epoch has every record once. */
enum lmdbio_shuffle {
  /* A permutation of all records. */
  LMDBIO_SHUFFLE_GLOBAL = 0,
  /* Blocks of consecutive records in random order, mixed within batch groups: larger reads, less
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

/* The page size of the memory that batches are read into. */
enum lmdbio_huge_pages {
  /* Huge pages (2 MiB), as far as the system has them; a note tells the reason if it has none. */
  LMDBIO_HUGE_PAGES_AUTO = 0,
  /* Small pages. Direct reads are slower; the memory grows page by page. */
  LMDBIO_HUGE_PAGES_OFF = 1
};

/* The memory that the ranks of a host share. A host with one rank shares none. */
enum lmdbio_window_memory {
  /* A file in memory without a name; a window of MPI, with a note, if the system refuses it. */
  LMDBIO_WINDOW_MEMORY_AUTO = 0,
  /* A window of MPI. It needs room in /dev/shm, may have small pages, and may stay there if a
   * rank is killed. */
  LMDBIO_WINDOW_MEMORY_MPI = 1
};

/* Whether a page walk reads values along with the leaf pages, in key order and with direct
 * reads, if the file was written in order. */
enum lmdbio_joint_walk {
  /* If a single read of the storage takes 0.3 ms or more. */
  LMDBIO_JOINT_WALK_AUTO = 0,
  /* Also on fast storage. */
  LMDBIO_JOINT_WALK_ON = 1,
  /* Never: the walk reads leaf pages alone. */
  LMDBIO_JOINT_WALK_OFF = 2
};

/* Whether the hosts read large parts of the file for each other, in key order, if a host needs
 * only a small part of each batch. */
enum lmdbio_exchange {
  /* With strategy auto and direct or mixed reads, if a host needs less than an eighth of
   * block_bytes of a batch and a single read takes 0.3 ms or more. */
  LMDBIO_EXCHANGE_AUTO = 0,
  /* Also with other strategies that read blocks, larger batches and fast storage. */
  LMDBIO_EXCHANGE_ON = 1,
  /* Never: each host reads what it needs. */
  LMDBIO_EXCHANGE_OFF = 2
};
/* End generated enums. */

/* The receiver of notes: one line for each compromise that the library made, for example because a
 * provenance file is stale. Called from within a call on the handle, in its thread. Threads that
 * share a handle may call it at the same time.
 * message  without a newline; valid during the call */
typedef void (*lmdbio_log)(void* context, const char* message);

/* The options of a loader. 0 or NULL in a field is its default; a switch is 1 for yes, -1 for no.
 * All ranks of a job have the same values, except for the options that docs/options.md marks.
 */
typedef struct lmdbio_options { /* check-tree: large-class (a field for each option) */
  size_t struct_size;           /* sizeof(lmdbio_options): LMDBIO_OPTIONS_INIT sets it */
  /* Begin generated lmdbio_options: scripts/generate_options.py, from api/options.toml. */
  /* The named database to read. NULL: the main database. */
  const char* database_name;
  /* Records of one batch, over all ranks. 0: 64. */
  uint64_t global_batch_size;
  /* The number of batches after which the stream ends. 0: no limit. */
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
  /* The number of batches of a batch group, whose records are read together and dealt out among
   * the batches. Used with order = chunked, with shuffle = block and with reuse. At most 1,024.
   * Not with share = round-robin. 0: as many as hold 32 MiB of pages. */
  uint64_t group_batches;
  /* The number of times that each record is delivered while it is in memory, in newly composed
   * batches. An epoch becomes longer by this factor. 1 to 1,000. 0: 1. */
  uint64_t reuse;
  /* The stream begins with the first record of this epoch. Excludes state. */
  uint64_t epoch;
  /* The stream begins at a saved state. The saved block_records and group_batches are used if
   * these options are 0. */
  const char* state;
  /* The number of jobs that share each batch, as if their ranks were the ranks of one job. For
   * processes without MPI. 0: 1. */
  int num_shards;
  /* The number of this job among the shards, below num_shards. */
  int shard_id;
  /* Memory of a host for the records that are read ahead. At least 1 MiB. 0: 256 MiB. */
  uint64_t memory_budget_bytes;
  /* Memory of a host for the file cache, in addition to memory_budget_bytes. Strategy auto may
   * keep the parts of the file there that were read, so that nothing is read twice. The whole
   * data file must fit. 0: an eighth of the free memory, if the records are scattered and there
   * are no shards. -1: the file is never kept. */
  int64_t keep_bytes;
  /* The approximate number of global batches to read ahead. A few are always read ahead. 0: as
   * many as the memory budget holds. */
  uint64_t prefetch_batches;
  /* 1: yes; -1: no; 0: yes. Batches may be views into a map of the file, if the job has one host
   * and most of the file is in its page cache. If a process truncates the file meanwhile, lost
   * bytes of the batch in use become zeros, and the next batch is an error. Only with strategy
   * auto; not with snapshot = optimistic. */
  int allow_map;
  /* The number of ranks of each host that read. 0: 1. */
  uint32_t readers_per_host;
  /* The number of reads in flight for each reader. 0: 32. */
  uint32_t queue_depth;
  /* The size of the largest read. A multiple of 4,096. At the default, the -coal strategies
   * derive larger reads from memory_budget_bytes. 0: 1 MiB. */
  uint64_t block_bytes;
  /* The method to find and to fetch records; docs/loader.md describes the strategies. One of
   * "auto", "scan", "lmdb", "lmm", "lmm-dm", "lmm-dio", "lmm-dio-prov", "lmm-dio-prov-coal",
   * "lmm-dio-prov-coal-stag". NULL: "auto". */
  const char* strategy;
  /* The code that executes reads, if the strategy does not determine it. One of "mmap", "pread",
   * "uring". NULL: the strategy chooses. */
  const char* engine;
  /* Called with each note of the library. NULL: notes are dropped. */
  lmdbio_log log;
  /* The first argument of log. */
  void* log_context;
  /* The cores of the threads. "scp": one core of a rank reads and one synchronises gradients, if
   * the rank has at least three cores. "compute=0-5,input=6,sync=7": lists of cores; semicolons
   * separate such groups for the ranks of a host in order. With hwloc also "core:0-5", "numa:0"
   * and "near" (docs/sync.md). Reading threads run on the input cores. NULL: any core. If one
   * rank has a placement, all ranks must have one; the values may differ. */
  const char* placement;
  /* enum lmdbio_shuffle. The way to shuffle, with order = shuffle. Each epoch has every record
   * once. */
  int shuffle;
  /* enum lmdbio_reuse_among. The rank that gets a record again, with reuse. */
  int reuse_among;
  /* The use of the page cache, if the strategy does not determine it. One of "buffered",
   * "direct", "mixed". NULL: the strategy chooses. */
  const char* cache;
  /* The number of readers of the job that read at a time, with strategies in which they take
   * turns. 0: a trial of the first slots of the stream decides; on one host only with -stag. */
  uint32_t stagger;
  /* enum lmdbio_huge_pages. The page size of the memory that batches are read into. */
  int huge_pages;
  /* enum lmdbio_window_memory. The memory that the ranks of a host share. A host with one rank
   * shares none. */
  int window_memory;
  /* The folder that keeps the layout of a walked database for later jobs, with strategy auto,
   * one reader on one host and no provenance. "off": none. NULL: the folder in LMDBIO_CACHE,
   * which may be "off"; else lmdbio in the user's cache folder. */
  const char* layout_cache;
  /* enum lmdbio_joint_walk. Whether a page walk reads values along with the leaf pages, in key
   * order and with direct reads, if the file was written in order. */
  int joint_walk;
  /* enum lmdbio_exchange. Whether the hosts read large parts of the file for each other, in key
   * order, if a host needs only a small part of each batch. */
  int exchange;
  /* The view: which records make which sample. Read while a loader or a dataset opens, and not
   * later. All ranks have equal ones. NULL: each record is a sample, in key order. */
  const lmdbio_view* view;
  /* The most descriptors of data files that are open at the same time, if there are several
   * files. A file may need two. With fewer descriptors than files, files are opened again for
   * later reads. 0: a quarter of those that the process may have, and at most 1,024. */
  uint64_t open_files_max;
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
  const void* value; /* may have any alignment */
  uint64_t position; /* in the global sequence; for a dataset, the number of the record or sample */
  uint32_t value_size; /* bytes */
  uint32_t key_size;   /* bytes */
} lmdbio_record;

typedef struct lmdbio_batch {
  const lmdbio_record* records; /* [record_count] this rank's share of the batch */
  size_t record_count;          /* may be 0 if a batch has fewer records than ranks */
  size_t skipped_count;         /* unreadable records of this rank's share (ON_ERROR_SKIP) */
  uint64_t number;              /* index of the batch in the stream, from 0 */
  uint64_t epoch;               /* the epoch of its first record */
  uint64_t first_position;      /* of the global batch, in the global sequence */
  uint64_t global_record_count; /* records of all ranks */
  int ends_epoch;               /* 1: an epoch ends with this batch or inside it */
  /* The records of each sample, which follow each other: 1 without a view. record_count is a
   * multiple of it; skipped_count and global_record_count count samples. */
  size_t field_count;
} lmdbio_batch;

/* Counts, seconds (_s) and bytes since the loader was opened. */
typedef struct lmdbio_counters { /* check-tree: large-class (a field for each counter) */
  uint64_t batch_count, record_count, skipped_count, payload_bytes; /* of this rank's batches */
  uint64_t epoch_count;                                             /* epochs that have ended */
  uint64_t dropped_count, wrapped_count; /* records of all ranks: see lmdbio_tail */
  double wait_s;                         /* sleep of lmdbio_next until a batch was ready */
  double next_cpu_s;                     /* processor time of lmdbio_next */
  double locate_s, read_s, finish_s;     /* of this rank's reader: finding, reading, checking */
  double space_wait_s;                   /* the reader waited until batches were consumed */
  uint64_t read_requests, bytes_read, bytes_direct, bytes_useful, retry_count;
} lmdbio_counters;

/* A list of data files that are read as one. */
typedef struct lmdbio_files {
  size_t struct_size; /* sizeof(lmdbio_files); LMDBIO_FILES_INIT sets it */
  /* [count] directories with data.mdb, or data files. The order counts. A file may come several
   * times. */
  const char* const* paths;
  /* [count] the named database of each file; NULL, or an entry NULL: options.database_name. */
  const char* const* database_names;
  size_t count;
} lmdbio_files;

#ifdef __cplusplus
static inline lmdbio_files lmdbio_files_init() {
  lmdbio_files files = lmdbio_files();
  files.struct_size = sizeof(lmdbio_files);
  return files;
}
#define LMDBIO_FILES_INIT lmdbio_files_init()
#else
#define LMDBIO_FILES_INIT \
  { .struct_size = sizeof(lmdbio_files) }
#endif

/* Opens a database and begins to read.
 * path        a directory with data.mdb, or a data file. Several files as one: another directory
 *             with data files, or a glob; both in natural order: data.2 before data.10
 * options     NULL: defaults
 * out_loader  to be closed by the caller. Also set after most failures, to a handle for
 *             lmdbio_message and lmdbio_close only. NULL if there was no memory for a handle
 * Errors      LMDBIO_INVALID_ARGUMENT  an invalid option, or an empty database
 *             LMDBIO_UNSUPPORTED       an option of a newer version is set that this version lacks;
 *                                      strategy "lmdb" or a pinned snapshot, and the library was
 *                                      built without liblmdb
 *             LMDBIO_STALE             options.state belongs to another dataset
 *             and those of the file */
LMDBIO_API int lmdbio_open(const char* path, const lmdbio_options* options,
                           lmdbio_loader** out_loader);

/* Opens the databases of several files as one, and begins to read. The records of a file follow
 * those of the files before, and the order of options.order runs over all of them.
 * Errors      as lmdbio_open, and
 *             LMDBIO_INVALID_ARGUMENT  no files; they differ in page size, data version or
 *                                      flags of the database
 *             LMDBIO_STALE             options.state belongs to other files: names the first
 *             LMDBIO_UNSUPPORTED       an option that works with a single file only: strategies
 *                                      that walk with a cursor, engine "mmap", a pinned snapshot,
 *                                      joint_walk and exchange "on" */
LMDBIO_API int lmdbio_open_files(const lmdbio_files* files, const lmdbio_options* options,
                                 lmdbio_loader** out_loader);

/* The place at which ranks meet that a launcher has started without MPI: a key-value store of the
 * program that all ranks reach, such as that of torch.distributed. NULL in place of this struct:
 * the environment variables of torchrun or srun tell rank and number, and the ranks meet at a port
 * of rank 0 (docs/launchers.md). 0 in a field is its default. */
typedef struct lmdbio_launch {
  size_t struct_size; /* sizeof(lmdbio_launch): LMDBIO_LAUNCH_INIT sets it */
  int rank;           /* of this process, from 0 */
  int rank_count;
  uint32_t limit_ms; /* how long ranks wait for each other. 0: 300,000 */
  /* The number of this meeting in the store: another one for each meeting in one store. */
  uint64_t meeting;
  /* Sets a key, which has no other value yet. Returns LMDBIO_OK; other values end the meeting.
   * key    "lmdbio/...", less than 64 bytes
   * value  [value_bytes] at most 4,096 */
  int (*set)(void* context, const char* key, const void* value, size_t value_bytes);
  /* Returns LMDBIO_OK and the value of a key, or LMDBIO_NOT_FOUND at once if no rank has set it;
   * other values end the meeting.
   * value            [capacity_bytes] room for the value
   * out_value_bytes  its size */
  int (*get)(void* context, const char* key, void* value, size_t capacity_bytes,
             size_t* out_value_bytes);
  void* context; /* the first argument of set and get */
} lmdbio_launch;

#ifdef __cplusplus
static inline lmdbio_launch lmdbio_launch_init() {
  lmdbio_launch launch = lmdbio_launch();
  launch.struct_size = sizeof(lmdbio_launch);
  return launch;
}
#define LMDBIO_LAUNCH_INIT lmdbio_launch_init()
#else
#define LMDBIO_LAUNCH_INIT \
  { .struct_size = sizeof(lmdbio_launch) }
#endif

/* Returns the rank of this process and the number of ranks, as the launcher has told them. Opens
 * nothing. Any out_ may be NULL.
 * launch   as lmdbio_open_launched
 * message  [message_bytes] of the caller: gets the reason of a failure in one line, cut off if it
 *          is longer; else "". NULL: none
 * Errors   LMDBIO_INVALID_ARGUMENT  no launcher has set its variables, or only some of them; a
 *                                   value is out of range
 * Threads: any. */
LMDBIO_API int lmdbio_launch_rank(const lmdbio_launch* launch, int* out_rank, int* out_rank_count,
                                  char* message, size_t message_bytes);

/* Opens a loader for all ranks that a launcher has started together, without MPI, as lmdbio_open.
 * The ranks of a host share one window of memory, some of them read for all, and each gets its
 * share of every batch. Collective: all ranks make their calls with a launch in the same order.
 * launch  NULL: from the environment. set and get are called during this call only, in this thread
 * Errors  as lmdbio_open, and
 *         LMDBIO_INVALID_ARGUMENT  as lmdbio_launch_rank; the ranks expect different numbers of
 *                                  ranks, or two processes have one number
 *         LMDBIO_PEER_FAILED       ranks do not come, have ended, or had one of these; names them
 *         LMDBIO_IO                rank 0 cannot be reached, or can listen nowhere
 *         those of set and get, with the names of the call and the key */
LMDBIO_API int lmdbio_open_launched(const lmdbio_launch* launch, const char* path,
                                    const lmdbio_options* options, lmdbio_loader** out_loader);

/* The same for several files as one, as lmdbio_open_files. Every rank gives the same files. */
LMDBIO_API int lmdbio_open_launched_files(const lmdbio_launch* launch, const lmdbio_files* files,
                                          const lmdbio_options* options,
                                          lmdbio_loader** out_loader);

/* Moves this thread to the next batch of this rank, and sleeps until it is ready. Not collective.
 * Of threads that share a loader, each gets batches of its own: no batch twice, none left out. A
 * thread that holds a batch and takes no other one keeps memory from the others: it uses
 * lmdbio_fetch, or ends.
 * out_batch  valid, with all it points to, until the next lmdbio_next, lmdbio_next_within,
 *            lmdbio_restore or lmdbio_set_epoch of this thread
 * Returns    LMDBIO_OK; LMDBIO_END after the last batch
 * Errors     LMDBIO_IO, LMDBIO_CORRUPTION, LMDBIO_STALE, LMDBIO_PEER_FAILED,
 *            LMDBIO_RESOURCE_EXHAUSTED (a batch larger than the memory budget); every later call
 *            returns the same
 *            LMDBIO_RESOURCE_EXHAUSTED if batches of other threads occupied the memory for a
 *            minute; a later call waits again */
LMDBIO_API int lmdbio_next(lmdbio_loader* loader, const lmdbio_batch** out_batch);

/* Does the same as lmdbio_next with a time limit, for programs that must react to other events.
 * After LMDBIO_TIMEOUT there is no current batch; the next call delivers the batch.
 * limit_ms  milliseconds; 0: does not sleep
 * Returns   as lmdbio_next; LMDBIO_TIMEOUT */
LMDBIO_API int lmdbio_next_within(lmdbio_loader* loader, uint32_t limit_ms,
                                  const lmdbio_batch** out_batch);

/* The batch of one lmdbio_fetch, or the records of one lmdbio_dataset_fetch. */
typedef struct lmdbio_result lmdbio_result;

/* Takes the next batch of this rank, as lmdbio_next_within, but the batch belongs to a result: it
 * may be handed to another thread, and a thread may have several. Their memory serves no later
 * batch until they are closed. The batch of lmdbio_next stays as it is.
 * limit_ms    milliseconds; 0: does not sleep; UINT32_MAX: as long as it takes
 * out_result  to be closed by the caller, in any thread, also after the loader; NULL unless
 *             LMDBIO_OK is returned
 * out_batch   valid until the result or the loader is closed
 * Returns     as lmdbio_next_within
 * Errors      as lmdbio_next */
LMDBIO_API int lmdbio_fetch(lmdbio_loader* loader, uint32_t limit_ms, lmdbio_result** out_result,
                            const lmdbio_batch** out_batch);

/* Copies the values of a result, as lmdbio_copy_values.
 * Errors     LMDBIO_INVALID_ARGUMENT  the values do not fit; rows are unchanged */
LMDBIO_API int lmdbio_result_copy_values(lmdbio_result* result, void* rows, size_t row_bytes,
                                         size_t row_count);
/* Does the same for the values of field number `field` of the view, with a row for each sample. */
LMDBIO_API int lmdbio_result_copy_field(lmdbio_result* result, size_t field, void* rows,
                                        size_t row_bytes, size_t row_count);
/* Returns the message of the last call of this thread on a result that failed, as lmdbio_message.
 */
LMDBIO_API const char* lmdbio_result_message(lmdbio_result* result);
/* Returns the errno of that call, as lmdbio_errno. */
LMDBIO_API int lmdbio_result_errno(lmdbio_result* result);
/* Releases a result with its batch or records. NULL is allowed and does nothing. */
LMDBIO_API int lmdbio_result_close(lmdbio_result* result);

/* Copies the values of this thread's batch of lmdbio_next, one to a row, and fills the rows up with
 * zeros.
 * rows       [row_count * row_bytes] of the caller
 * row_bytes  at least the size of the largest value of the batch
 * row_count  at least the number of its records
 * Errors     LMDBIO_INVALID_ARGUMENT  this thread has no batch, or it does not fit; rows are
 *            unchanged */
LMDBIO_API int lmdbio_copy_values(lmdbio_loader* loader, void* rows, size_t row_bytes,
                                  size_t row_count);

/* Returns the stream state before the next batch: JSON, less than 1 kB and some 50 bytes for each
 * of several files, valid for any number of ranks. Ranks that have received equally many batches
 * get the same text; batches of all threads count. Not collective; allowed after fork, unless the
 * parent was moving the stream elsewhere.
 * out_state  valid until the next call of this thread on this handle */
LMDBIO_API int lmdbio_save(lmdbio_loader* loader, const char** out_state);

/* Continues the stream at a saved state. Collective. Records that were read ahead are discarded, so
 * a program that begins at a state passes it to lmdbio_open instead. Waits until no other thread
 * waits for a batch.
 * Errors  LMDBIO_INVALID_ARGUMENT  not a state, or a state of another order (names the field);
 *                                  other threads or results hold batches
 *         LMDBIO_STALE             a state of another dataset
 *         After both the stream keeps its position. Other errors are those of lmdbio_open; every
 *         later lmdbio_next then fails, too */
LMDBIO_API int lmdbio_restore(lmdbio_loader* loader, const char* state);

/* Continues with the first record of an epoch. Costs nothing if that record comes next anyway.
 * Collective; all ranks have received equally many batches.
 * Errors  as lmdbio_restore */
LMDBIO_API int lmdbio_set_epoch(lmdbio_loader* loader, uint64_t epoch);

/* Returns the number of records of the database, or of samples of the view, and of batches of an
 * epoch. Any out_ may be NULL. */
LMDBIO_API int lmdbio_count(lmdbio_loader* loader, uint64_t* out_records,
                            uint64_t* out_batches_per_epoch);

/* Returns the view. out_view is valid until the next call of this thread on this handle. */
LMDBIO_API int lmdbio_get_view(lmdbio_loader* loader, const lmdbio_view_info** out_view);

/* Returns the counters of the loader.
 * out_counters  valid until the next call of this thread on this handle */
LMDBIO_API int lmdbio_get_counters(lmdbio_loader* loader, const lmdbio_counters** out_counters);

/* Returns the effective options, as one JSON object with a member for each option, by name. Choices
 * are names; an option that the strategy chooses is null.
 * out_text  valid until the loader is closed */
LMDBIO_API int lmdbio_get_options(lmdbio_loader* loader, const char** out_text);

/* Describes how records are found and read, for example "provenance; uring, direct, 32 deep".
 * out_text  valid until the next call of this thread on this handle */
LMDBIO_API int lmdbio_describe(lmdbio_loader* loader, const char** out_text);

/* Pins the calling thread, and the threads that it starts later, to the compute cores. Does nothing
 * if options.placement names none.
 * Errors  LMDBIO_INVALID_ARGUMENT  the system no longer allows any of these cores */
LMDBIO_API int lmdbio_pin_compute(lmdbio_loader* loader);

/* Returns the message of the last call of this thread on `loader` that failed; "" if none has.
 * Never NULL; the message for an invalid handle says that it is invalid. Valid until the next call
 * of this thread on the handle. */
LMDBIO_API const char* lmdbio_message(lmdbio_loader* loader);

/* Returns the errno of the system call that made that call fail, such as EIO or EMFILE. 0 if the
 * failure had another reason, if no call has failed, and for an invalid handle. After
 * LMDBIO_PEER_FAILED it is the errno of the rank that failed, if that is known. */
LMDBIO_API int lmdbio_errno(lmdbio_loader* loader);

/* Releases the loader and the batches of all threads. NULL is allowed and does nothing. Collective:
 * waits at most some seconds for the other ranks that share the memory of this host. */
LMDBIO_API int lmdbio_close(lmdbio_loader* loader);

/* --- Datasets: records by number and by key ------------------------------------------------- */

typedef struct lmdbio_dataset lmdbio_dataset;

/* Opens a database to read records by number or key. Finds the locations of all records: from
 * provenance if it fits, by a kept layout, or by a page walk.
 * path         as lmdbio_open
 * options      only database_name, snapshot, queue_depth, block_bytes, engine, cache, layout_cache,
 *              open_files_max, view, log and log_context have an effect
 * out_dataset  as out_loader of lmdbio_open
 * Errors       as lmdbio_open */
LMDBIO_API int lmdbio_dataset_open(const char* path, const lmdbio_options* options,
                                   lmdbio_dataset** out_dataset);

/* Opens the databases of several files as one dataset. The records of a file follow those of the
 * files before. A key is looked up in one file after the other: the first that has it answers.
 * Errors       as lmdbio_dataset_open, and
 *              LMDBIO_INVALID_ARGUMENT  no files; they differ in page size, data version or
 *                                       flags of the database
 *              LMDBIO_UNSUPPORTED       a pinned snapshot or engine "mmap", with several files */
LMDBIO_API int lmdbio_dataset_open_files(const lmdbio_files* files, const lmdbio_options* options,
                                         lmdbio_dataset** out_dataset);

/* Reads several records together, in file order. Reads of several threads run at the same time.
 * numbers      [count] record numbers in key order, from 0; in any order, repeats allowed. With a
 *              view, numbers of samples
 * out_records  [count] in the order of `numbers`; with a view [count * field_count]; valid until
 *              the calling thread calls lmdbio_dataset_read on this handle again, or until the
 *              handle is closed
 * Errors       LMDBIO_INVALID_ARGUMENT  a number beyond the last record
 *              LMDBIO_IO, LMDBIO_CORRUPTION, LMDBIO_STALE, LMDBIO_RESOURCE_EXHAUSTED; the handle
 *              can still be used */
LMDBIO_API int lmdbio_dataset_read(lmdbio_dataset* dataset, const uint64_t* numbers, size_t count,
                                   const lmdbio_record** out_records);

/* Does the same as lmdbio_dataset_read, but the records belong to a result of their own: they may
 * be handed to another thread, and several results may exist at the same time. As many as exist
 * need memory, a queue and descriptors each.
 * out_result   to be closed by the caller, in any thread, also after the dataset; NULL after errors
 * out_records  as lmdbio_dataset_read; valid until the result is closed
 * Errors       as lmdbio_dataset_read; lmdbio_dataset_message has the message */
LMDBIO_API int lmdbio_dataset_fetch(lmdbio_dataset* dataset, const uint64_t* numbers, size_t count,
                                    lmdbio_result** out_result, const lmdbio_record** out_records);

/* The number of a key that the database does not have. */
#define LMDBIO_NO_RECORD UINT64_MAX

/* Finds the numbers of records by their keys, all in one descent of the tree. With a view: of the
 * first samples that have these records; LMDBIO_NO_RECORD and 0 values if none has.
 * keys              [count] in any order; repeats allowed
 * out_numbers       [count] of the caller: the number of each record; of a key with duplicates that
 *                   of the first; LMDBIO_NO_RECORD for an absent key. The first call with numbers
 *                   sleeps until all records are located. NULL: does not need this, unless the
 *                   database has duplicates
 * out_value_counts  [count] of the caller: the values of each key, whose numbers follow each other;
 *                   0 for an absent key. May be NULL
 * Errors            LMDBIO_INVALID_ARGUMENT  a key of another size than the integer keys of this
 *                                            database
 *                   LMDBIO_CORRUPTION        a damaged page; or the keys are in the order of a
 *                                            comparison function that the file does not record
 *                   LMDBIO_IO, LMDBIO_STALE, LMDBIO_RESOURCE_EXHAUSTED; the handle can still be
 *                   used */
LMDBIO_API int lmdbio_dataset_find(lmdbio_dataset* dataset, const lmdbio_key* keys, size_t count,
                                   uint64_t* out_numbers, uint64_t* out_value_counts);

/* Reads several records by their keys: of a key with duplicates the first. With a view also those
 * that belong to no sample, of the database itself. Does not need the
 * locations of all records, unless the database has duplicates.
 * out_result   as lmdbio_dataset_fetch
 * out_records  [count] in the order of `keys`; `key` and `value` are NULL for an absent key;
 *              `position` is the index into `keys`. Valid until the result is closed
 * Errors       as lmdbio_dataset_find and lmdbio_dataset_fetch */
LMDBIO_API int lmdbio_dataset_get(lmdbio_dataset* dataset, const lmdbio_key* keys, size_t count,
                                  lmdbio_result** out_result, const lmdbio_record** out_records);

/* Makes lmdbio_dataset_find and lmdbio_dataset_get use an index from the hashes of all keys to the
 * numbers of records, from now on. They compare the real keys. The index is the one that an earlier
 * process has kept in the folder options.layout_cache, or a new one, which is then kept. It takes 8
 * bytes of memory for each key. Without an index the calls go down the tree, which is enough for
 * most uses: docs/keys.md.
 * Errors  LMDBIO_IO, LMDBIO_CORRUPTION, LMDBIO_STALE; the calls then go down the tree */
LMDBIO_API int lmdbio_dataset_use_key_index(lmdbio_dataset* dataset);

/* Reads the keys of consecutive records, and none of the values that lie outside of leaf pages.
 * first, count  of the records, with a view of the samples; not beyond the last
 * out_result    as lmdbio_dataset_fetch
 * out_records   [count], with a view [count * field_count], without values. The key of duplicates
 *               comes once for each
 * Errors        as lmdbio_dataset_fetch */
LMDBIO_API int lmdbio_dataset_keys(lmdbio_dataset* dataset, uint64_t first, size_t count,
                                   lmdbio_result** out_result, const lmdbio_record** out_records);

/* Returns the number of records of the database, or of samples of the view. */
LMDBIO_API int lmdbio_dataset_count(lmdbio_dataset* dataset, uint64_t* out_records);

/* Returns the view, as lmdbio_get_view. */
LMDBIO_API int lmdbio_dataset_get_view(lmdbio_dataset* dataset, const lmdbio_view_info** out_view);

/* Returns the message of the last call of this thread on a dataset that failed, as lmdbio_message.
 */
LMDBIO_API const char* lmdbio_dataset_message(lmdbio_dataset* dataset);
/* Returns the errno of that call, as lmdbio_errno. */
LMDBIO_API int lmdbio_dataset_errno(lmdbio_dataset* dataset);
/* Closes a dataset, as lmdbio_close. */
LMDBIO_API int lmdbio_dataset_close(lmdbio_dataset* dataset);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_API_C_LMDBIO_H_ */
