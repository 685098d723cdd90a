#include "lmdbio/api/c/c_sync_options.h"

#include <chrono>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lmdbio/api/c/c_struct.h"

namespace lmdbio::api {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using sync::Operation;

constexpr size_t kDimensionsMax = 255;

// A number whose 0 stands for the default and whose -1 stands for zero.
template <typename T>
Status TakeOrNone(std::string_view field, int64_t value, int64_t most, T& to) {
  if (value < -1 || value > most) {
    return BadField(field, fmt::format("{} is out of range; expected -1 to {}", value, most));
  }
  if (value != 0) to = static_cast<T>(value < 0 ? 0 : value);
  return {};
}

template <typename Unit>
Status TakeTime(std::string_view field, int64_t value, Unit& to) {
  constexpr int64_t kMost = std::chrono::duration_cast<Unit>(std::chrono::hours(24 * 365)).count();
  int64_t count = to.count();
  LMDBIO_TRY_VOID(TakeOrNone(field, value, kMost, count));
  to = Unit(count);
  return {};
}

Status TakeLimits(const lmdbio_sync_options& from, sync::SyncOptions& to) {
  LMDBIO_TRY_VOID(TakeTime("options.cycle_time_us", from.cycle_time_us, to.cycle_time));
  LMDBIO_TRY_VOID(TakeTime("options.stall_report_ms", from.stall_report_ms, to.stall_report));
  LMDBIO_TRY_VOID(TakeTime("options.stall_limit_ms", from.stall_limit_ms, to.stall_limit));
  LMDBIO_TRY_VOID(TakeTime("options.plan_patience_ms", from.plan_patience_ms, to.plan_patience));
  LMDBIO_TRY_VOID(TakeTime("options.silence_limit_ms", from.silence_limit_ms, to.silence_limit));
  LMDBIO_TRY_VOID(TakeOrNone("options.fusion_threshold_bytes", from.fusion_threshold_bytes,
                             INT64_MAX, to.fusion_threshold_bytes));
  return TakeOrNone("options.cache_capacity", from.cache_capacity, UINT32_MAX, to.cache_capacity);
}

Status TakeShape(const lmdbio_sync_request& from, sync::Request& to) {
  if (to.operation == Operation::kBarrier || to.operation == Operation::kJoin) return {};
  if (from.shape == nullptr) {
    if (from.dimension_count > 0) return BadField("request.shape", "is NULL");
    to.shape = {from.count};
    return {};
  }
  if (from.dimension_count > kDimensionsMax) {
    return BadField("request.dimension_count",
                    fmt::format("{} is more than {}", from.dimension_count, kDimensionsMax));
  }
  to.shape.assign(from.shape, from.shape + from.dimension_count);
  return {};
}

Status TakeName(const lmdbio_sync_request& from, sync::Request& to) {
  if (to.operation == Operation::kJoin) return {};  // a join needs no name
  if (from.name == nullptr) return BadField("request.name", "is NULL");
  to.name = from.name;
  return {};
}

Status TakeKinds(const lmdbio_sync_request& from, sync::Request& to) {
  using sync::DataType;
  using sync::ReduceOp;
  constexpr Operation kOperations[] = {
      Operation::kAllReduce,     Operation::kBroadcast, Operation::kAllGather, Operation::kAllToAll,
      Operation::kReduceScatter, Operation::kBarrier,   Operation::kJoin};
  constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                 DataType::kBFloat16, DataType::kInt32,   DataType::kInt64};
  constexpr ReduceOp kReductions[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                      ReduceOp::kProduct};
  static_assert(LMDBIO_JOIN == 6 && LMDBIO_INT64 == 5 && LMDBIO_PRODUCT == 3);
  LMDBIO_TRY_VOID(Choose("request.operation", from.operation, kOperations, to.operation));
  LMDBIO_TRY_VOID(Choose("request.type", from.type, kTypes, to.type));
  return Choose("request.reduction", from.reduction, kReductions, to.reduce_op);
}

}  // namespace

std::string SyncChoice::TransportWords() const {
  return has_mpi_transport ? "transport mpi" : "transport own";
}

std::string SyncChoice::Json() const {
  const nlohmann::ordered_json out = {
      {"coordinator", options.coordinator},
      {"pacing", options.pacing},
      {"collective", options.collective},
      {"transport", has_mpi_transport ? "mpi" : "own"},
      {"cycle_time_us", options.cycle_time.count()},
      {"gs_cycles", options.gs_cycles},
      {"num_groups", options.num_groups},
      {"fusion_threshold_bytes", options.fusion_threshold_bytes},
      {"bucket_bytes", options.bucket_bytes},
      {"cache_capacity", options.cache_capacity},
      {"gradient_bytes", options.gradient_bytes},
      {"chunk_bytes", options.chunk_bytes},
      {"chunk_depth", options.chunk_depth},
      {"plan_patience_ms", options.plan_patience.count()},
      {"stall_report_ms", options.stall_report.count()},
      {"stall_limit_ms", options.stall_limit.count()},
      {"silence_limit_ms", options.silence_limit.count()},
      {"timeline_path", options.timeline_path},
      {"placement", options.placement},
  };
  // A path may hold any bytes; those that are not UTF-8 are replaced.
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<SyncChoice> SyncChoiceOf(const lmdbio_sync_options* options) {
  LMDBIO_TRY(const lmdbio_sync_options from,
             CompleteStruct("options", "LMDBIO_SYNC_OPTIONS_INIT", options));
  SyncChoice choice;
  choice.log = from.log;
  choice.log_context = from.log_context;
  sync::SyncOptions& to = choice.options;
  if (from.coordinator != nullptr) to.coordinator = from.coordinator;
  if (from.pacing != nullptr) to.pacing = from.pacing;
  if (from.collective != nullptr) to.collective = from.collective;
  const std::string_view transport = from.transport == nullptr ? "own" : from.transport;
  if (transport != "own" && transport != "mpi") {
    return BadField("options.transport",
                    fmt::format("'{}' is not a known name; it can be own, mpi", transport));
  }
  choice.has_mpi_transport = transport == "mpi";
  LMDBIO_TRY_VOID(TakeLimits(from, to));
  Take(from.gs_cycles, to.gs_cycles);
  to.num_groups = from.num_groups;
  to.bucket_bytes = from.bucket_bytes;
  to.gradient_bytes = from.gradient_bytes;
  to.chunk_bytes = from.chunk_bytes;
  to.chunk_depth = from.chunk_depth;
  if (from.timeline_path != nullptr) to.timeline_path = from.timeline_path;
  if (from.placement != nullptr) to.placement = from.placement;
  if (Status checked = to.Check(); !checked) {
    return Fail(std::move(checked).error().Within("options"));
  }
  return choice;
}

Result<sync::Submission> SubmissionOf(const lmdbio_sync_request* request, int rank_count) {
  if (request == nullptr) return Fail(ErrorCode::kInvalidArgument, "the request is NULL");
  LMDBIO_TRY(const lmdbio_sync_request from,
             CompleteStruct("request", "LMDBIO_SYNC_REQUEST_INIT", request));
  sync::Submission submission;
  sync::Request& to = submission.request;
  LMDBIO_TRY_VOID(TakeKinds(from, to));
  LMDBIO_TRY_VOID(TakeName(from, to));
  LMDBIO_TRY_VOID(TakeShape(from, to));
  Take(from.prescale, to.prescale);
  Take(from.postscale, to.postscale);
  to.root = from.root;
  if (to.operation == Operation::kAllToAll) {
    if (from.splits == nullptr) return BadField("request.splits", "is NULL");
    to.splits.assign(from.splits, from.splits + rank_count);
  }
  submission.input = static_cast<const std::byte*>(from.input);
  submission.output = static_cast<std::byte*>(from.output);
  return submission;
}

}  // namespace lmdbio::api
