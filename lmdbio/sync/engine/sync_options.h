// lmdbio/sync/engine/sync_options.h - the options of a Synchronizer.
#ifndef LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_
#define LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// The C API, the programs and the documents use the same names. All values are the same on every
// rank, except timeline_path and placement.
struct SyncOptions {                 // check-tree: large-class (a field for each option)
  std::string coordinator = "topo";  // "horovod", "cache", "hierarchical", "topo"

  std::string pacing = "event";                // "cycle", "gs", "nbcs", "event"
  std::chrono::microseconds cycle_time{1000};  // of "cycle", "gs", "nbcs"; >= 0
  uint32_t gs_cycles = 1;                      // of "gs": cycles between two agreements; > 0

  // Of a fusion buffer; 0: no fusion; <= 2^44.
  uint64_t fusion_threshold_bytes = uint64_t{64} << 20;
  // Of the memory for Synchronizer::Place; <= 2^44.
  uint64_t gradient_bytes = 0;
  // Of a bucket of a plan, within the fusion threshold; 0: Collectives::ample_bytes; <= 2^44.
  uint64_t bucket_bytes = 0;
  // > 0: a plan has this many buckets, and neither limit above counts.
  uint32_t num_groups = 0;
  uint32_t cache_capacity = 1024;  // responses; 0: no cache

  // "auto", or one algorithm for all sizes: "shm", "ring", "halving", "direct", "mpi".
  std::string collective = "auto";
  uint64_t chunk_bytes = 0;  // of messages; 0: measured with "auto", else 256 KiB
  uint32_t chunk_depth = 0;  // chunks in flight; 0: 4

  // A rank abandons a plan if a bucket lacks tensors for longer; > 0. Keep it below stall_report,
  // because in a plan no rank knows which rank lacks which tensor.
  std::chrono::milliseconds plan_patience{1000};
  // A tensor that some rank does not submit is reported after stall_report, and fails the job after
  // stall_limit; 0: never.
  std::chrono::milliseconds stall_report{5000};
  std::chrono::milliseconds stall_limit{600'000};
  // A rank without a sign of life has failed after this time; > 0.
  std::chrono::milliseconds silence_limit{4000};

  // These may differ between ranks.
  std::string timeline_path;  // "": none; else a Chrome trace of this rank is written to PATH.rank
  std::string placement;      // of threads on cores, see base/placement.h; "": anywhere

  // Errors: kInvalidArgument  an unknown name, or a number out of range; names the option and value
  Status Check() const;

  // The options that must be the same on every rank, as text.
  std::string CommonWords() const;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_
