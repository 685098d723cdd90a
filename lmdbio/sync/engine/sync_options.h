// lmdbio/sync/engine/sync_options.h - the options of a Synchronizer.
#ifndef LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_
#define LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// Times have their unit in the type, so their names have none; 0 stands where C and Python have -1.
struct SyncOptions {  // check-tree: large-class (a field for each option)
  // Begin generated SyncOptions: scripts/generate_options.py, from api/options.toml.
  // --- Order of operations
  // The algorithm that decides the order of the operations. One of "topo", "caramel", "cache",
  // "horovod", "hierarchical".
  std::string coordinator = "topo";
  // The time at which a rank begins a round. One of "event", "cycle", "gs", "nbcs".
  std::string pacing = "event";
  // The cycle, with pacing = cycle, gs and nbcs. 0: no pause.
  std::chrono::microseconds cycle_time{1000};
  // With pacing = gs, the number of cycles after which the ranks agree on the next cycle time. At
  // least 1.
  uint32_t gs_cycles = 1;
  // The number of responses in the response cache. 0: none.
  uint32_t cache_capacity = 1024;
  // With coordinator = hierarchical, the number of hosts that send their requests to one other
  // host. 0: no tree: all hosts send to rank 0.
  uint32_t tree_arity = 4;

  // --- Data
  // The algorithm that reduces values. One of "auto", "shm", "ring", "halving", "direct", "mpi".
  std::string collective = "auto";
  // The largest total size of tensors that are reduced in one call. 0: tensors are never fused.
  uint64_t fusion_threshold_bytes = uint64_t{64} << 20;
  // The memory from which placed gradients are allocated.
  uint64_t gradient_bytes = 0;
  // The size of a message between hosts, or ranks with collective = mpi. 0: measured when the ranks
  // connect.
  uint64_t chunk_bytes = 0;
  // The number of messages that a rank receives at once from another rank. 0: measured when the
  // ranks connect.
  uint32_t chunk_depth = 0;
  // The cores of the helper thread, in the syntax of the loader's placement. "": any core. May
  // differ between ranks.
  std::string placement;
  // The number of ranks of each host that share the reduction of large values between hosts. It
  // needs collective = auto, and at least this number of ranks on each host. At least 1.
  uint32_t host_roots = 1;
  // The GPU of this rank for tensors there: 1 + its number among those that the process sees. The
  // driver is opened only if this is set. Either all ranks have a GPU, or none has. 0: none. May
  // differ between ranks.
  uint32_t device = 0;
  // The way of an AllReduce of tensors on GPUs. One of "auto", "staged", "nccl", "mpi".
  std::string device_collective = "auto";
  // How GPUs wait for each other when they reduce. If a GPU cannot wait in this way, all ranks use
  // host. None of them was tried on a real GPU yet. One of "auto", "host", "event", "mark".
  std::string device_order = "auto";
  // The memory of each GPU in which its rank and the others reduce. Larger tensors are reduced in
  // several steps. 0: 32 MiB.
  uint64_t device_buffer_bytes = 0;
  // The memory of the GPU from which gradients there are placed.
  uint64_t device_gradient_bytes = 0;
  // The largest values that several GPUs of one host reduce in one shot: each reads the values of
  // all ranks, and writes to its own memory only. Larger values are divided among the GPUs. Not
  // measured on a real GPU yet. 0: none.
  uint64_t device_one_shot_bytes = 262144;
  // Sums have the same bits in every run, with any order of a plan and any sizes of buckets and
  // slices: between hosts, only algorithms whose sum of a value depends neither on its place nor on
  // a trial. Refused with collective = ring or mpi, device_collective = nccl or mpi, several
  // host_roots, order = split, and collectives of the program that do not promise it.
  bool reproducible = false;

  // --- Plans
  // The number of tensor groups of an iteration: buckets of a plan, or groups that the other
  // coordinators learn. 0: bucket_bytes decides.
  uint32_t num_groups = 0;
  // The size of a bucket, in plans and in rounds, at most fusion_threshold_bytes. 0: 16 MiB if
  // ranks reduce on their GPUs; 1 MiB in the memory of one host; else 4 MiB or as a trial finds.
  uint64_t bucket_bytes = 0;
  // The ranks abandon a plan, or learned groups, if tensors of a bucket or group are missing for
  // longer than this. Keep it below stall_report_ms, because in a plan no rank knows which rank
  // lacks which tensor. At least 1.
  std::chrono::milliseconds plan_patience{1000};
  // The share of an iteration that each of num_groups gets. One of "bytes", "tensors".
  std::string group_by = "bytes";
  // The size of the last bucket of a plan, for which the program waits. The buckets before it
  // shrink towards it: a bucket has at most half of the bytes that are left, or this size. 0: a
  // quarter of a bucket if bucket_bytes is 0, too; else the size of the others.
  uint64_t last_bucket_bytes = 0;
  // The size of a slice of a large tensor in a plan. A larger tensor on the host that is alone in
  // its bucket is reduced in slices, at most 512 of them. It needs coordinator = topo or caramel.
  // 0: as caramel finds; not cut with topo.
  uint64_t slice_bytes = 0;
  // The order of a plan with coordinator = caramel. One of "due", "bins", "split", "arrival".
  std::string order = "due";

  // --- Failures
  // The time after which a tensor that some rank has not submitted is reported to log. 0: never.
  std::chrono::milliseconds stall_report{5000};
  // The time after which a tensor that some rank has not submitted is an error. 0: never.
  std::chrono::milliseconds stall_limit{600000};
  // The time without a sign of life after which a rank counts as failed. At least 1.
  std::chrono::milliseconds silence_limit{4000};
  // The path of a Chrome trace, to which the rank is appended: PATH.0. "": none. May differ between
  // ranks.
  std::string timeline_path;
  // End generated SyncOptions

  // Errors: kInvalidArgument  an unknown name, or a number out of range; options that exclude each
  //                           other; names options and values
  Status Check() const;

  // Whether the ranks learn a plan, and exchange no control messages while they follow it.
  bool follows_plans() const { return coordinator == "topo" || coordinator == "caramel"; }

  // The options that must be the same on every rank, as text.
  std::string CommonWords() const;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_
