// lmdbio/sync/engine/sync_options.h - how gradients are synchronised.
#ifndef LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_
#define LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// The names are the same here, in C, in options of programs and in documents. All values are the
// same on every rank, but for timeline_path and placement.
struct SyncOptions {
  std::string coordinator = "topo";            // "horovod", "cache", "hierarchical", "topo"
  std::string pacing = "event";                // "cycle", "gs", "nbcs", "event"
  std::chrono::microseconds cycle_time{1000};  // of "cycle", "gs", "nbcs"; >= 0
  uint32_t gs_cycles = 1;  // "gs": ranks agree on their sleep every so many; > 0

  uint64_t fusion_threshold_bytes = uint64_t{64}
                                    << 20;  // of a fusion buffer; 0: nothing is fused; <= 2^44
  uint64_t gradient_bytes = 0;  // memory that Synchronizer::PlanPosition gives out; <= 2^44
  uint64_t bucket_bytes = 0;  // of a bucket of a plan, within the threshold; 0: as the collectives
                              // like it best (Collectives::ample_bytes); <= 2^44
  uint32_t num_groups = 0;    // > 0: a plan of this many buckets, in place of both
  uint32_t cache_capacity = 1024;  // responses; 0: no cache

  // "auto", or one way for all sizes: "shm", "ring", "halving", "direct", "mpi"
  std::string collective = "auto";
  uint64_t chunk_bytes = 0;  // of messages; 0: measured with "auto", else 256 KiB
  uint32_t chunk_depth = 0;  // chunks in flight; 0: 4

  std::chrono::milliseconds plan_patience{
      1000};  // a bucket that misses tensors for longer than this
              // ends its plan; > 0. Below stall_report: in a plan
              // nobody knows which rank lacks what
  std::chrono::milliseconds stall_report{5000};  // a tensor that some rank has not submitted for so
                                                 // long is reported; 0: never
  std::chrono::milliseconds stall_limit{600'000};  // and for so long is an error; 0: never
  std::chrono::milliseconds silence_limit{4000};   // a rank without a sign of life for so long has
                                                   // failed; > 0

  // These may differ between ranks.
  std::string timeline_path;  // "" or: a Chrome trace of this rank is written to PATH.rank
  std::string placement;      // of threads on cores, see base/placement.h; "": anywhere

  // Errors: kInvalidArgument  a name that there is not, or a number out of its range; names both
  Status Check() const;

  // What all ranks must have alike, in words.
  std::string CommonWords() const;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SYNC_OPTIONS_H_
