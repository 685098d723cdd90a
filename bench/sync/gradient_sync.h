// bench/sync/gradient_sync.h - one interface for everything that adds up gradients of ranks.
#ifndef LMDBIO_BENCH_SYNC_GRADIENT_SYNC_H_
#define LMDBIO_BENCH_SYNC_GRADIENT_SYNC_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "bench/sync/layers/layer_network.h"
#include "bench/sync/report/plan_figures.h"
#include "bench/sync/wire/paced_wire.h"
#include "bench/sync/workload.h"
#include "lmdbio/base/check.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::sync {
class Collectives;
}

namespace lmdbio::bench {

// The traffic of one rank since the creation of its GradientSync.
struct Traffic {
  uint64_t control_messages = 0;  // exchanges that moved no gradients
  uint64_t control_bytes = 0;
  uint64_t collectives = 0;  // calls that moved gradients
  uint64_t collective_bytes = 0;
  // bytes -> number of calls of this size; of all calls, or of the last ones that the flight record
  // holds; empty: unknown
  std::map<uint64_t, uint64_t> sizes;
};

// All gradients of an iteration, added up over all ranks in place.
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  // A gradient is ready. WaitAll returns an error. Threads: any
  virtual void Submit(uint32_t tensor) = 0;

  // Waits for one gradient. Returns whether it was missing. WaitAll returns an error.
  // Requires: Variant::is_windowed; the gradient was submitted, and not awaited
  // Threads: any, one for each tensor
  virtual bool Wait([[maybe_unused]] uint32_t tensor) {
    LMDBIO_CHECK(false);
    return false;
  }

  // Waits for all gradients of the iteration that were not awaited. Requires: all of them were
  // submitted
  // Errors: the first error of the iteration
  virtual Status WaitAll() = 0;

  // Collective: the orderly end.
  virtual Status Finish() { return {}; }

  // Threads: the one that calls WaitAll.
  virtual Traffic traffic() = 0;
  virtual std::vector<std::string> Description() const { return {}; }
  // Of a plan by time; empty without one.
  virtual std::vector<TransferFigure> UntriedSizes() const { return {}; }
};

// Settings of all variants, from the command line.
struct SyncSettings {
  std::chrono::microseconds cycle_time{1000};
  uint64_t fusion_bytes = uint64_t{64} << 20;
  uint64_t bucket_bytes = 0;
  uint64_t gloo_bucket_bytes = uint64_t{25} << 20;
  uint32_t gs_cycles = 1;
  std::string placement = "scp";  // of variants that are pinned; as SyncOptions
  std::optional<WirePace> wire;   // of the gradients of lmdbio variants; none: as users have it
};

// The arguments of a variant. All of them outlive it.
struct SyncContext {
  ranks::Group& group;
  MPI_Comm communicator = MPI_COMM_NULL;
  const LayerNetwork& network;
  Gradients& gradients;
  SyncSettings settings;
  InputWindow* window = nullptr;        // learns when a transfer begins; null: nobody asks
  std::string_view run_kind = "train";  // for the name of a timeline
};

// A way to reduce the gradients, by its name:
//   none          computes only
//   mpi           MPI_Allreduce for each tensor after the backward pass
//   mpi-fused     one MPI_Allreduce of everything after the backward pass
//   gloo          Gloo's ring allreduce for each full bucket, in a thread of its own
//   lmdbio:COORDINATOR[+ADDITION...][:PACING[:COLLECTIVE[:TRANSPORT]]]
//                 the Synchronizer; "graph" is "topo" with the network's graph. ADDITION is
//                 "scp", "trace", "place", "window", "bucket=BYTES", "cycle=MICROSECONDS",
//                 "gs=CYCLES", "groups=COUNT", "by=bytes" or "by=tensors".
//                 TRANSPORT is of control messages: "mpi", MPI's blocking calls, or "own"
struct Variant {
  std::string name;
  bool has_helper = false;  // a thread that may disturb computing
  bool is_pinned = false;   // "+scp": its threads run on cores of their own
  // "+window": a layer waits for its own gradients, before its next forward work
  bool is_windowed = false;
  bool has_wire = false;  // its gradients may travel by SyncSettings::wire

  bool is_none() const { return name == "none"; }
};

// Errors: kInvalidArgument  unknown name
Result<Variant> ParseVariant(const std::string& name);
// "" or the reason why this program lacks the variant: the library that it was built without.
std::string WhyAbsent(const Variant& variant);

// Collective. Requires: not `none`, not absent
// Errors: those of the variant
Result<std::unique_ptr<GradientSync>> MakeSync(const Variant& variant, const SyncContext& context);

// The functions that MakeSync calls.
std::unique_ptr<GradientSync> MakeMpiSync(const SyncContext& context);
std::unique_ptr<GradientSync> MakeFusedMpiSync(const SyncContext& context);
Result<std::unique_ptr<GradientSync>> MakeGlooSync(const SyncContext& context);
Result<Variant> ParseSynchronizerName(const std::string& name);
Result<std::unique_ptr<GradientSync>> MakeSynchronizerSync(std::string_view name,
                                                           const SyncContext& context);

// The same collectives, which report to the window when a transfer of gradients begins, and to the
// record what it took.
// window  must outlive the result
// record  the same; null: none
std::unique_ptr<sync::Collectives> WatchTransfers(std::unique_ptr<sync::Collectives> inner,
                                                  InputWindow& window,
                                                  TransferRecord* record = nullptr);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_GRADIENT_SYNC_H_
