// As lmdbio.cc, but several threads may use a handle at once. Calls take no turns. A shared lock
// keeps the synchronizer open during a call, and closing takes the same lock exclusively. Messages
// and texts are kept for each thread, so no thread loses a result to another.
#include "lmdbio/api/c/lmdbio_sync.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/api/c/c_struct.h"
#include "lmdbio/api/c/sync_handles.h"
#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/schedule/compute_order.h"

using namespace lmdbio;       // NOLINT: the whole file translates between C and C++
using namespace lmdbio::api;  // NOLINT

namespace {

// The number of the synchronizer whose callback this thread runs; 0: none.
thread_local std::uintptr_t calling_back = 0;

Status OpenSync(SyncHandle& handle, const lmdbio_sync_options* c_options,
                const SyncPartsMaker& maker) {
  Result<SyncChoice> choice = SyncChoiceOf(c_options);
  if (choice && choice->has_mpi() && !maker) {
    choice = Fail(ErrorCode::kUnsupported,
                  fmt::format("options.{}: 'mpi' needs a communicator; call lmdbio_sync_open_mpi",
                              choice->has_mpi_collectives() ? "collective" : "transport"));
  }
  // If one rank has wrong options, all ranks fail here. Otherwise the others would wait in Create.
  LMDBIO_TRY(choice, ranks::ForAll(*handle.group, std::move(choice)));
  // The maker depends on this option; the synchronizer compares the other options.
  LMDBIO_TRY_VOID(ranks::AgreeOnWords(*handle.group, "the options", choice->TransportWords()));
  sync::SyncParts parts;
  if (choice->log != nullptr) {
    // The lambda holds a copy, because the caller's struct ends with this call.
    parts.log = [choice = *choice](const std::string& line) {
      choice.log(choice.log_context, line.c_str());
    };
  }
  if (maker) {
    LMDBIO_TRY_VOID(maker(*handle.group, *choice, parts));
  }
  handle.options = choice->Json();
  LMDBIO_TRY(handle.synchronizer,
             sync::Synchronizer::Create(*handle.group, choice->options, std::move(parts)));
  return {};
}

// Runs `call` with the open synchronizer of a handle, which cannot be closed meanwhile.
template <typename Call>
int WithSync(lmdbio_sync* sync, Call&& call) noexcept {
  return Guarded(nullptr, [&]() -> int {
    const auto object = SyncTable::Of().Find(sync);
    if (!object) return LMDBIO_BAD_HANDLE;
    if (object->is_forked()) return LMDBIO_FORKED;
    std::shared_lock lock(object->closing, std::defer_lock);
    // A closing thread holds the lock and waits for the helper thread. A callback in that thread
    // must not wait for the lock.
    if (calling_back != object->number) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return LMDBIO_BAD_HANDLE;
    }
    // Another thread has closed the handle between Find and the lock.
    if (object->synchronizer == nullptr) return LMDBIO_BAD_HANDLE;
    return Guarded(object.get(), [&] { return call(*object); });
  });
}

template <typename Handle>
int Told(Handle& handle, const Status& status) {
  return status ? LMDBIO_OK : handle.Keep(status.error());
}

// Returns the function that calls the program's callback. It records `number`, so that WaitFor can
// refuse a wait inside the callback. The callback runs in the helper thread of the synchronizer.
std::function<void(const Status&)> CallbackOf(const lmdbio_sync_request& request,
                                              std::uintptr_t number) {
  if (request.callback == nullptr) return {};
  return
      [call = request.callback, context = request.callback_context, number](const Status& status) {
        const std::uintptr_t before = std::exchange(calling_back, number);
        if (status) {
          call(context, LMDBIO_OK, "");
        } else {
          call(context, static_cast<int>(status.error().code()), status.error().message().c_str());
        }
        calling_back = before;
      };
}

Result<sync::Submission> ReadRequest(const SyncHandle& handle, const lmdbio_sync_request* request) {
  const sync::Synchronizer& synchronizer = *handle.synchronizer;
  return SubmissionOf(request, synchronizer.size(), [&synchronizer](const void* pointer) {
    return synchronizer.MemoryOf(pointer);
  });
}

Result<sync::Submission> TakeRequest(const SyncHandle& handle, const lmdbio_sync_request* request) {
  LMDBIO_TRY(sync::Submission submission, ReadRequest(handle, request));
  submission.callback = CallbackOf(*request, handle.number);
  return submission;
}

// The operation keeps the number of its synchronizer, so that WaitFor knows whose callback would
// wait for itself.
lmdbio_sync_op* HandOut(const SyncHandle& handle, sync::Handle operation) {
  auto op = std::make_shared<OpHandle>();
  op->owner = handle.number;
  op->handle = std::make_unique<sync::Handle>(std::move(operation));
  return OpTable::Of().Add(std::move(op));
}

// Takes the Result and not its value, so that the text of a wrong request goes to the handle.
int SubmitOne(SyncHandle& handle, Result<sync::Submission> submission, lmdbio_sync_op** out_op) {
  if (out_op == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_op is NULL");
  if (!submission) return handle.Keep(submission.error());
  auto operation = handle.synchronizer->Submit(std::move(*submission));
  if (!operation) return handle.Keep(operation.error());
  *out_op = HandOut(handle, std::move(*operation));
  return LMDBIO_OK;
}

// A NULL node is a computation without a collective. Callbacks of nodes are ignored: a graph
// describes operations that are submitted later.
Result<sync::Graph> GraphOf(const SyncHandle& handle, const lmdbio_sync_request* const* nodes,
                            size_t node_count, const uint32_t* edges, size_t edge_count) {
  if ((nodes == nullptr && node_count > 0) || (edges == nullptr && edge_count > 0)) {
    return Fail(ErrorCode::kInvalidArgument, "nodes or edges is NULL");
  }
  sync::Graph graph;
  for (size_t i = 0; i < node_count; ++i) {
    if (nodes[i] == nullptr) {
      graph.AddNode(fmt::format("node {}", i));
      continue;
    }
    LMDBIO_TRY(sync::Submission submission, ReadRequest(handle, nodes[i]));
    graph.AddCollective(std::move(submission.request));
  }
  for (size_t i = 0; i < edge_count; ++i) {
    const uint32_t from = edges[2 * i];
    const uint32_t to = edges[2 * i + 1];
    if (from >= node_count || to >= node_count) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("edge {}: there is no node {}; the graph has {} nodes", i,
                              std::max(from, to), node_count));
    }
    graph.AddEdge(from, to);
  }
  return graph;
}

// The arrays are copied, so the caller may free them.
Result<std::vector<sync::ComputeNode>> NodesOf(const lmdbio_sync_compute_graph& graph) {
  if ((graph.costs_ns == nullptr && graph.node_count > 0) ||
      (graph.edges == nullptr && graph.edge_count > 0) ||
      (graph.gradients == nullptr && graph.gradient_count > 0)) {
    return Fail(ErrorCode::kInvalidArgument, "graph: costs_ns, edges or gradients is NULL");
  }
  std::vector<sync::ComputeNode> nodes(graph.node_count);
  for (size_t i = 0; i < graph.node_count; ++i) nodes[i].cost_ns = graph.costs_ns[i];
  for (size_t i = 0; i < graph.edge_count; ++i) {
    const uint32_t to = graph.edges[2 * i + 1];
    if (to >= graph.node_count) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("edge {}: there is no node {}; the graph has {} nodes", i, to,
                              graph.node_count));
    }
    nodes[to].needs.push_back(graph.edges[2 * i]);
  }
  return nodes;
}

Result<sync::ComputeOrder> OrderOf(const lmdbio_sync_compute_graph* c_graph) {
  if (c_graph == nullptr) return Fail(ErrorCode::kInvalidArgument, "graph is NULL");
  LMDBIO_TRY(const lmdbio_sync_compute_graph graph,
             CompleteStruct("graph", "LMDBIO_SYNC_COMPUTE_GRAPH_INIT", c_graph));
  LMDBIO_TRY(const std::vector<sync::ComputeNode> nodes, NodesOf(graph));
  return sync::OrderComputing(nodes, {graph.gradients, graph.gradient_count});
}

void Lend(sync::ComputeOrder order, LentComputeOrder& to) {
  to.gradients.assign(order.gradients.begin(), order.gradients.end());
  to.nodes = std::move(order.nodes);
  to.edges.clear();
  for (const sync::ComputeEdge& edge : order.edges) {
    to.edges.insert(to.edges.end(), {edge.from, edge.to});
  }
  to.order = {to.gradients.data(), to.gradients.size(), to.nodes.data(),
              to.nodes.size(),     to.edges.data(),     order.edges.size()};
}

// Waits for an operation by `wait`, which returns whether it is over.
template <typename Wait>
int WaitBy(lmdbio_sync_op* op, const Wait& wait) noexcept {
  return WithOpen<OpTable>(op, AfterFork::kRefused, [&](OpHandle& handle) -> int {
    // An operation that is done may be asked in a callback: nothing waits then.
    if (calling_back == handle.owner && !handle.handle->is_done()) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT,
                         "a callback must not wait: the operation would wait for the callback");
    }
    const Result<bool> is_over = wait(*handle.handle);
    if (!is_over) return handle.Keep(is_over.error());
    return *is_over ? LMDBIO_OK : LMDBIO_TIMEOUT;
  });
}

// Waits for an operation, at most for `limit`.
int WaitFor(lmdbio_sync_op* op, std::chrono::milliseconds limit) noexcept {
  return WaitBy(op, [limit](sync::Handle& handle) { return handle.WaitFor(limit); });
}

}  // namespace

int lmdbio::api::OpenSyncInGroup(Result<std::unique_ptr<ranks::Group>>& group,
                                 const lmdbio_sync_options* options, const SyncPartsMaker& maker,
                                 lmdbio_sync** out_sync) noexcept {
  return OpenHandleInGroup<SyncTable, SyncHandle>(
      group, "out_sync", out_sync,
      [&](SyncHandle& handle) { return OpenSync(handle, options, maker); });
}

int lmdbio_sync_open(const lmdbio_sync_options* options, lmdbio_sync** out_sync) {
  return OpenHandle<SyncTable, SyncHandle>(out_sync, [&](SyncHandle& handle) -> Status {
    handle.group = ranks::SoloGroup();
    return OpenSync(handle, options, {});
  });
}

int lmdbio_sync_rank(lmdbio_sync* sync, int* out_rank, int* out_rank_count) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_rank != nullptr) *out_rank = handle.synchronizer->rank();
    if (out_rank_count != nullptr) *out_rank_count = handle.synchronizer->size();
    return LMDBIO_OK;
  });
}

int lmdbio_sync_place(lmdbio_sync* sync, uint64_t size_bytes, void** out_memory) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_memory == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_memory is NULL");
    const auto memory = handle.synchronizer->Place(size_bytes);
    if (!memory) return handle.Keep(memory.error());
    // The memory belongs to the synchronizer and ends with it.
    *out_memory = memory->data();
    return LMDBIO_OK;
  });
}

int lmdbio_sync_place_device(lmdbio_sync* sync, uint64_t size_bytes, void** out_address) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_address == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_address is NULL");
    const auto memory = handle.synchronizer->PlaceOnDevice(size_bytes);
    if (!memory) return handle.Keep(memory.error());
    *out_address = std::bit_cast<void*>(memory->begin.value);
    return LMDBIO_OK;
  });
}

int lmdbio_sync_shutdown(lmdbio_sync* sync) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (calling_back == handle.number) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT,
                         "a callback must not wait: the shutdown would wait for the callback");
    }
    return Told(handle, handle.synchronizer->Shutdown());
  });
}

int lmdbio_sync_close(lmdbio_sync* sync) {
  if (sync == nullptr) return LMDBIO_OK;
  return Guarded(nullptr, [&]() -> int {
    const auto object = SyncTable::Of().Find(sync);
    if (!object) return LMDBIO_BAD_HANDLE;
    if (calling_back == object->number) {
      return object->Keep(LMDBIO_INVALID_ARGUMENT,
                          "a callback must not close its synchronizer: closing waits for the "
                          "callback");
    }
    // Only one of several closing threads gets the handle. From here on no new call finds it.
    if (!SyncTable::Of().Take(sync)) return LMDBIO_BAD_HANDLE;
    if (object->is_forked()) {
      object->LeaveAlone();
      return LMDBIO_OK;
    }
    // Waits for the calls under way. The synchronizer uses the group, so it ends first.
    const std::lock_guard lock(object->closing);
    object->synchronizer.reset();
    object->group.reset();
    return LMDBIO_OK;
  });
}

const char* lmdbio_sync_message(lmdbio_sync* sync) { return MessageOf<SyncTable>(sync); }
int lmdbio_sync_errno(lmdbio_sync* sync) { return ErrorNumberOf<SyncTable>(sync); }

int lmdbio_sync_submit(lmdbio_sync* sync, const lmdbio_sync_request* request,
                       lmdbio_sync_op** out_op) {
  return WithSync(sync, [&](SyncHandle& handle) {
    return SubmitOne(handle, TakeRequest(handle, request), out_op);
  });
}

int lmdbio_sync_allreduce(lmdbio_sync* sync, const char* name, void* values, int64_t count,
                          int type, lmdbio_sync_op** out_op) {
  // In place: input and output are the same memory.
  lmdbio_sync_request request = LMDBIO_SYNC_REQUEST_INIT;
  request.name = name;
  request.type = type;
  request.count = count;
  request.input = values;
  request.output = values;
  return lmdbio_sync_submit(sync, &request, out_op);
}

int lmdbio_sync_submit_group(lmdbio_sync* sync, const lmdbio_sync_request* const* requests,
                             size_t count, lmdbio_sync_op** out_ops) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (requests == nullptr || out_ops == nullptr || count == 0) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "requests or out_ops is NULL, or count is 0");
    }
    // All requests are read before the first is submitted: a group is submitted whole or not at
    // all.
    std::vector<sync::Submission> submissions;
    for (size_t i = 0; i < count; ++i) {
      auto submission = TakeRequest(handle, requests[i]);
      if (!submission) return handle.Keep(submission.error());
      submissions.push_back(std::move(*submission));
    }
    auto operations = handle.synchronizer->SubmitGroup(std::move(submissions));
    if (!operations) return handle.Keep(operations.error());
    for (size_t i = 0; i < count; ++i) {
      out_ops[i] = HandOut(handle, std::move((*operations)[i]));
    }
    return LMDBIO_OK;
  });
}

int lmdbio_sync_set_graph(lmdbio_sync* sync, const lmdbio_sync_request* const* nodes,
                          size_t node_count, const uint32_t* edges, size_t edge_count) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    // The graph is copied, so the caller may free its arrays.
    const auto graph = GraphOf(handle, nodes, node_count, edges, edge_count);
    if (!graph) return handle.Keep(graph.error());
    return Told(handle, handle.synchronizer->SetGraph(*graph));
  });
}

int lmdbio_sync_order_computing(lmdbio_sync* sync, const lmdbio_sync_compute_graph* graph,
                                const lmdbio_sync_compute_order** out_order) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_order == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_order is NULL");
    Result<sync::ComputeOrder> order = OrderOf(graph);
    if (!order) return handle.Keep(order.error());
    LentComputeOrder& lent = handle.lent().compute_order;
    Lend(std::move(*order), lent);
    *out_order = &lent.order;
    return LMDBIO_OK;
  });
}

int lmdbio_sync_op_test(lmdbio_sync_op* op, int* out_is_done) {
  return WithOpen<OpTable>(op, AfterFork::kRefused, [&](OpHandle& handle) -> int {
    if (out_is_done == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_is_done is NULL");
    *out_is_done = handle.handle->is_done() ? 1 : 0;
    return LMDBIO_OK;
  });
}

int lmdbio_sync_op_wait(lmdbio_sync_op* op) {
  return WaitFor(op, std::chrono::milliseconds::max());
}

int lmdbio_sync_op_wait_within(lmdbio_sync_op* op, uint32_t limit_ms) {
  return WaitFor(op, std::chrono::milliseconds(limit_ms));
}

int lmdbio_sync_op_wait_on(lmdbio_sync_op* op, void* stream) {
  return WaitBy(op, [stream](sync::Handle& handle) -> Result<bool> {
    LMDBIO_TRY_VOID(handle.WaitOn(static_cast<device::StreamHandle>(stream)));
    return true;
  });
}

int lmdbio_sync_op_wait_on_within(lmdbio_sync_op* op, void* stream, uint32_t limit_ms) {
  return WaitBy(op, [=](sync::Handle& handle) {
    return handle.WaitOnFor(static_cast<device::StreamHandle>(stream),
                            std::chrono::milliseconds(limit_ms));
  });
}

int lmdbio_sync_op_result(lmdbio_sync_op* op, const lmdbio_sync_result** out_result) {
  return WithOpen<OpTable>(op, AfterFork::kRefused, [&](OpHandle& handle) -> int {
    if (out_result == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_result is NULL");
    if (!handle.handle->is_done()) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "the operation is not done; wait for it first");
    }
    // Returns the error of an operation that is done and has failed; it has no result.
    const Result<bool> done = handle.handle->WaitFor(std::chrono::milliseconds(0));
    if (!done) return handle.Keep(LMDBIO_INVALID_ARGUMENT, done.error().message());
    // Several threads may ask for the result of one operation.
    std::call_once(handle.has_result, [&] {
      const Bytes data = handle.handle->result();
      const std::vector<int64_t>& rows = handle.handle->result_rows();
      handle.result = {data.empty() ? nullptr : data.data(), data.size(), rows.data(), rows.size(),
                       handle.handle->last_joined()};
    });
    *out_result = &handle.result;
    return LMDBIO_OK;
  });
}

const char* lmdbio_sync_op_message(lmdbio_sync_op* op) { return MessageOf<OpTable>(op); }
int lmdbio_sync_op_errno(lmdbio_sync_op* op) { return ErrorNumberOf<OpTable>(op); }
int lmdbio_sync_op_close(lmdbio_sync_op* op) { return Close<OpTable>(op); }

int lmdbio_sync_get_counters(lmdbio_sync* sync, const lmdbio_sync_counters** out_counters) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_counters == nullptr) {
      return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_counters is NULL");
    }
    const sync::SyncCounters from = handle.synchronizer->counters();
    // Memory of the calling thread, because another thread may ask at the same time.
    SyncResults& lent = handle.lent();
    lent.counters = {from.cycle_count,          from.control_message_count, from.control_bytes,
                     from.collective_count,     from.collective_bytes,      from.tensor_count,
                     from.plan_count,           from.plan_end_count,        from.thread_cpu_ns,
                     from.thread_run_delay_ns,  from.device_tensor_count,   from.device_out_bytes,
                     from.device_in_bytes,      from.device_copy_count,     from.device_wait_ns,
                     from.device_reduced_count, from.device_reduced_bytes};
    *out_counters = &lent.counters;
    return LMDBIO_OK;
  });
}

int lmdbio_sync_get_options(lmdbio_sync* sync, const char** out_text) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_text == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_text is NULL");
    *out_text = handle.options.c_str();
    return LMDBIO_OK;
  });
}

int lmdbio_sync_describe(lmdbio_sync* sync, const char** out_text) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_text == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_text is NULL");
    SyncResults& lent = handle.lent();
    lent.description = fmt::format("{}", fmt::join(handle.synchronizer->Description(), "\n"));
    *out_text = lent.description.c_str();
    return LMDBIO_OK;
  });
}

int lmdbio_sync_flight_record(lmdbio_sync* sync, const char** out_text) {
  return WithSync(sync, [&](SyncHandle& handle) -> int {
    if (out_text == nullptr) return handle.Keep(LMDBIO_INVALID_ARGUMENT, "out_text is NULL");
    SyncResults& lent = handle.lent();
    lent.record = fmt::format("{}", fmt::join(handle.synchronizer->FlightRecord(), "\n"));
    *out_text = lent.record.c_str();
    return LMDBIO_OK;
  });
}
