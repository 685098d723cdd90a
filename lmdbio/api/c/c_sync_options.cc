#include "lmdbio/api/c/c_sync_options.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lmdbio/api/c/c_struct.h"
#include "lmdbio/sync/engine/sync_option_list.h"

namespace lmdbio::api {
namespace {

using sync::Operation;

constexpr size_t kDimensionsMax = 255;

// The size of the options of version 0.1.0, which end before this field.
constexpr size_t kEarlierOptionsBytes[] = {offsetof(lmdbio_sync_options, tree_arity)};

// The size of the request of version 0.1.0, which ends before this field.
constexpr size_t kEarlierRequestBytes[] = {offsetof(lmdbio_sync_request, memory)};

// The fields of C, whose 0 or NULL stands for the default. In signed fields -1 stands for zero.

Status TakeField(std::string_view /*field*/, const char* value, std::string& to) {
  if (value != nullptr) to = value;
  return {};
}

template <std::unsigned_integral From, std::unsigned_integral To>
Status TakeField(std::string_view /*field*/, From value, To& to) {
  static_assert(sizeof(From) <= sizeof(To));
  if (value != 0) to = value;
  return {};
}

Status TakeOrNone(std::string_view field, int64_t value, int64_t most, int64_t& to) {
  if (value < -1 || value > most) {
    return BadField(field, fmt::format("{} is out of range; expected -1 to {}", value, most));
  }
  if (value != 0) to = std::max<int64_t>(value, 0);
  return {};
}

template <std::unsigned_integral To>
Status TakeField(std::string_view field, int64_t value, To& to) {
  constexpr uint64_t kMost = std::min<uint64_t>(INT64_MAX, std::numeric_limits<To>::max());
  auto number = static_cast<int64_t>(to);
  LMDBIO_TRY_VOID(TakeOrNone(field, value, kMost, number));
  to = static_cast<To>(number);
  return {};
}

template <typename Rep, typename Period>
Status TakeField(std::string_view field, int64_t value, std::chrono::duration<Rep, Period>& to) {
  using Unit = std::chrono::duration<Rep, Period>;
  // A year at most, so that sums with points in time do not overflow.
  constexpr int64_t kMost = std::chrono::duration_cast<Unit>(std::chrono::hours(24 * 365)).count();
  int64_t count = to.count();
  LMDBIO_TRY_VOID(TakeOrNone(field, value, kMost, count));
  to = Unit(count);
  return {};
}

Status TakeFields(const lmdbio_sync_options& from, sync::SyncOptions& to) {
  // Begin generated TakeFields: scripts/generate_options.py, from api/options.toml.
  LMDBIO_TRY_VOID(TakeField("options.coordinator", from.coordinator, to.coordinator));
  LMDBIO_TRY_VOID(TakeField("options.pacing", from.pacing, to.pacing));
  LMDBIO_TRY_VOID(TakeField("options.collective", from.collective, to.collective));
  LMDBIO_TRY_VOID(TakeField("options.cycle_time_us", from.cycle_time_us, to.cycle_time));
  LMDBIO_TRY_VOID(TakeField("options.gs_cycles", from.gs_cycles, to.gs_cycles));
  LMDBIO_TRY_VOID(TakeField("options.num_groups", from.num_groups, to.num_groups));
  LMDBIO_TRY_VOID(TakeField("options.fusion_threshold_bytes", from.fusion_threshold_bytes,
                            to.fusion_threshold_bytes));
  LMDBIO_TRY_VOID(TakeField("options.bucket_bytes", from.bucket_bytes, to.bucket_bytes));
  LMDBIO_TRY_VOID(TakeField("options.cache_capacity", from.cache_capacity, to.cache_capacity));
  LMDBIO_TRY_VOID(TakeField("options.gradient_bytes", from.gradient_bytes, to.gradient_bytes));
  LMDBIO_TRY_VOID(TakeField("options.chunk_bytes", from.chunk_bytes, to.chunk_bytes));
  LMDBIO_TRY_VOID(TakeField("options.chunk_depth", from.chunk_depth, to.chunk_depth));
  LMDBIO_TRY_VOID(TakeField("options.plan_patience_ms", from.plan_patience_ms, to.plan_patience));
  LMDBIO_TRY_VOID(TakeField("options.stall_report_ms", from.stall_report_ms, to.stall_report));
  LMDBIO_TRY_VOID(TakeField("options.stall_limit_ms", from.stall_limit_ms, to.stall_limit));
  LMDBIO_TRY_VOID(TakeField("options.silence_limit_ms", from.silence_limit_ms, to.silence_limit));
  LMDBIO_TRY_VOID(TakeField("options.timeline_path", from.timeline_path, to.timeline_path));
  LMDBIO_TRY_VOID(TakeField("options.placement", from.placement, to.placement));
  LMDBIO_TRY_VOID(TakeField("options.tree_arity", from.tree_arity, to.tree_arity));
  LMDBIO_TRY_VOID(TakeField("options.host_roots", from.host_roots, to.host_roots));
  LMDBIO_TRY_VOID(TakeField("options.group_by", from.group_by, to.group_by));
  LMDBIO_TRY_VOID(
      TakeField("options.last_bucket_bytes", from.last_bucket_bytes, to.last_bucket_bytes));
  LMDBIO_TRY_VOID(TakeField("options.device", from.device, to.device));
  LMDBIO_TRY_VOID(
      TakeField("options.device_collective", from.device_collective, to.device_collective));
  LMDBIO_TRY_VOID(TakeField("options.device_order", from.device_order, to.device_order));
  LMDBIO_TRY_VOID(
      TakeField("options.device_buffer_bytes", from.device_buffer_bytes, to.device_buffer_bytes));
  LMDBIO_TRY_VOID(TakeField("options.device_gradient_bytes", from.device_gradient_bytes,
                            to.device_gradient_bytes));
  LMDBIO_TRY_VOID(TakeField("options.device_one_shot_bytes", from.device_one_shot_bytes,
                            to.device_one_shot_bytes));
  LMDBIO_TRY_VOID(TakeField("options.slice_bytes", from.slice_bytes, to.slice_bytes));
  LMDBIO_TRY_VOID(TakeField("options.order", from.order, to.order));
  LMDBIO_TRY_VOID(TakeField("options.reproducible", from.reproducible, to.reproducible));
  // End generated TakeFields
  return {};
}

Status TakeShape(const lmdbio_sync_request& from, sync::Request& to) {
  if (to.operation == Operation::kBarrier || to.operation == Operation::kJoin) return {};
  if (from.shape == nullptr) {
    if (from.dimension_count > 0) return BadField("request.shape", "is NULL");
    // Without a shape the tensor has one dimension.
    to.shape = {from.count};
    return {};
  }
  if (from.dimension_count > kDimensionsMax) {
    return BadField("request.dimension_count",
                    fmt::format("{} is out of range; expected at most {}", from.dimension_count,
                                kDimensionsMax));
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
  // Each list is in the order of its enum in lmdbio_sync.h. The assertion below notices a new
  // constant.
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

// A barrier and a join have no memory.
Status TakeMemory(const lmdbio_sync_request& from, const MemoryAsker& ask, sync::Submission& to) {
  if (from.memory < LMDBIO_MEMORY_HOST || from.memory > LMDBIO_MEMORY_ASK) {
    return BadField("request.memory", fmt::format("{} is out of range; expected 0 to {}",
                                                  from.memory, +LMDBIO_MEMORY_ASK));
  }
  const Operation operation = to.request.operation;
  const bool has_memory = operation != Operation::kBarrier && operation != Operation::kJoin;
  bool is_on_device = from.memory == LMDBIO_MEMORY_DEVICE && has_memory;
  const void* const pointer = from.input != nullptr ? from.input : from.output;
  if (from.memory == LMDBIO_MEMORY_ASK && has_memory && pointer != nullptr) {
    LMDBIO_TRY(const sync::MemoryKind kind, ask(pointer));
    is_on_device = kind == sync::MemoryKind::kDevice;
  }
  if (!is_on_device) {
    to.input = static_cast<const std::byte*>(from.input);
    to.output = static_cast<std::byte*>(from.output);
    return {};
  }
  to.request.memory = sync::MemoryKind::kDevice;
  to.on_device = {{std::bit_cast<uint64_t>(from.input)},
                  {std::bit_cast<uint64_t>(from.output)},
                  static_cast<device::StreamHandle>(from.stream)};
  return {};
}

}  // namespace

std::string SyncChoice::TransportWords() const {
  return has_mpi_transport ? "transport mpi" : "transport own";
}

std::string SyncChoice::Json() const {
  nlohmann::ordered_json out;
  sync::VisitSyncOptions(options, [&](const sync::SyncOptionInfo& info, const auto& value) {
    if constexpr (requires { value.count(); }) {
      out[info.name] = value.count();
    } else {
      out[info.name] = value;
    }
    // SyncOptions has no transport; the table has it here.
    if (info.name == "collective") out["transport"] = has_mpi_transport ? "mpi" : "own";
  });
  // A path may hold any bytes; those that are not UTF-8 are replaced.
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<SyncChoice> SyncChoiceOf(const lmdbio_sync_options* options) {
  LMDBIO_TRY(const lmdbio_sync_options from,
             CompleteStruct("options", "LMDBIO_SYNC_OPTIONS_INIT", options, kEarlierOptionsBytes));
  SyncChoice choice;
  choice.log = from.log;
  choice.log_context = from.log_context;
  sync::SyncOptions& to = choice.options;
  LMDBIO_TRY_VOID(TakeFields(from, to));
  // The transport is no option of the core library, because only liblmdbio_mpi has the one over
  // MPI.
  const std::string_view transport = from.transport == nullptr ? "own" : from.transport;
  if (transport != "own" && transport != "mpi") {
    return BadField("options.transport",
                    fmt::format("'{}' is unknown; expected own or mpi", transport));
  }
  choice.has_mpi_transport = transport == "mpi";

  // Names and ranges are checked by the library, for all languages alike.
  if (Status checked = to.Check(); !checked) {
    return Fail(std::move(checked).error().Within("options"));
  }
  return choice;
}

Result<sync::Submission> SubmissionOf(const lmdbio_sync_request* request, int rank_count,
                                      const MemoryAsker& ask) {
  if (request == nullptr) return Fail(ErrorCode::kInvalidArgument, "the request is NULL");
  LMDBIO_TRY(const lmdbio_sync_request from,
             CompleteStruct("request", "LMDBIO_SYNC_REQUEST_INIT", request, kEarlierRequestBytes));
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
    // The caller's array has one number for each rank.
    to.splits.assign(from.splits, from.splits + rank_count);
  }
  LMDBIO_TRY_VOID(TakeMemory(from, ask, submission));
  return submission;
}

}  // namespace lmdbio::api
