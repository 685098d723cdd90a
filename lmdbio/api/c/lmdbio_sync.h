/* lmdbio_sync.h - gradients of all ranks in, their sums on all ranks out, in C11.
 *
 *   lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
 *   lmdbio_sync *sync;                          // lmdbio_sync_open_mpi: see lmdbio_mpi.h
 *   int rc = lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync);
 *   lmdbio_sync_op *op;
 *   rc = lmdbio_sync_allreduce(sync, "conv1", gradient, count, LMDBIO_FLOAT32, &op);
 *   ...                                         // the rest of the backward pass
 *   rc = lmdbio_sync_op_wait(op);               // gradient: the sum of all ranks
 *   lmdbio_sync_op_close(op);
 *   ...
 *   lmdbio_sync_shutdown(sync);
 *   lmdbio_sync_close(sync);
 *
 * Each synchronizer has one helper thread, which sleeps until there is something to do. Ranks may
 * submit their tensors in different orders: what belongs together is found out by name. A process
 * may have several synchronizers, over the same ranks or over others: one for each communicator.
 *
 * The rules of lmdbio.h hold, but for these:
 *  1. Any number of threads may use a handle at once. lmdbio_sync_open, lmdbio_sync_open_mpi and
 *     lmdbio_sync_close run in a thread that may call MPI, where the group is MPI's; no other call
 *     here makes a call of MPI in the caller's thread, and what is in shared memory or on
 *     connections between hosts makes none in the helper thread.
 *  2. Messages are kept for each handle and each thread: lmdbio_sync_message says why the last call
 *     of this very thread on this handle failed. What else a call hands out belongs to the calling
 *     thread, too, and is valid until this thread makes that call on the handle again, at the
 *     latest until the handle is closed.
 *  3. A handle of an operation that was submitted lives on its own, and may outlive its
 *     synchronizer. Closing it does not end the operation.
 *  4. After fork() the child may close handles of its parent's, which does not disturb the parent;
 *     everything else gives LMDBIO_FORKED.
 */
#ifndef LMDBIO_CAPI_LMDBIO_SYNC_H_
#define LMDBIO_CAPI_LMDBIO_SYNC_H_

#include <lmdbio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Options -------------------------------------------------------------------------------- */

/* The options of a synchronizer; 0 or NULL in a field is its default. The same on every rank,
 * except timeline_path, placement and log. */
typedef struct lmdbio_sync_options { /* check-tree: large-class (a field for each option) */
  size_t struct_size; /* sizeof(lmdbio_sync_options): LMDBIO_SYNC_OPTIONS_INIT sets it */
  /* Begin generated lmdbio_sync_options: scripts/generate_options.py, from api/options.toml. */
  /* The algorithm that decides the order of the operations. One of "topo", "cache", "horovod",
   * "hierarchical". NULL: "topo". */
  const char* coordinator;
  /* The time at which a rank begins a round. One of "event", "cycle", "gs", "nbcs". NULL:
   * "event". */
  const char* pacing;
  /* The algorithm that reduces values. One of "auto", "shm", "ring", "halving", "direct", "mpi".
   * NULL: "auto". */
  const char* collective;
  /* The transport of control messages. One of "own", "mpi". NULL: "own". */
  const char* transport;
  /* The period of pacing = cycle, gs and nbcs. 0: 1,000. -1: no pause. */
  int64_t cycle_time_us;
  /* With pacing = gs the ranks agree on their cycle after so many cycles. 0: 1. */
  uint32_t gs_cycles;
  /* A plan has so many buckets, whatever their bytes. 0: bucket_bytes decides. */
  uint32_t num_groups;
  /* The largest sum of tensors that are reduced in one call. 0: 64 MiB. -1: tensors are never
   * joined. */
  int64_t fusion_threshold_bytes;
  /* The bytes of a bucket of a plan, within fusion_threshold_bytes. 0: 1 MiB on one host, 4 MiB
   * or more on several. */
  uint64_t bucket_bytes;
  /* Responses that are remembered. 0: 1,024. -1: none. */
  int64_t cache_capacity;
  /* Memory that lmdbio_sync_place hands out. */
  uint64_t gradient_bytes;
  /* The size of a message between hosts. 0: measured with collective = auto, else 256 KiB. */
  uint64_t chunk_bytes;
  /* Messages in flight. 0: 4. */
  uint32_t chunk_depth;
  /* The ranks abandon a plan if tensors of a bucket are missing for longer. 0: 1,000. */
  uint32_t plan_patience_ms;
  /* A tensor that some rank has not submitted for so long is reported to log. 0: 5,000. -1:
   * never. */
  int64_t stall_report_ms;
  /* A tensor that some rank has not submitted for so long is an error. 0: 600,000. -1: never. */
  int64_t stall_limit_ms;
  /* A rank without a sign of life for so long has failed. 0: 4,000. */
  uint32_t silence_limit_ms;
  /* A Chrome trace is written to this path and the rank: PATH.0. NULL: none. */
  const char* timeline_path;
  /* The cores of the helper thread, in the words of the loader's placement. NULL: any core. */
  const char* placement;
  /* Called with notes and stall reports, in the helper thread. It must neither wait for
   * operations nor close synchronizers. NULL: notes are dropped. */
  lmdbio_log log;
  /* The first argument of log. */
  void* log_context;
  /* End generated lmdbio_sync_options. */
} lmdbio_sync_options;

#ifdef __cplusplus
static inline lmdbio_sync_options lmdbio_sync_options_init() {
  lmdbio_sync_options options = lmdbio_sync_options();
  options.struct_size = sizeof(lmdbio_sync_options);
  return options;
}
#define LMDBIO_SYNC_OPTIONS_INIT lmdbio_sync_options_init()
#else
#define LMDBIO_SYNC_OPTIONS_INIT \
  { .struct_size = sizeof(lmdbio_sync_options) }
#endif

/* --- Synchronizers -------------------------------------------------------------------------- */

typedef struct lmdbio_sync lmdbio_sync;
typedef struct lmdbio_sync_op lmdbio_sync_op;

/* Makes a synchronizer of this process alone: every call works, and nothing is sent.
 * options   NULL: defaults
 * out_sync  set on failure too, if that left anything to say: to a handle that is good for
 *           lmdbio_sync_message and lmdbio_sync_close only; NULL if there is no memory even for
 *           that
 * Errors    LMDBIO_INVALID_ARGUMENT  a name that there is not, a number out of its range
 *           LMDBIO_UNSUPPORTED       options of a newer version that ask for what this one lacks;
 *                                    "mpi", which lmdbio_sync_open_mpi has
 *           LMDBIO_RESOURCE_EXHAUSTED, and those of the file timeline_path names */
LMDBIO_API int lmdbio_sync_open(const lmdbio_sync_options* options, lmdbio_sync** out_sync);

/* Which rank this is, and of how many (any out_ may be NULL). */
LMDBIO_API int lmdbio_sync_rank(lmdbio_sync* sync, int* out_rank, int* out_rank_count);

/* Hands out memory for gradients, of options.gradient_bytes: zero-filled, at a multiple of 64
 * bytes. What is reduced in place there needs no copy. Every rank asks for the same sizes in the
 * same order.
 * out_memory  [size_bytes] until the synchronizer is closed
 * Errors      LMDBIO_RESOURCE_EXHAUSTED  there is not so much left */
LMDBIO_API int lmdbio_sync_place(lmdbio_sync* sync, uint64_t size_bytes, void** out_memory);

/* Collective. Waits until all ranks have called it and all that was submitted is done; nothing can
 * be submitted afterwards.
 * Errors  LMDBIO_PEER_FAILED, LMDBIO_INVALID_ARGUMENT (called before) */
LMDBIO_API int lmdbio_sync_shutdown(lmdbio_sync* sync);

/* Ends the helper thread and lets go of everything, memory that was placed too. NULL is fine and
 * does nothing. What is under way fails, here and on the other ranks: call lmdbio_sync_shutdown
 * first where everybody is to finish. Waits for calls of other threads on this handle.
 * Collective after a shutdown; alone, it fails the others.
 * Errors  LMDBIO_INVALID_ARGUMENT  called in a callback of this synchronizer's; it stays open */
LMDBIO_API int lmdbio_sync_close(lmdbio_sync* sync);

/* Why the last call of this thread on `sync` that failed did so; "" if none has. Never NULL; for a
 * handle that is none, it says so. */
LMDBIO_API const char* lmdbio_sync_message(lmdbio_sync* sync);

/* errno of the system call that made the last call of this thread on `sync` fail; else 0. */
LMDBIO_API int lmdbio_sync_errno(lmdbio_sync* sync);

/* --- Operations ----------------------------------------------------------------------------- */

/* The numbers never change. */
enum lmdbio_operation {
  LMDBIO_ALLREDUCE = 0,      /* output: the reduction of all ranks' inputs */
  LMDBIO_BROADCAST = 1,      /* output: the root's input */
  LMDBIO_ALLGATHER = 2,      /* result: everybody's rows, rank after rank */
  LMDBIO_ALLTOALL = 3,       /* result: the rows that each rank had for this one */
  LMDBIO_REDUCE_SCATTER = 4, /* result: this rank's share of the rows of the reduction */
  LMDBIO_BARRIER = 5,        /* done when all ranks have come */
  LMDBIO_JOIN = 6            /* this rank has run out of data: until all have joined it brings
                                zeros to sums, and no rows */
};

enum lmdbio_type {
  LMDBIO_FLOAT32 = 0,
  LMDBIO_FLOAT64 = 1,
  LMDBIO_FLOAT16 = 2,  /* IEEE binary16; added up in float32 */
  LMDBIO_BFLOAT16 = 3, /* the upper half of a float32; added up in float32 */
  LMDBIO_INT32 = 4,
  LMDBIO_INT64 = 5
};

enum lmdbio_reduction {
  LMDBIO_SUM = 0, /* an average is a sum with a postscale of 1 / ranks */
  LMDBIO_MIN = 1,
  LMDBIO_MAX = 2,
  LMDBIO_PRODUCT = 3
};

/* What becomes of an operation. Called once, in the helper thread, which does nothing else
 * meanwhile: it may submit other operations and close handles of operations, but must not wait.
 * It may be called before the call that submitted the operation has returned.
 * status   LMDBIO_OK, or as lmdbio_sync_op_wait
 * message  "" or what has gone wrong, in one line; valid during the call */
typedef void (*lmdbio_sync_callback)(void* context, int status, const char* message);

/* One operation on one tensor. */
typedef struct lmdbio_sync_request { /* check-tree: large-class (an argument each) */
  size_t struct_size; /* sizeof(lmdbio_sync_request): LMDBIO_SYNC_REQUEST_INIT sets it */
  const char* name;   /* of the tensor, the same on every rank; not needed for LMDBIO_JOIN. What
                         begins with "lmdbio." is the library's own */
  int operation;      /* enum lmdbio_operation */
  int type;           /* enum lmdbio_type */
  int reduction;      /* enum lmdbio_reduction */
  int root;           /* LMDBIO_BROADCAST: whose values */

  /* The same on every rank, but for the first dimension of ALLGATHER and ALLTOALL: the rows. */
  const int64_t* shape;   /* [dimension_count]; NULL: one dimension of `count` */
  size_t dimension_count; /* 0 with a shape: one element */
  int64_t count;          /* elements, where there is no shape */

  /* Of the caller; both stay where they are until the operation is done. */
  const void* input; /* not needed for BARRIER, JOIN, and BROADCAST on others than the root */
  void* output;      /* of ALLREDUCE and BROADCAST; may be the input. Others hand out a result */

  double prescale;       /* of each rank's values before they are reduced; 0: 1 */
  double postscale;      /* of the result; 0: 1 */
  const int64_t* splits; /* [ranks] ALLTOALL: how many rows go to each rank */

  lmdbio_sync_callback callback; /* NULL: none */
  void* callback_context;
} lmdbio_sync_request;

#ifdef __cplusplus
static inline lmdbio_sync_request lmdbio_sync_request_init() {
  lmdbio_sync_request request = lmdbio_sync_request();
  request.struct_size = sizeof(lmdbio_sync_request);
  return request;
}
#define LMDBIO_SYNC_REQUEST_INIT lmdbio_sync_request_init()
#else
#define LMDBIO_SYNC_REQUEST_INIT \
  { .struct_size = sizeof(lmdbio_sync_request) }
#endif

/* Asks for one operation. Does not wait.
 * request  read during the call only, but for input and output
 * out_op   to be closed
 * Errors   LMDBIO_INVALID_ARGUMENT  a tensor of this name is under way; a name, shape, root, split,
 *                                   type or operation that cannot be. Nothing has been submitted
 *          LMDBIO_PEER_FAILED       the synchronizer has failed already; the message says why */
LMDBIO_API int lmdbio_sync_submit(lmdbio_sync* sync, const lmdbio_sync_request* request,
                                  lmdbio_sync_op** out_op);

/* The same for `count` values that become the sum of all ranks' values, in place.
 * type  enum lmdbio_type */
LMDBIO_API int lmdbio_sync_allreduce(lmdbio_sync* sync, const char* name, void* values,
                                     int64_t count, int type, lmdbio_sync_op** out_op);

/* Asks for several LMDBIO_ALLREDUCE that become ready together and travel together.
 * requests  [count]
 * out_ops   [count] of the caller; all to be closed
 * Errors    as lmdbio_sync_submit; then none has been submitted */
LMDBIO_API int lmdbio_sync_submit_group(lmdbio_sync* sync,
                                        const lmdbio_sync_request* const* requests, size_t count,
                                        lmdbio_sync_op** out_ops);

/* Gives the plan to follow, for coordinator "topo": a graph of what needs what, in place of what
 * the first iterations show. Every rank gives the same graph, before its first submission.
 * Collective: waits until all ranks have called it.
 * nodes  [node_count] what a node submits: name, operation, type, reduction, shape and scales
 *        count, and the root of a BROADCAST; of an ALLGATHER every rank brings the same rows;
 *        NULL: a node that only computes
 * edges  [2 * edge_count] pairs of numbers of nodes, from 0: the second needs what the first gives
 * Errors LMDBIO_INVALID_ARGUMENT  a cycle, a tensor twice, no such node; an ALLTOALL or JOIN, which
 *                                 no plan can hold; another coordinator; something has been
 *                                 submitted already
 *        LMDBIO_PEER_FAILED       as lmdbio_sync_op_wait */
LMDBIO_API int lmdbio_sync_set_graph(lmdbio_sync* sync, const lmdbio_sync_request* const* nodes,
                                     size_t node_count, const uint32_t* edges, size_t edge_count);

/* Whether an operation is done or has failed. Never waits.
 * out_is_done  1 or 0 */
LMDBIO_API int lmdbio_sync_op_test(lmdbio_sync_op* op, int* out_is_done);

/* Waits, asleep, until an operation is done.
 * Errors  LMDBIO_INVALID_ARGUMENT  ranks differ in shape, type or operation; names the tensor, and
 *                                  who asked for what. Or: called in a callback
 *         LMDBIO_PEER_FAILED       a rank has failed, left, or not submitted the tensor within the
 *                                  limit; names the tensor and the ranks. With collective
 *                                  "mpi", MPI may still write to the output: keep it until
 *                                  MPI_Finalize */
LMDBIO_API int lmdbio_sync_op_wait(lmdbio_sync_op* op);

/* The same for a time at most.
 * limit_ms  milliseconds; 0: does not sleep
 * Returns   as lmdbio_sync_op_wait; LMDBIO_TIMEOUT */
LMDBIO_API int lmdbio_sync_op_wait_within(lmdbio_sync_op* op, uint32_t limit_ms);

typedef struct lmdbio_sync_result {
  const void* data;    /* ALLGATHER, ALLTOALL, REDUCE_SCATTER: rows; else NULL */
  uint64_t size_bytes; /* of data */
  const int64_t* rows; /* [part_count] how many came from each rank; REDUCE_SCATTER: [1] how many
                          are here */
  size_t part_count;
  int last_joined; /* JOIN: the rank that joined last; else -1 */
} lmdbio_sync_result;

/* What an operation that is done has brought.
 * out_result  with all it points to: until `op` is closed
 * Errors      LMDBIO_INVALID_ARGUMENT  it is not done, or has failed */
LMDBIO_API int lmdbio_sync_op_result(lmdbio_sync_op* op, const lmdbio_sync_result** out_result);

/* As lmdbio_sync_message. */
LMDBIO_API const char* lmdbio_sync_op_message(lmdbio_sync_op* op);

/* As lmdbio_sync_errno. */
LMDBIO_API int lmdbio_sync_op_errno(lmdbio_sync_op* op);

/* Lets go of a handle; the operation goes on. NULL is fine and does nothing. */
LMDBIO_API int lmdbio_sync_op_close(lmdbio_sync_op* op);

/* --- What is seen --------------------------------------------------------------------------- */

/* Counts since the synchronizer was made. */
typedef struct lmdbio_sync_counters {
  uint64_t cycle_count;           /* rounds of control exchanges, and buckets of plans */
  uint64_t control_message_count; /* exchanges of this rank */
  uint64_t control_bytes;         /* that this rank brought to them */
  uint64_t collective_count;      /* calls that moved data */
  uint64_t collective_bytes;
  uint64_t tensor_count;        /* done */
  uint64_t plan_count;          /* plans that were adopted */
  uint64_t plan_end_count;      /* and those that did not fit any more */
  uint64_t thread_cpu_ns;       /* of the helper thread */
  uint64_t thread_run_delay_ns; /* for which it could run and had no core */
} lmdbio_sync_counters;

/* What the synchronizer has done so far. */
LMDBIO_API int lmdbio_sync_get_counters(lmdbio_sync* sync,
                                        const lmdbio_sync_counters** out_counters);

/* The effective options, as one JSON object with a member for each option, by name. A number is 0
 * where the option is -1 in lmdbio_sync_options.
 * out_text  until the synchronizer is closed */
LMDBIO_API int lmdbio_sync_get_options(lmdbio_sync* sync, const char** out_text);

/* What was chosen, in lines: coordinator, pacing, ranks, cores. */
LMDBIO_API int lmdbio_sync_describe(lmdbio_sync* sync, const char** out_text);

/* The last operations of this rank, oldest first, a line each: for a report of what went wrong. */
LMDBIO_API int lmdbio_sync_flight_record(lmdbio_sync* sync, const char** out_text);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_CAPI_LMDBIO_SYNC_H_ */
