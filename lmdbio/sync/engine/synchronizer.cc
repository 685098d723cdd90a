#include "lmdbio/sync/engine/synchronizer.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/base/placement.h"
#include "lmdbio/ranks/health/job_health.h"
#include "lmdbio/sync/engine/engine.h"
#include "lmdbio/sync/engine/task.h"
#include "lmdbio/sync/graph/plan_proposal.h"
#include "lmdbio/sync/graph/plan_times.h"
#include "lmdbio/sync/on_device/sync_device.h"
#include "lmdbio/sync/over_wire/wire_choice.h"
#include "lmdbio/sync/request/request_checks.h"
#include "lmdbio/sync/tiers/make_collectives.h"
#include "lmdbio/sync/tiers/transfer_trial.h"
#include "lmdbio/sync/transport/shared_transport.h"

namespace lmdbio::sync {

namespace {

constexpr size_t kNameBytesMax = 4096;
// Of the memory of a GPU in which ranks reduce. Enough for a bucket of any default size.
constexpr uint64_t kArenaBytes = uint64_t{32} << 20;

Status Wrong(const Request& request, std::string_view problem) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("tensor '{}': {}", request.name, problem));
}

bool HasValues(const Request& request) {
  return request.operation != Operation::kBarrier && request.operation != Operation::kJoin;
}

// A tensor without elements needs no memory. In a broadcast only the root needs an input.
TensorUse UseOf(const Request& request, int rank) {
  return {.has_input = HasValues(request) &&
                       (request.operation != Operation::kBroadcast || request.root == rank),
          .has_output = request.operation == Operation::kAllReduce ||
                        request.operation == Operation::kBroadcast};
}

Status CheckBuffers(const Submission& submission, int rank) {
  const Request& request = submission.request;
  if (!HasValues(request) || request.element_count() == 0) return {};
  const TensorUse use = UseOf(request, rank);
  const auto& device = submission.on_device;
  const bool has_input = device ? device->input.value != 0 : submission.input != nullptr;
  const bool has_output = device ? device->output.value != 0 : submission.output != nullptr;
  if (use.has_input && !has_input) return Wrong(request, "has no input");
  if (use.has_output && !has_output) return Wrong(request, "has no output");
  return {};
}

// The prefix of operations that the synchronizer submits itself.
constexpr std::string_view kReserved = "lmdbio.";
constexpr std::string_view kJoin = "lmdbio.join";

Status CheckName(const std::string& name) {
  if (name.compare(0, kReserved.size(), kReserved) != 0) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("tensor '{}': names that begin with '{}' are reserved", name, kReserved));
}

Status CheckGroup(const Request& request) {
  if (request.group.empty()) return {};
  return Wrong(request, fmt::format("has the group '{}'; submit all tensors of a group by "
                                    "SubmitGroup",
                                    request.group));
}

Status CheckSubmission(const Submission& submission, int rank, int size) {
  const Request& request = submission.request;
  if (request.name.empty()) return Fail(ErrorCode::kInvalidArgument, "a submission has no name");
  if (request.name.size() > kNameBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}...': the name has {} bytes; expected at most {}",
                            request.name.substr(0, 40), request.name.size(), kNameBytesMax));
  }
  // The checks below, and the arithmetic, require known numbers.
  if (!IsOperation(static_cast<uint8_t>(request.operation))) {
    return Wrong(request, fmt::format("unknown operation {}", static_cast<int>(request.operation)));
  }
  if (request.operation == Operation::kAdoptPlan) {
    return Wrong(request, "only the synchronizer submits the operation 'adopt-plan'");
  }
  if (!IsDataType(static_cast<uint8_t>(request.type))) {
    return Wrong(request, fmt::format("unknown type {}", static_cast<int>(request.type)));
  }
  if (!IsReduceOp(static_cast<uint8_t>(request.reduce_op))) {
    return Wrong(request, fmt::format("unknown reduction {}", static_cast<int>(request.reduce_op)));
  }
  if (!IsMemoryKind(static_cast<uint8_t>(request.memory))) {
    return Wrong(request, fmt::format("unknown memory kind {}", static_cast<int>(request.memory)));
  }
  if (request.memory == MemoryKind::kDevice && !submission.on_device) {
    return Wrong(request, "is on a GPU, but on_device is missing");
  }
  if (const std::string wrong = WhatIsWrong(request, size); !wrong.empty()) {
    return Wrong(request, wrong);
  }
  return CheckBuffers(submission, rank);
}

// A plan can hold an operation if the ranks need no further agreement on it, once their requests
// are known.
Status CheckPlannable(const Request& request) {
  switch (request.operation) {
    case Operation::kAllReduce:
    case Operation::kBroadcast:
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kBarrier:
      return {};
    case Operation::kAllToAll:
    case Operation::kJoin:
    case Operation::kAdoptPlan:
      break;
  }
  return Wrong(request,
               fmt::format("a plan cannot contain the operation '{}'", NameOf(request.operation)));
}

// The cores of this rank's threads. Collective for any `text`, also if it differs between ranks.
// The calls on the groups come first. So a rank without `text`, or one that cannot place its
// threads, still takes part in them.
Result<Placement> PlaceRank(ranks::Group& group, const std::string& text) {
  Result<HostCores> cores = ProcessCores();
  if (!cores && text.empty()) cores = HostCores{};  // no placement: no thread is pinned
  LMDBIO_TRY(cores, ranks::ForAll(group, std::move(cores)));
  LMDBIO_TRY(const auto host, group.SplitByHost());
  const uint64_t mine = CoresDigest(cores->allowed);
  LMDBIO_TRY(const auto gathered, host->AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<uint64_t> digests(static_cast<size_t>(host->size()));
  std::memcpy(digests.data(), gathered.data(), gathered.size());
  if (text.empty()) return Placement{};
  LMDBIO_TRY(cores, ProcessTopology());
  return PlaceThreads(text, *cores, PlaceAmong(host->rank(), digests));
}

Result<std::unique_ptr<trace::Timeline>> OpenTimeline(const SyncOptions& options, int rank,
                                                      int size) {
  if (options.timeline_path.empty()) return std::unique_ptr<trace::Timeline>();
  return trace::Timeline::Open({.path = options.timeline_path, .rank = rank, .size = size});
}

Result<std::unique_ptr<SyncDevice>> OpenDevice(const SyncOptions& options,
                                               device::CacheCheck check) {
  if (options.device == 0) return std::unique_ptr<SyncDevice>();
  return SyncDevice::Open(static_cast<int>(std::min<uint32_t>(options.device - 1, INT_MAX)),
                          kernels::BuiltInKernels(), check);
}

// A library of others reduces, in no order of lmdbio.
// waiting  how it waits for other ranks
Status CheckForLibrary(const SyncOptions& options, std::string_view waiting) {
  const std::string& name = options.device_collective;
  if (options.device == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("device_collective: '{}' needs a GPU for each rank: set the option "
                            "device to 1 + the number of the GPU",
                            name));
  }
  if (options.device_order == "auto" || options.device_order == "host") return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("device_order: '{}' is not possible with device_collective '{}', whose "
                          "{}; use 'auto' or 'host'",
                          options.device_order, name, waiting));
}

// Only a caller with a communicator of MPI can ask it.
Status CheckDeviceCollective(const SyncOptions& options, const SyncParts& parts) {
  if (options.device_collective == "nccl") {
    return CheckForLibrary(options, "kernels wait for each other");
  }
  if (options.device_collective != "mpi") return {};
  if (parts.device_library != nullptr) {
    return CheckForLibrary(options, "calls wait for other ranks on the host");
  }
  return Fail(ErrorCode::kUnsupported,
              "device_collective: 'mpi' needs a communicator of an MPI that takes memory of GPUs");
}

// The parts of the memory that collectives register: gradients, the fusion buffer, and the pinned
// memory of a GPU. The last begins at a page, because a page can be pinned once only.
uint64_t StagingOffset(const SyncOptions& options) {
  return AlignUp(options.fusion_threshold_bytes + AlignUp(options.gradient_bytes, 64),
                 kMemoryPageBytesMax);
}

uint64_t RegisteredBytes(const SyncOptions& options) {
  if (options.device > 0) return StagingOffset(options) + SyncDevice::kStagingBytes;
  return options.fusion_threshold_bytes + AlignUp(options.gradient_bytes, 64);
}

// The algorithms between the GPUs of several hosts. There is no trial with values on a GPU.
WireTable DeviceTable(const SyncOptions& options, int rank_count) {
  WireTable table = UsualWireTable();
  Result<WireAlgorithm> algorithm = ParseWireAlgorithm(options.collective);
  if (!algorithm && options.reproducible) algorithm = ReproducibleAlgorithm(rank_count);
  if (algorithm) table = OneWireAlgorithm(*algorithm, kUsualChunkBytes, kUsualChunkDepth);
  for (WireChoice& row : table) {
    if (options.chunk_bytes > 0) row.chunk_bytes = options.chunk_bytes;
    if (options.chunk_depth > 0) row.chunk_depth = options.chunk_depth;
  }
  return table;
}

// The options and parts that must be the same on every rank, as text.
std::string CommonWords(const SyncOptions& options, const SyncParts& parts) {
  const auto origin = [](bool is_given) { return is_given ? "given" : "own"; };
  return fmt::format("{}, health {}, transport {}, collectives {}, GPU {}", options.CommonWords(),
                     origin(parts.health != nullptr), origin(parts.transport != nullptr),
                     origin(static_cast<bool>(parts.collectives)),
                     options.device > 0 ? "yes" : "no");
}

// The arity of the tree along which a coordinator exchanges requests; 0: it uses no tree.
uint32_t TreeArityOf(const SyncOptions& options) {
  return options.coordinator == "hierarchical" ? options.tree_arity : 0;
}

// A transport that the caller provides has its tree already.
Status CheckTree(const SyncOptions& options, const Ranks& ranks) {
  const int wanted = LimitedArity(options.tree_arity, ranks.size);
  if (options.coordinator != "hierarchical" || ranks.tree_arity == wanted) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("tree_arity: the transport was made for a tree of arity {}, the option is "
                  "{}; make the transport with the value of the option",
                  ranks.tree_arity, options.tree_arity));
}

// Merges the proposals of two ranks. The proposal for a plan from a graph is its digest. The
// proposal for a learned plan has the dependencies that the rank has observed. A learned proposal
// has at least 40 bytes, so its size tells the two kinds apart.
Result<std::vector<std::byte>> MergeExtraBytes(Bytes a, Bytes b) {
  const bool are_digests = a.size() == sizeof(uint64_t) && b.size() == sizeof(uint64_t);
  if (!are_digests) return MergeProposals(a, b);
  if (std::equal(a.begin(), a.end(), b.begin())) return std::vector(a.begin(), a.end());
  return Fail(ErrorCode::kInvalidArgument, "the graphs of the ranks differ");
}

}  // namespace

class Synchronizer::Impl {
 public:
  Impl(const SyncOptions& wanted, ranks::Group& own_group)
      : options(wanted), group_of_job(own_group), rank(own_group.rank()) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int size() const { return group_of_job.size(); }

  // Collective.
  Status Make(ranks::Group& group, SyncParts parts);
  Result<std::unique_ptr<Collectives>> MakeCollectives(ranks::Group& group,
                                                       const CollectivesMaker& maker);
  // Collective. Null: the ranks follow no plans by time.
  Result<std::shared_ptr<PlanTimes>> MeasureTransfers(ranks::Group& group);
  Status PinStaging();
  Status MakeArena(ranks::Group& group, std::shared_ptr<BlockingLibrary> library);
  Status Enter(Task& task) const;
  Result<Handle> Add(Submission submission);
  Result<std::vector<Handle>> AddAll(std::vector<Submission> submissions);

  // Members are destroyed from the last to the first. So the engine ends its thread before the
  // members above it, which the thread uses.
  const SyncOptions options;
  ranks::Group& group_of_job;
  const int rank;
  Placement placement;
  std::unique_ptr<ranks::Health> health;
  std::unique_ptr<WatchfulHealth> watchful_health;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Collectives> collectives;
  std::unique_ptr<SyncDevice> device;  // null: no tensors on a GPU
  std::string device_note;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Engine> engine;
  std::mutex mutex;  // of the members below
  bool has_submitted = false;
  bool is_shut_down = false;
};

Result<std::unique_ptr<Collectives>> Synchronizer::Impl::MakeCollectives(
    ranks::Group& group, const CollectivesMaker& maker) {
  if (maker && options.host_roots != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("host_roots: {} roots on each host need collective 'auto', and not the "
                            "collectives of MPI or of the caller",
                            options.host_roots));
  }
  if (maker) {
    LMDBIO_TRY(auto made, maker(*watchful_health));
    if (options.reproducible && !made->is_reproducible()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "reproducible: the collectives of MPI or of the caller do not promise it");
    }
    return made;
  }
  return sync::MakeCollectives(group, *watchful_health,
                               {.collective = options.collective,
                                .host_roots = options.host_roots,
                                .is_reproducible = options.reproducible,
                                .wait_mode = WaitMode::kSleep,
                                .chunk_bytes = options.chunk_bytes,
                                .chunk_depth = options.chunk_depth,
                                .registered_bytes = RegisteredBytes(options)});
}

// Rank 0 proposes the times of calls, so only its own are kept.
Result<std::shared_ptr<PlanTimes>> Synchronizer::Impl::MeasureTransfers(ranks::Group& group) {
  if (options.coordinator != "caramel" || options.order == "arrival") {
    return std::shared_ptr<PlanTimes>();
  }
  if (options.order == "split") {  // needs no model
    return std::make_shared<PlanTimes>(std::vector<TransferSample>());
  }
  const auto clock = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  LMDBIO_TRY(std::vector<TransferSample> samples,
             ranks::ForAll(group, TryTransfers(*collectives, kTransferTrialTime, clock)));
  if (rank != 0) samples.clear();
  return std::make_shared<PlanTimes>(std::move(samples));
}

// Without registered memory the ring has memory of its own.
Status Synchronizer::Impl::PinStaging() {
  if (device == nullptr) return {};
  const MutableBytes registered = collectives->registered();
  const uint64_t offset = std::min<uint64_t>(StagingOffset(options), registered.size());
  return device->MakeRing(registered.subspan(offset), collectives->ample_bytes(), *watchful_health);
}

// Figures of a GPU are missing, so "auto" is the order that needs nothing.
Status Synchronizer::Impl::MakeArena(ranks::Group& group,
                                     std::shared_ptr<BlockingLibrary> library) {
  SyncArenaOptions wanted;
  wanted.gradient_bytes = options.device_gradient_bytes;
  wanted.one_shot_bytes = options.device_one_shot_bytes;
  if (options.device_collective == "nccl") wanted.way = ArenaWay::kNccl;
  if (options.device_collective == "mpi") wanted.way = ArenaWay::kLibrary;
  wanted.library = std::move(library);
  wanted.buffer_bytes = AlignUp(
      options.device_buffer_bytes > 0 ? options.device_buffer_bytes : kArenaBytes, kCacheLineBytes);
  if (options.device_order != "auto") {
    LMDBIO_TRY(wanted.order, ParseOrder(options.device_order));
  }
  return device->MakeArena(group, *collectives, wanted, DeviceTable(options, size()),
                           *watchful_health);
}

// A rank of another host that has ended may be known to the group only, through a loader. Then its
// end is why this rank closes.
//
// Makes sure that no work of the GPU uses memory that is freed. After a failure of MPI's calls, MPI
// may still write to the memory of the ring, too.
Synchronizer::Impl::~Impl() {
  if (engine != nullptr && !engine->is_peaceful()) {
    const Status ended = group_of_job.CheckRanksWithin(std::chrono::milliseconds(0));
    if (!ended) health->GiveUp(ended.error());
  }
  engine.reset();
  if (device == nullptr || !device->has_ring()) return;
  const bool is_drained = device->Drain(std::chrono::steady_clock::now());
  if (!is_drained) {
    device->KeepAll();
    KeepForever(std::move(collectives));  // their registered memory
  } else if (collectives->writes_after_failure()) {
    device->KeepOwnMemory();
  }
}

// Checks the memory of a tensor, and records when it is ready.
Status Synchronizer::Impl::Enter(Task& task) const {
  const Submission& submission = task.submission;
  const Request& request = submission.request;
  if (device == nullptr) {
    if (!submission.on_device) return {};
    return Wrong(request,
                 "is on a GPU, but the synchronizer has none: set the option device to 1 + the "
                 "number of the GPU");
  }
  const TensorUse use = UseOf(request, rank);
  if (submission.on_device) {
    LMDBIO_TRY(task.ready, device->Enter(request, *submission.on_device, use));
    return {};
  }
  if (request.byte_count() == 0) return {};
  if (use.has_input) LMDBIO_TRY_VOID(device->CheckOnHost(request, submission.input));
  if (use.has_output) LMDBIO_TRY_VOID(device->CheckOnHost(request, submission.output));
  return {};
}

// Every collective step either agrees on its result by itself, or ForAll or Agree follows. So a
// rank that fails never leaves the others alone in the next step.
Status Synchronizer::Impl::Make(ranks::Group& group, SyncParts parts) {
  Status checked = options.Check();
  if (checked) checked = CheckDeviceCollective(options, parts);
  LMDBIO_TRY_VOID(Agree(group, std::move(checked)));
  LMDBIO_TRY_VOID(ranks::AgreeOnWords(group, "the options", CommonWords(options, parts)));
  LMDBIO_TRY(placement, ranks::ForAll(group, PlaceRank(group, options.placement)));
  LMDBIO_TRY(device, ranks::ForAll(group, OpenDevice(options, parts.pointer_check)));
  device_note = std::move(parts.device_note);
  health = std::move(parts.health);
  if (health == nullptr) {
    LMDBIO_TRY(health, ranks::JobHealth::Create(group, options.silence_limit));
  }
  watchful_health = std::make_unique<WatchfulHealth>(*health);
  transport = std::move(parts.transport);
  if (transport == nullptr) {
    LMDBIO_TRY(transport, SharedTransport::Create(group, *watchful_health, TreeArityOf(options)));
  }
  LMDBIO_TRY_VOID(Agree(group, CheckTree(options, transport->ranks())));
  LMDBIO_TRY(collectives, ranks::ForAll(group, MakeCollectives(group, parts.collectives)));
  Status pinned = PinStaging();
  LMDBIO_TRY_VOID(Agree(group, std::move(pinned)));
  if (device != nullptr && options.device_collective != "staged") {
    Status made = MakeArena(group, std::move(parts.device_library));
    LMDBIO_TRY_VOID(Agree(group, std::move(made)));
  }
  Status placed =
      device != nullptr ? device->MakeGradients(options.device_gradient_bytes) : Status();
  LMDBIO_TRY_VOID(Agree(group, std::move(placed)));
  LMDBIO_TRY(auto plan_times, MeasureTransfers(group));
  const std::string kind = options.follows_plans() ? "cache" : options.coordinator;
  LMDBIO_TRY(coordinator,
             Coordinator::Create(
                 {.kind = kind, .cache_capacity = options.cache_capacity, .merge = MergeExtraBytes},
                 transport->ranks()));
  LMDBIO_TRY(auto timeline, ranks::ForAll(group, OpenTimeline(options, rank, size())));
  if (parts.log && rank == 0 && !group.note().empty()) parts.log(std::string(group.note()));
  if (parts.log && !options.placement.empty()) {
    parts.log(placement.Describe());
    for (const std::string& note : placement.notes) parts.log(note);
  }
  for (const std::string& note : device != nullptr ? device->notes() : std::vector<std::string>()) {
    if (parts.log) parts.log(note);
  }
  Status started;
  try {
    engine =
        std::make_unique<Engine>(options,
                                 EngineParts{*watchful_health, *transport, *collectives,
                                             *coordinator, device.get(), std::move(plan_times)},
                                 std::move(timeline), std::move(parts.log));
    started = engine->Start(placement.sync);
  } catch (const std::bad_alloc&) {
    started = Fail(ErrorCode::kResourceExhausted,
                   fmt::format("no memory for {} bytes of gradients", options.gradient_bytes));
  }
  return Agree(group, std::move(started));
}

Result<Handle> Synchronizer::Impl::Add(Submission submission) {
  std::vector<Submission> one;
  one.push_back(std::move(submission));
  LMDBIO_TRY(std::vector<Handle> handles, AddAll(std::move(one)));
  return std::move(handles.front());
}

Result<std::vector<Handle>> Synchronizer::Impl::AddAll(std::vector<Submission> submissions) {
  std::vector<TaskPtr> tasks;
  std::vector<Handle> handles;
  for (Submission& submission : submissions) {
    if (submission.on_device && HasValues(submission.request)) {
      submission.request.memory = MemoryKind::kDevice;
    }
    LMDBIO_TRY_VOID(CheckSubmission(submission, rank, size()));
    auto task = std::make_shared<Task>();
    task->submission = std::move(submission);
    task->queue = engine->queue();
    LMDBIO_TRY_VOID(Enter(*task));
    handles.emplace_back(task);
    tasks.push_back(std::move(task));
  }
  // One lock over check and submission. So nothing is submitted after Shutdown, and SetGraph knows
  // whether anything was.
  const std::lock_guard lock(mutex);
  if (is_shut_down) {
    return Fail(ErrorCode::kInvalidArgument, "the synchronizer was shut down; create another one");
  }
  LMDBIO_TRY_VOID(engine->queue()->Submit(tasks));
  has_submitted = true;
  return handles;
}

Synchronizer::Synchronizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Synchronizer::~Synchronizer() = default;

Result<std::unique_ptr<Synchronizer>> Synchronizer::Create(ranks::Group& group,
                                                           const SyncOptions& options,
                                                           SyncParts parts) {
  auto impl = std::make_unique<Impl>(options, group);
  LMDBIO_TRY_VOID(impl->Make(group, std::move(parts)));
  return std::unique_ptr<Synchronizer>(new Synchronizer(std::move(impl)));
}

int Synchronizer::rank() const { return impl_->rank; }
int Synchronizer::size() const { return impl_->size(); }

Result<Handle> Synchronizer::Submit(Submission submission) {
  LMDBIO_TRY_VOID(CheckName(submission.request.name));
  LMDBIO_TRY_VOID(CheckGroup(submission.request));
  const bool is_join = submission.request.operation == Operation::kJoin;
  if (is_join) submission.request.name = kJoin;
  return impl_->Add(std::move(submission));
}

Result<std::vector<Handle>> Synchronizer::SubmitGroup(std::vector<Submission> submissions) {
  if (submissions.empty()) return std::vector<Handle>();
  const std::string group = submissions.front().request.name;
  for (Submission& submission : submissions) {
    LMDBIO_TRY_VOID(CheckName(submission.request.name));
    if (submission.request.operation != Operation::kAllReduce) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}': a group may contain only '{}', not '{}'",
                              submission.request.name, NameOf(Operation::kAllReduce),
                              NameOf(submission.request.operation)));
    }
    submission.request.group = group;
    submission.request.group_size = static_cast<uint32_t>(submissions.size());
  }
  return impl_->AddAll(std::move(submissions));
}

Result<MemoryKind> Synchronizer::MemoryOf(const void* pointer) const {
  if (impl_->device == nullptr) return MemoryKind::kHost;
  return impl_->device->KindOf(pointer);
}

Status Synchronizer::SetGraph(const Graph& graph) {
  if (impl_->options.coordinator != "topo") {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a graph needs the coordinator 'topo', not '{}'", impl_->options.coordinator));
  }
  LMDBIO_TRY(auto order, OrderTensors(graph));
  for (const OrderedTensor& one : order) LMDBIO_TRY_VOID(CheckPlannable(one.tensor));
  std::optional<Handle> followed;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->has_submitted) {
      return Fail(ErrorCode::kInvalidArgument,
                  "SetGraph was called after a submission; call it before the first one");
    }
    LMDBIO_TRY(followed, impl_->engine->FollowOrder(std::move(order)));
    impl_->has_submitted = true;
  }
  // A tensor that is submitted before all ranks follow the graph would be reduced in a round. Its
  // bucket, and so its bits, would depend on timing.
  return followed->Wait();
}

Result<MutableBytes> Synchronizer::Place(uint64_t size_bytes) {
  return impl_->engine->executor().Place(size_bytes);
}

Result<device::DeviceSpan> Synchronizer::PlaceOnDevice(uint64_t size_bytes) {
  if (impl_->device != nullptr) return impl_->device->Place(size_bytes);
  return Fail(ErrorCode::kInvalidArgument,
              "the synchronizer has no GPU: set the option device to 1 + the number of the GPU");
}

// The helper thread ends with the last barrier. An operation that is still in progress then fails,
// so all operations of this rank must be done before.
Status Synchronizer::Shutdown() {
  Submission last;
  last.request.name = Engine::kLastBarrier;
  last.request.operation = Operation::kBarrier;
  LMDBIO_TRY_VOID(impl_->engine->queue()->AwaitAllDone());
  LMDBIO_TRY(Handle handle, impl_->Add(std::move(last)));
  LMDBIO_TRY_VOID(handle.Wait());
  const std::lock_guard lock(impl_->mutex);  // the helper thread closes its queue, but maybe later
  impl_->is_shut_down = true;
  return {};
}

SyncCounters Synchronizer::counters() const { return impl_->engine->counters(); }

std::vector<std::string> Synchronizer::FlightRecord() const {
  return impl_->engine->tracer().Lines();
}

std::vector<std::string> Synchronizer::Description() const {
  const SyncOptions& options = impl_->options;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("coordinator {}, pacing {}, {} ranks", options.coordinator,
                              options.pacing, impl_->size()));
  const PlanOptions& plan = impl_->engine->plan_options();
  lines.push_back(fmt::format("fusion up to {} bytes, cache of {} responses",
                              options.fusion_threshold_bytes, options.cache_capacity));
  const char* by = options.bucket_bytes > 0 ? "as given" : "chosen by the collectives";
  if (plan.fusion.threshold_bytes == options.fusion_threshold_bytes) by = "as much as is fused";
  lines.push_back(fmt::format("buckets up to {} bytes, {}", plan.fusion.threshold_bytes, by));
  const bool do_shrink = plan.last_bucket_bytes > 0 && plan.num_groups == 0 &&
                         plan.last_bucket_bytes < plan.fusion.threshold_bytes;
  if (options.follows_plans() && do_shrink) {
    lines.push_back(
        fmt::format("plans end with a bucket of {} bytes, {}", plan.last_bucket_bytes,
                    options.last_bucket_bytes > 0 ? "as given" : "a quarter of others"));
  }
  if (plan.slice_bytes > 0) {
    lines.push_back(fmt::format("plans cut tensors of more than {} bytes", plan.slice_bytes));
  }
  if (plan.num_groups > 0) {
    lines.push_back(fmt::format(
        "{} of {} {}, of as many {} each", options.follows_plans() ? "plans" : "iterations",
        plan.num_groups, options.follows_plans() ? "buckets" : "tensor groups", options.group_by));
  }
  if (const PlanTimes* const times = impl_->engine->plan_times()) {
    lines.push_back(times->Text());
    if (std::string wrong = times->WrongText(); !wrong.empty()) lines.push_back(std::move(wrong));
  }
  if (options.reproducible) lines.emplace_back("sums are reproducible");
  const std::string collectives = impl_->collectives->Description();
  for (size_t begin = 0; begin < collectives.size();) {
    const size_t end = std::min(collectives.find('\n', begin), collectives.size());
    lines.push_back(collectives.substr(begin, end - begin));
    begin = end + 1;
  }
  if (impl_->device != nullptr) {
    for (std::string& line : impl_->device->Description()) lines.push_back(std::move(line));
    if (!impl_->device_note.empty()) lines.push_back(impl_->device_note);
  }
  if (!options.placement.empty()) lines.push_back(impl_->placement.Describe());
  for (const std::string& note : impl_->placement.notes) lines.push_back(note);
  return lines;
}

Submission AllReduceOf(std::string name, const void* input, void* output, int64_t count,
                       DataType type, ReduceOp op) {
  Submission submission;
  submission.request.name = std::move(name);
  submission.request.type = type;
  submission.request.reduce_op = op;
  submission.request.shape = {count};
  submission.input = static_cast<const std::byte*>(input);
  submission.output = static_cast<std::byte*>(output);
  return submission;
}

}  // namespace lmdbio::sync
