#include "lmdbio/sync/engine/sync_options.h"

#include <initializer_list>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmdbio::sync {
namespace {

Status CheckName(std::string_view option, const std::string& name,
                 std::initializer_list<std::string_view> known) {
  for (const std::string_view one : known) {
    if (name == one) return {};
  }
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' is unknown; expected one of {}",
                                                       option, name, fmt::join(known, ", ")));
}

Status CheckTime(std::string_view option, std::chrono::microseconds time,
                 std::chrono::microseconds least) {
  if (time >= least && time <= std::chrono::hours(24 * 365)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: {} us is out of range; expected {} us to one year", option,
                          time.count(), least.count()));
}

// More memory than any host has. Sums of several such sizes still fit into 64 bits.
constexpr uint64_t kBytesMax = uint64_t{1} << 44;

Status CheckBytes(std::string_view option, uint64_t bytes) {
  if (bytes <= kBytesMax) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: {} bytes are out of range; expected at most {}", option, bytes, kBytesMax));
}

}  // namespace

Status SyncOptions::Check() const {
  using std::chrono::milliseconds;
  LMDBIO_TRY_VOID(
      CheckName("coordinator", coordinator, {"horovod", "cache", "hierarchical", "topo"}));
  LMDBIO_TRY_VOID(CheckName("pacing", pacing, {"cycle", "gs", "nbcs", "event"}));
  LMDBIO_TRY_VOID(
      CheckName("collective", collective, {"auto", "shm", "ring", "halving", "direct", "mpi"}));
  LMDBIO_TRY_VOID(CheckTime("cycle_time", cycle_time, milliseconds(0)));
  LMDBIO_TRY_VOID(CheckTime("plan_patience", plan_patience, milliseconds(1)));
  LMDBIO_TRY_VOID(CheckTime("stall_report", stall_report, milliseconds(0)));
  LMDBIO_TRY_VOID(CheckTime("stall_limit", stall_limit, milliseconds(0)));
  LMDBIO_TRY_VOID(CheckTime("silence_limit", silence_limit, milliseconds(1)));
  LMDBIO_TRY_VOID(CheckBytes("fusion_threshold_bytes", fusion_threshold_bytes));
  LMDBIO_TRY_VOID(CheckBytes("bucket_bytes", bucket_bytes));
  LMDBIO_TRY_VOID(CheckBytes("gradient_bytes", gradient_bytes));
  if (gs_cycles == 0)
    return Fail(ErrorCode::kInvalidArgument, "gs_cycles: 0 is out of range; expected 1 or more");
  return {};
}

std::string SyncOptions::CommonWords() const {
  return fmt::format(
      "coordinator {}, pacing {}, collective {}, cycle_time_us {}, gs_cycles {}, "
      "fusion_threshold_bytes {}, bucket_bytes {}, num_groups {}, cache_capacity {}, "
      "gradient_bytes {}, chunk_bytes {}, chunk_depth {}, plan_patience_ms {}, "
      "stall_report_ms {}, stall_limit_ms {}, silence_limit_ms {}",
      coordinator, pacing, collective, cycle_time.count(), gs_cycles, fusion_threshold_bytes,
      bucket_bytes, num_groups, cache_capacity, gradient_bytes, chunk_bytes, chunk_depth,
      plan_patience.count(), stall_report.count(), stall_limit.count(), silence_limit.count());
}

}  // namespace lmdbio::sync
