/* lmdbio_sync.h - sums gradients over all ranks while the backward pass runs, in C11.
 *
 *   lmdbio_sync_options options = LMDBIO_SYNC_OPTIONS_INIT;
 *   lmdbio_sync *sync;                          // lmdbio_sync_open_mpi: see lmdbio_mpi.h
 *   int rc = lmdbio_sync_open_mpi(MPI_COMM_WORLD, &options, &sync);
 *   lmdbio_sync_op *op;
 *   rc = lmdbio_sync_allreduce(sync, "conv1", gradient, count, LMDBIO_FLOAT32, &op);
 *   ...                                         // the rest of the backward pass
 *   rc = lmdbio_sync_op_wait(op);               // gradient is now the sum over all ranks
 *   lmdbio_sync_op_close(op);
 *   ...
 *   lmdbio_sync_shutdown(sync);
 *   lmdbio_sync_close(sync);
 *
 * Each synchronizer has one helper thread, which sleeps until there is work. Ranks may submit their
 * tensors in different orders: the synchronizer matches tensors by name. A process may have several
 * synchronizers, one for each communicator, over the same or different ranks.
 *
 * The rules of lmdbio.h apply, with these exceptions:
 *  1. Any number of threads may use a handle at once. With a communicator, lmdbio_sync_open_mpi and
 *     lmdbio_sync_close run in a thread that may call MPI. No other call here calls MPI in the
 *     caller's thread. The helper thread calls MPI only with collective or transport "mpi".
 *  2. Each handle keeps its messages for each thread: lmdbio_sync_message returns the reason of the
 *     last failure of the calling thread on this handle. Other results belong to the calling
 *     thread, too. They are valid until this thread makes the same call on the handle again, at
 *     the latest until the handle is closed.
 *  3. The handle of an operation is independent, and may outlive its synchronizer. Closing it does
 *     not end the operation.
 *  4. After fork() the child may close handles of its parent, which does not disturb the parent.
 *     All other calls return LMDBIO_FORKED.
 */
#ifndef LMDBIO_API_C_LMDBIO_SYNC_H_
#define LMDBIO_API_C_LMDBIO_SYNC_H_

#include <lmdbio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Options -------------------------------------------------------------------------------- */

/* The options of a synchronizer; 0 or NULL in a field is its default. All ranks have the same
 * values, except for timeline_path, placement, log and log_context. */
typedef struct lmdbio_sync_options { /* check-tree: large-class (a field for each option) */
  size_t struct_size; /* sizeof(lmdbio_sync_options): LMDBIO_SYNC_OPTIONS_INIT sets it */
  /* Begin generated lmdbio_sync_options: scripts/generate_options.py, from api/options.toml. */
  /* The algorithm that decides the order of the operations. One of "topo", "caramel", "cache",
   * "horovod", "hierarchical". NULL: "topo". */
  const char* coordinator;
  /* The time at which a rank begins a round. One of "event", "cycle", "gs", "nbcs". NULL:
   * "event". */
  const char* pacing;
  /* The algorithm that reduces values. One of "auto", "shm", "ring", "halving", "direct", "mpi".
   * NULL: "auto". */
  const char* collective;
  /* The transport of control messages. One of "own", "mpi". NULL: "own". */
  const char* transport;
  /* The cycle, with pacing = cycle, gs and nbcs. 0: 1,000. -1: no pause. */
  int64_t cycle_time_us;
  /* With pacing = gs, the number of cycles after which the ranks agree on the next cycle time.
   * 0: 1. */
  uint32_t gs_cycles;
  /* The number of tensor groups of an iteration: buckets of a plan, or groups that the other
   * coordinators learn. 0: bucket_bytes decides. */
  uint32_t num_groups;
  /* The largest total size of tensors that are reduced in one call. 0: 64 MiB. -1: tensors are
   * never fused. */
  int64_t fusion_threshold_bytes;
  /* The size of a bucket, in plans and in rounds, at most fusion_threshold_bytes. 0: 16 MiB if
   * ranks reduce on their GPUs; 1 MiB in the memory of one host; else 4 MiB or as a trial finds. */
  uint64_t bucket_bytes;
  /* The number of responses in the response cache. 0: 1,024. -1: none. */
  int64_t cache_capacity;
  /* The memory from which placed gradients are allocated. */
  uint64_t gradient_bytes;
  /* The size of a message between hosts, or ranks with collective = mpi. 0: measured when the
   * ranks connect. */
  uint64_t chunk_bytes;
  /* The number of messages that a rank receives at once from another rank. 0: measured when the
   * ranks connect. */
  uint32_t chunk_depth;
  /* The ranks abandon a plan, or learned groups, if tensors of a bucket or group are missing for
   * longer than this. Keep it below stall_report_ms, because in a plan no rank knows which rank
   * lacks which tensor. 0: 1,000. */
  uint32_t plan_patience_ms;
  /* The time after which a tensor that some rank has not submitted is reported to log. 0: 5,000.
   * -1: never. */
  int64_t stall_report_ms;
  /* The time after which a tensor that some rank has not submitted is an error. 0: 600,000. -1:
   * never. */
  int64_t stall_limit_ms;
  /* The time without a sign of life after which a rank counts as failed. 0: 4,000. */
  uint32_t silence_limit_ms;
  /* The path of a Chrome trace, to which the rank is appended: PATH.0. NULL: none. */
  const char* timeline_path;
  /* The cores of the helper thread, in the syntax of the loader's placement. NULL: any core. */
  const char* placement;
  /* Called with notes and stall reports, in the helper thread. It must neither wait for
   * operations nor close synchronizers. NULL: notes are dropped. */
  lmdbio_log log;
  /* The first argument of log. */
  void* log_context;
  /* With coordinator = hierarchical, the number of hosts that send their requests to one other
   * host. 0: 4. -1: no tree: all hosts send to rank 0. */
  int64_t tree_arity;
  /* The number of ranks of each host that share the reduction of large values between hosts. It
   * needs collective = auto, and at least this number of ranks on each host. 0: 1. */
  uint32_t host_roots;
  /* The share of an iteration that each of num_groups gets. One of "bytes", "tensors". NULL:
   * "bytes". */
  const char* group_by;
  /* The size of the last bucket of a plan, for which the program waits. The buckets before it
   * shrink towards it: a bucket has at most half of the bytes that are left, or this size. 0: a
   * quarter of a bucket if bucket_bytes is 0, too; else the size of the others. */
  uint64_t last_bucket_bytes;
  /* The GPU of this rank for tensors there: 1 + its number among those that the process sees.
   * The driver is opened only if this is set. Either all ranks have a GPU, or none has. 0: none. */
  uint32_t device;
  /* The way of an AllReduce of tensors on GPUs. One of "auto", "staged", "nccl", "mpi". NULL:
   * "auto". */
  const char* device_collective;
  /* How GPUs wait for each other when they reduce. If a GPU cannot wait in this way, all ranks
   * use host. None of them was tried on a real GPU yet. One of "auto", "host", "event", "mark".
   * NULL: "auto". */
  const char* device_order;
  /* The memory of each GPU in which its rank and the others reduce. Larger tensors are reduced
   * in several steps. 0: 32 MiB. */
  uint64_t device_buffer_bytes;
  /* The memory of the GPU from which gradients there are placed. */
  uint64_t device_gradient_bytes;
  /* The largest values that several GPUs of one host reduce in one shot: each reads the values
   * of all ranks, and writes to its own memory only. Larger values are divided among the GPUs.
   * Not measured on a real GPU yet. 0: 256 KiB. -1: none. */
  int64_t device_one_shot_bytes;
  /* The size of a slice of a large tensor in a plan. A larger tensor on the host that is alone
   * in its bucket is reduced in slices, at most 512 of them. It needs coordinator = topo or
   * caramel. 0: as caramel finds; not cut with topo. */
  uint64_t slice_bytes;
  /* The order of a plan with coordinator = caramel. One of "due", "bins", "split", "arrival".
   * NULL: "due". */
  const char* order;
  /* 1: yes; -1: no; 0: no. Sums have the same bits in every run, with any order of a plan and
   * any sizes of buckets and slices: between hosts, only algorithms whose sum of a value depends
   * neither on its place nor on a trial. Refused with collective = ring or mpi,
   * device_collective = nccl or mpi, several host_roots, order = split, and collectives of the
   * program that do not promise it. */
  int reproducible;
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

/* Makes a synchronizer for this process alone: every call works, and nothing is sent.
 * options   NULL: defaults
 * out_sync  to be closed by the caller. Also set after most failures, to a handle for
 *           lmdbio_sync_message and lmdbio_sync_close only. NULL if there was no memory for a
 *           handle
 * Errors    LMDBIO_INVALID_ARGUMENT  an unknown name, or a number out of its range
 *           LMDBIO_UNSUPPORTED       an option of a newer version is set that this version lacks;
 *                                    "mpi", which needs lmdbio_sync_open_mpi
 *           LMDBIO_NOT_FOUND         device: there is no driver of a GPU, or no such GPU
 *           LMDBIO_RESOURCE_EXHAUSTED, and those of the file timeline_path */
LMDBIO_API int lmdbio_sync_open(const lmdbio_sync_options* options, lmdbio_sync** out_sync);

/* Makes a synchronizer for all ranks that a launcher has started together, without MPI. Control
 * messages and values go over the memory of each host, and over TCP between hosts. Collective, as
 * are lmdbio_sync_shutdown and, after a shutdown, lmdbio_sync_close. Without a shutdown,
 * lmdbio_sync_close makes the operations of the other ranks fail.
 * launch  as lmdbio_open_launched
 * Errors  as lmdbio_sync_open and lmdbio_open_launched
 *         LMDBIO_INVALID_ARGUMENT  also if options differ between ranks; names both values
 *         LMDBIO_UNSUPPORTED       "mpi", which needs lmdbio_sync_open_mpi; "shm" over several
 *                                  hosts */
LMDBIO_API int lmdbio_sync_open_launched(const lmdbio_launch* launch,
                                         const lmdbio_sync_options* options,
                                         lmdbio_sync** out_sync);

/* Returns the rank of this process and the number of ranks. Any out_ may be NULL. */
LMDBIO_API int lmdbio_sync_rank(lmdbio_sync* sync, int* out_rank, int* out_rank_count);

/* Allocates memory for gradients, out of options.gradient_bytes: zero-filled, aligned to 64 bytes.
 * Tensors that are reduced in place there are not copied. All ranks make these calls with the same
 * sizes in the same order.
 * out_memory  [size_bytes] valid until the synchronizer is closed
 * Errors      LMDBIO_RESOURCE_EXHAUSTED  less than size_bytes is left */
LMDBIO_API int lmdbio_sync_place(lmdbio_sync* sync, uint64_t size_bytes, void** out_memory);

/* Allocates memory of the GPU for gradients, out of options.device_gradient_bytes: zero-filled,
 * aligned to 64 bytes. Where the GPUs of the ranks reduce, tensors that are reduced in place there
 * are not copied. All ranks make these calls with the same sizes in the same order.
 * out_address  [size_bytes] in the memory of the GPU. Valid until the synchronizer is closed; work
 *              of the program that uses it is done before
 * Errors       LMDBIO_INVALID_ARGUMENT    options.device is 0
 *              LMDBIO_RESOURCE_EXHAUSTED  less than size_bytes is left */
LMDBIO_API int lmdbio_sync_place_device(lmdbio_sync* sync, uint64_t size_bytes, void** out_address);

/* Waits until all ranks have called it and all operations are done. Collective. Nothing can be
 * submitted afterwards.
 * Errors  LMDBIO_PEER_FAILED, LMDBIO_INVALID_ARGUMENT (called before) */
LMDBIO_API int lmdbio_sync_shutdown(lmdbio_sync* sync);

/* Ends the helper thread and releases everything, placed memory too. NULL is allowed and does
 * nothing. Operations in flight fail, here and on the other ranks: call lmdbio_sync_shutdown first
 * to complete them. Waits for calls of other threads on this handle. Collective after a shutdown;
 * without one, the operations of the other ranks fail.
 * Errors  LMDBIO_INVALID_ARGUMENT  called in a callback of this synchronizer, which stays open */
LMDBIO_API int lmdbio_sync_close(lmdbio_sync* sync);

/* Returns the message of the last call of this thread on `sync` that failed; "" if none has. Never
 * NULL; the message for an invalid handle says that it is invalid. */
LMDBIO_API const char* lmdbio_sync_message(lmdbio_sync* sync);

/* Returns the errno of the system call that made the last call of this thread on `sync` fail; else
 * 0. */
LMDBIO_API int lmdbio_sync_errno(lmdbio_sync* sync);

/* --- Operations ----------------------------------------------------------------------------- */

/* The numbers never change. */
enum lmdbio_operation {
  LMDBIO_ALLREDUCE = 0,      /* output: the reduction of all ranks' inputs */
  LMDBIO_BROADCAST = 1,      /* output: the root's input */
  LMDBIO_ALLGATHER = 2,      /* result: the rows of all ranks, in the order of ranks */
  LMDBIO_ALLTOALL = 3,       /* result: the rows that each rank sent to this one */
  LMDBIO_REDUCE_SCATTER = 4, /* result: this rank's share of the rows of the reduction */
  LMDBIO_BARRIER = 5,        /* done when all ranks have submitted it */
  LMDBIO_JOIN = 6            /* this rank has no more data: until all ranks have joined it
                                contributes zeros to sums, and no rows */
};

enum lmdbio_type {
  LMDBIO_FLOAT32 = 0,
  LMDBIO_FLOAT64 = 1,
  LMDBIO_FLOAT16 = 2,  /* IEEE binary16; summed in float32 */
  LMDBIO_BFLOAT16 = 3, /* the upper half of a float32; summed in float32 */
  LMDBIO_INT32 = 4,
  LMDBIO_INT64 = 5
};

enum lmdbio_reduction {
  LMDBIO_SUM = 0, /* an average is a sum with a postscale of 1 / ranks */
  LMDBIO_MIN = 1,
  LMDBIO_MAX = 2,
  LMDBIO_PRODUCT = 3
};

/* The memory that holds a tensor. */
enum lmdbio_memory {
  LMDBIO_MEMORY_HOST = 0,
  LMDBIO_MEMORY_DEVICE = 1, /* that of the GPU of lmdbio_sync_options.device */
  LMDBIO_MEMORY_ASK = 2     /* one of both: the driver tells, if there is a GPU. It is asked through
                               a cache */
};

/* The receiver of the outcome of an operation. Called once, in the helper thread, which does
 * nothing else meanwhile. The callback may submit operations and close handles of operations, but
 * must not wait. It may be called before the call that submitted the operation has returned.
 * status   LMDBIO_OK, or as lmdbio_sync_op_wait
 * message  "", or the failure in one line; valid during the call */
typedef void (*lmdbio_sync_callback)(void* context, int status, const char* message);

/* One operation on one tensor. */
typedef struct lmdbio_sync_request { /* check-tree: large-class (an argument each) */
  size_t struct_size; /* sizeof(lmdbio_sync_request): LMDBIO_SYNC_REQUEST_INIT sets it */
  const char* name;   /* of the tensor, the same on every rank; not needed for LMDBIO_JOIN. Names
                         that begin with "lmdbio." are reserved */
  int operation;      /* enum lmdbio_operation */
  int type;           /* enum lmdbio_type */
  int reduction;      /* enum lmdbio_reduction */
  int root;           /* LMDBIO_BROADCAST: the rank that has the values */

  /* The same on every rank, except for the first dimension of ALLGATHER and ALLTOALL: the rows. */
  const int64_t* shape;   /* [dimension_count]; NULL: one dimension of `count` */
  size_t dimension_count; /* 0 with a shape: one element */
  int64_t count;          /* elements, if shape is NULL */

  /* Memory of the caller; both stay valid until the operation is done. */
  const void* input; /* not needed for BARRIER, JOIN, and BROADCAST on ranks other than the root */
  void* output;      /* of ALLREDUCE and BROADCAST; may be the input. Others return a result */

  double prescale;       /* factor for each rank's values before the reduction; 0: 1 */
  double postscale;      /* factor for the result; 0: 1 */
  const int64_t* splits; /* [ranks] ALLTOALL: how many rows go to each rank */

  lmdbio_sync_callback callback; /* NULL: none */
  void* callback_context;

  int memory;   /* enum lmdbio_memory: of input and output. Results are in memory of the host */
  void* stream; /* LMDBIO_MEMORY_DEVICE: a cudaStream_t or CUstream. When the work that is on it now
                   is done, the input has its values, and the output may be written. NULL: the
                   default stream */
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

/* Submits one operation. Does not wait.
 * request  read during the call only, except for input and output
 * out_op   to be closed by the caller
 * Errors   LMDBIO_INVALID_ARGUMENT  a tensor of this name is in flight; an invalid name, shape,
 *                                   root, split, type or operation; a tensor on a GPU without the
 *                                   option device, in other memory than `memory` says, or with a
 *                                   stream that is captured or of another GPU. Nothing has been
 *                                   submitted
 *          LMDBIO_INTERNAL          the driver of the GPU fails
 *          LMDBIO_PEER_FAILED       the synchronizer has failed already; the message says why */
LMDBIO_API int lmdbio_sync_submit(lmdbio_sync* sync, const lmdbio_sync_request* request,
                                  lmdbio_sync_op** out_op);

/* Submits the sum of `count` values over all ranks, in place, as lmdbio_sync_submit.
 * type  enum lmdbio_type */
LMDBIO_API int lmdbio_sync_allreduce(lmdbio_sync* sync, const char* name, void* values,
                                     int64_t count, int type, lmdbio_sync_op** out_op);

/* Submits several LMDBIO_ALLREDUCE as a tensor group: they become ready and are reduced together.
 * requests  [count]
 * out_ops   [count] of the caller, which closes all of them
 * Errors    as lmdbio_sync_submit; then none has been submitted */
LMDBIO_API int lmdbio_sync_submit_group(lmdbio_sync* sync,
                                        const lmdbio_sync_request* const* requests, size_t count,
                                        lmdbio_sync_op** out_ops);

/* Sets the plan of coordinator "topo" from a graph of the dependencies. Without it, the coordinator
 * learns the plan from the first iterations. Every rank passes the same graph, before its first
 * submission. Collective: waits until all ranks have called it.
 * nodes  [node_count] the request that a node submits: name, operation, type, reduction, shape,
 *        scales and the root of a BROADCAST are read. All ranks have equally many rows of an
 *        ALLGATHER. NULL: a node that only computes
 * edges  [2 * edge_count] pairs of node numbers, from 0: the second node depends on the first
 * Errors LMDBIO_INVALID_ARGUMENT  a cycle, a tensor twice, no such node; an ALLTOALL or JOIN, which
 *                                 no plan can contain; another coordinator; an operation has been
 *                                 submitted already
 *        LMDBIO_PEER_FAILED       as lmdbio_sync_op_wait */
LMDBIO_API int lmdbio_sync_set_graph(lmdbio_sync* sync, const lmdbio_sync_request* const* nodes,
                                     size_t node_count, const uint32_t* edges, size_t edge_count);

/* A graph of the program with the costs of its nodes. */
typedef struct lmdbio_sync_compute_graph {
  size_t struct_size;      /* LMDBIO_SYNC_COMPUTE_GRAPH_INIT sets it */
  const int64_t* costs_ns; /* [node_count] the least time of each node of several iterations */
  size_t node_count;       /* numbers of nodes count from 0 */
  const uint32_t* edges;   /* [2 * edge_count] pairs of nodes: the second one needs the first one */
  size_t edge_count;
  const uint32_t* gradients; /* [gradient_count] nodes that compute gradients, each once */
  size_t gradient_count;
} lmdbio_sync_compute_graph;

#ifdef __cplusplus
static inline lmdbio_sync_compute_graph lmdbio_sync_compute_graph_init() {
  lmdbio_sync_compute_graph graph = lmdbio_sync_compute_graph();
  graph.struct_size = sizeof(lmdbio_sync_compute_graph);
  return graph;
}
#define LMDBIO_SYNC_COMPUTE_GRAPH_INIT lmdbio_sync_compute_graph_init()
#else
#define LMDBIO_SYNC_COMPUTE_GRAPH_INIT \
  { .struct_size = sizeof(lmdbio_sync_compute_graph) }
#endif

/* An order of computing in which gradients are ready early. */
typedef struct lmdbio_sync_compute_order {
  const uint32_t* gradients; /* [gradient_count] positions in the gradients of the graph, in the
                                order of their completion */
  size_t gradient_count;
  const uint32_t* nodes; /* [node_count] all nodes, in an order that the graph and the new edges
                            allow */
  size_t node_count;
  const uint32_t* edges; /* [2 * edge_count] new edges, as those of the graph. With them the program
                            has no other order of its gradients */
  size_t edge_count;
} lmdbio_sync_compute_order;

/* Orders the computing of a program that owns its graph: the gradient that needs the least time of
 * computing comes first, what it needs counts as computed, and so on. All ranks should compute in
 * one order: pass the costs of one rank on all of them. Neither waits nor tells other ranks.
 * graph      read during the call only
 * out_order  valid, with all it points to, as in rule 2
 * Errors     LMDBIO_INVALID_ARGUMENT  a cycle; no such node; a gradient twice; a cost below 0, or
 *                                     all of them above 2^56 ns */
LMDBIO_API int lmdbio_sync_order_computing(lmdbio_sync* sync,
                                           const lmdbio_sync_compute_graph* graph,
                                           const lmdbio_sync_compute_order** out_order);

/* Returns whether an operation is done or has failed. Never waits.
 * out_is_done  1 or 0 */
LMDBIO_API int lmdbio_sync_op_test(lmdbio_sync_op* op, int* out_is_done);

/* Sleeps until an operation is done.
 * Errors  LMDBIO_INVALID_ARGUMENT  ranks differ in shape, type or operation; names the tensor, and
 *                                  the request of each rank. Or: called in a callback
 *         LMDBIO_PEER_FAILED       a rank has failed, left, or not submitted the tensor within the
 *                                  limit; names the tensor and the ranks. With collective
 *                                  "mpi", MPI may still write to the output: keep it until
 *                                  MPI_Finalize. A GPU may still read an input that was not ready:
 *                                  keep it until its stream is done
 *         LMDBIO_INTERNAL          the GPU or its driver fails, by the driver's name of the reason
 */
LMDBIO_API int lmdbio_sync_op_wait(lmdbio_sync_op* op);

/* Does the same as lmdbio_sync_op_wait with a time limit.
 * limit_ms  milliseconds; 0: does not sleep
 * Returns   as lmdbio_sync_op_wait; LMDBIO_TIMEOUT */
LMDBIO_API int lmdbio_sync_op_wait_within(lmdbio_sync_op* op, uint32_t limit_ms);

/* Makes work that is enqueued on `stream` later see the result. Of a tensor on a GPU the result is
 * then enqueued, and this does not wait for the GPU. Of other tensors it is done.
 * stream  a cudaStream_t or CUstream of the GPU of the tensor; NULL: the default stream
 * Errors  as lmdbio_sync_op_wait
 *         LMDBIO_INVALID_ARGUMENT  also if the stream is captured, or of another GPU */
LMDBIO_API int lmdbio_sync_op_wait_on(lmdbio_sync_op* op, void* stream);

/* Does the same as lmdbio_sync_op_wait_on with a time limit.
 * limit_ms  milliseconds; 0: does not sleep
 * Returns   as lmdbio_sync_op_wait_on; LMDBIO_TIMEOUT */
LMDBIO_API int lmdbio_sync_op_wait_on_within(lmdbio_sync_op* op, void* stream, uint32_t limit_ms);

typedef struct lmdbio_sync_result {
  const void* data;    /* ALLGATHER, ALLTOALL, REDUCE_SCATTER: rows; else NULL */
  uint64_t size_bytes; /* of data */
  const int64_t* rows; /* [part_count] the number of rows from each rank; REDUCE_SCATTER: [1] the
                          number of rows of this rank */
  size_t part_count;
  int last_joined; /* JOIN: the rank that joined last; else -1 */
} lmdbio_sync_result;

/* Returns the result of an operation that is done.
 * out_result  valid, with all it points to, until `op` is closed
 * Errors      LMDBIO_INVALID_ARGUMENT  the operation is not done, or has failed */
LMDBIO_API int lmdbio_sync_op_result(lmdbio_sync_op* op, const lmdbio_sync_result** out_result);

/* Returns the message of an operation, as lmdbio_sync_message. */
LMDBIO_API const char* lmdbio_sync_op_message(lmdbio_sync_op* op);

/* Returns the errno of an operation, as lmdbio_sync_errno. */
LMDBIO_API int lmdbio_sync_op_errno(lmdbio_sync_op* op);

/* Closes the handle of an operation; the operation continues. NULL is allowed and does nothing. */
LMDBIO_API int lmdbio_sync_op_close(lmdbio_sync_op* op);

/* --- Counters and descriptions -------------------------------------------------------------- */

/* Counts since the synchronizer was made. */
typedef struct lmdbio_sync_counters { /* check-tree: large-class (a field for each counter) */
  uint64_t cycle_count;               /* rounds of control exchanges, and buckets of plans */
  uint64_t control_message_count;     /* exchanges of this rank */
  uint64_t control_bytes;             /* bytes that this rank contributed to them */
  uint64_t collective_count;          /* calls that moved data */
  uint64_t collective_bytes;
  uint64_t tensor_count;        /* tensors that are done */
  uint64_t plan_count;          /* plans, or learned groups of an iteration, that were adopted */
  uint64_t plan_end_count;      /* the same that were abandoned */
  uint64_t thread_cpu_ns;       /* processor time of the helper thread */
  uint64_t thread_run_delay_ns; /* time in which the helper thread was ready but had no core */
  uint64_t device_tensor_count; /* tensors on a GPU whose values have passed the host */
  uint64_t device_out_bytes;    /* copied from the GPU */
  uint64_t device_in_bytes;     /* copied to the GPU */
  uint64_t device_copy_count;   /* copies, and launches that pack or unpack several tensors */
  uint64_t device_wait_ns;      /* time in which the helper thread waited for copies from the GPU */
  uint64_t device_reduced_count; /* tensors that the GPUs of the ranks have reduced, or copied
                                    between each other */
  uint64_t device_reduced_bytes; /* of them, with the gaps between tensors of a bucket */
} lmdbio_sync_counters;

/* Returns the counters of the synchronizer.
 * out_counters  valid as in rule 2 */
LMDBIO_API int lmdbio_sync_get_counters(lmdbio_sync* sync,
                                        const lmdbio_sync_counters** out_counters);

/* Returns the effective options, as one JSON object with a member for each option, by name. A
 * number is 0 if the option is -1 in lmdbio_sync_options.
 * out_text  valid until the synchronizer is closed */
LMDBIO_API int lmdbio_sync_get_options(lmdbio_sync* sync, const char** out_text);

/* Describes the configuration in lines: coordinator, pacing, ranks, cores.
 * out_text  valid as in rule 2 */
LMDBIO_API int lmdbio_sync_describe(lmdbio_sync* sync, const char** out_text);

/* Returns the last operations of this rank, oldest first, one line each, for a failure report.
 * out_text  valid as in rule 2 */
LMDBIO_API int lmdbio_sync_flight_record(lmdbio_sync* sync, const char** out_text);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_API_C_LMDBIO_SYNC_H_ */
