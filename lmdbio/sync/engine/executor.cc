#include "lmdbio/sync/engine/executor.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/collective/even_sizes.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "lmdbio/sync/request/fusion.h"

namespace lmdbio::sync {

namespace {

constexpr size_t kAlignment = 64;

void CopyIfApart(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

// Copies elements of a tensor. The prescale is part of the copy, so it needs no pass of its own.
void CopyPrescaled(const Request& request, std::byte* to, const std::byte* from, uint64_t count) {
  Scale(request.type, request.prescale, to, from, count);
}

Reduction ReductionOf(const Request& request) { return {request.reduce_op, request.postscale}; }

// The tag of a chunk of a call.
CallTag TagOf(const CallTag& tag, uint64_t chunk) {
  return {.digest = tag.digest + chunk * 0x9E3779B97F4A7C15, .is_declined = tag.is_declined};
}

StagedTensor StagedOf(const Request& request, const Task* task, const TensorUse& use) {
  StagedTensor staged;
  if (task == nullptr) return staged;
  const DeviceTensor& tensor = *task->submission.on_device;
  if (use.has_input) staged.input = {tensor.input, request.byte_count()};
  if (use.has_output) staged.output = {tensor.output, request.byte_count()};
  staged.ready = task->ready;
  return staged;
}

std::unique_ptr<std::byte[]> MakeZeros(uint64_t bytes) {
  return std::make_unique<std::byte[]>(bytes + kAlignment);
}

uint64_t AddressOf(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

MutableBytes AlignedPart(std::byte* memory, uint64_t bytes) {
  return {memory + (kAlignment - AddressOf(memory) % kAlignment) % kAlignment, bytes};
}

}  // namespace

Executor::Executor(Collectives& collectives, SyncTracer& tracer, uint64_t fusion_bytes,
                   uint64_t gradient_bytes, SyncDevice* device)
    : collectives_(collectives), tracer_(tracer), device_(device), fusion_bytes_(fusion_bytes) {
  const MutableBytes registered = collectives.registered();
  // Every tensor of a bucket, also the last one, occupies its bytes rounded up to the alignment.
  const uint64_t gradient_room = AlignUp(gradient_bytes, kAlignment);
  if (registered.size() >= fusion_bytes + gradient_room) {
    gradients_ = registered.first(gradient_bytes);
    fusion_ = registered.subspan(gradient_room, fusion_bytes);
  } else if (gradient_bytes > 0) {
    own_gradients_ = MakeZeros(gradient_room);
    gradients_ = AlignedPart(own_gradients_.get(), gradient_bytes);
  }
  places_ = std::make_unique<GradientPlaces>(AddressOf(gradients_.data()), gradients_.size(),
                                             "gradient_bytes");
}

Executor::~Executor() {
  KeepIfWritten(std::move(own_fusion_));
  KeepIfWritten(std::move(own_gradients_));
}

// A call of MPI may write to its memory after it has failed. Such memory is kept forever, because
// freed memory could belong to another object by then.
template <typename Owner>
void Executor::KeepIfWritten(Owner memory) const {
  if (collectives_.writes_after_failure()) KeepForever(std::move(memory));
}

// The buffer is allocated once and never resized, so no call in progress loses its memory.
MutableBytes Executor::FusionBuffer() {
  if (fusion_.data() == nullptr || fusion_.size() < fusion_bytes_) {
    own_fusion_ = std::make_unique_for_overwrite<std::byte[]>(fusion_bytes_ + kAlignment);
    fusion_ = AlignedPart(own_fusion_.get(), fusion_bytes_);
  }
  return fusion_;
}

template <typename Call>
Executor::Outcome Executor::Transfer(std::span<Task* const> tasks, uint64_t bytes, Call call) {
  tracer_.Transferring(tasks, bytes);
  Outcome outcome = call();
  // A declined call has moved no data, so it is not counted.
  if (!outcome || *outcome == CallOutcome::kDeclined) return outcome;
  tracer_.Transferred(bytes);
  const bool is_first = counters_.collective_count++ == 0;
  counters_.collective_bytes += bytes;
  counters_.collective_bytes_max = std::max(counters_.collective_bytes_max, bytes);
  counters_.collective_bytes_min =
      is_first ? bytes : std::min(counters_.collective_bytes_min, bytes);
  return outcome;
}

Executor::Outcome Executor::ReduceValues(const CallTag& tag, const Values& values,
                                         const Reduction& reduction, StepHalf half,
                                         TransferStart start) {
  if (half == StepHalf::kReduce) return collectives_.ReduceToParts(tag, values, reduction);
  if (half == StepHalf::kGather) return collectives_.GatherParts(tag, values);
  if (plan_times_ == nullptr) return collectives_.AllReduce(tag, values, reduction);
  const int64_t began_ns = SteadyNanoseconds();
  Outcome outcome = collectives_.AllReduce(tag, values, reduction);
  if (outcome && *outcome == CallOutcome::kDone) {
    const int64_t end_ns = SteadyNanoseconds();
    const int64_t taken_ns = end_ns - began_ns;
    plan_times_->OnTransfer({values.count * ElementBytes(values.type), taken_ns}, end_ns, start);
  }
  return outcome;
}

// The other ranks may be in a call of any kind. Every implementation compares the tags of a call
// before it writes an output, so an AllReduce without values makes all of them skip theirs.
Executor::Outcome Executor::Decline(uint64_t digest) {
  if (device_ != nullptr) device_->ring().Restart();  // as the ranks whose call is declined
  return collectives_.AllReduce({.digest = digest, .is_declined = true}, {}, ReduceOp::kSum);
}

Executor::Outcome Executor::Perform(const Response& response, std::span<Task* const> tasks,
                                    CallTag tag) {
  LMDBIO_CHECK(response.error.empty() && response.tensors.size() == tasks.size());
  const Request& first = response.tensors.front();
  switch (first.operation) {
    case Operation::kAllReduce:
      return AllReduce(response, tasks, tag);
    case Operation::kBroadcast:
      return first.memory == MemoryKind::kDevice ? BroadcastStaged(first, tasks[0], tag)
                                                 : Broadcast(first, tasks[0], tag);
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kReduceScatter:
      return PerformWithResult(response, tasks[0], tag);
    case Operation::kJoin:
      if (tasks[0] != nullptr) tasks[0]->last_joined = response.last_joined;
      return CallOutcome::kDone;
    case Operation::kBarrier:  // done as soon as all ranks have requested it
    case Operation::kAdoptPlan:
      return CallOutcome::kDone;
  }
  LMDBIO_CHECK(false);
}

Executor::Outcome Executor::PerformStep(const Response& response, const PlanStep& step,
                                        std::span<Task* const> tasks, const CallTag& tag) {
  if (!step.is_slice() && step.half == StepHalf::kBoth) return Perform(response, tasks, tag);
  const std::span<const Request> requests(response.tensors);
  if (requests.size() > 1) return ReduceFused(requests, step.half, tasks, tag);
  const uint64_t count = step.is_slice() ? step.count : requests[0].element_count();
  return ReduceSlice(requests[0], {step.begin, count}, step.half, tasks[0], tag);
}

// A response has at most as many bytes as the fusion buffer, except for a tensor group. A larger
// group takes several calls, each with as many tensors as the buffer holds. Each call has a tag of
// its own.
Executor::Outcome Executor::AllReduce(const Response& response, std::span<Task* const> tasks,
                                      CallTag tag) {
  const std::span<const Request> requests(response.tensors);
  for (size_t begin = 0; begin < requests.size();) {
    size_t end = begin + 1;
    uint64_t bytes = FusedBytes(requests[begin]);
    while (end < requests.size() && bytes + FusedBytes(requests[end]) <= fusion_bytes_) {
      bytes += FusedBytes(requests[end++]);
    }
    const auto part = requests.subspan(begin, end - begin);
    const auto part_tasks = tasks.subspan(begin, end - begin);
    const bool is_on_device = part[0].memory == MemoryKind::kDevice;
    LMDBIO_TRY(const CallOutcome outcome,
               is_on_device       ? ReduceOnDevice(part, part_tasks, tag)
               : part.size() == 1 ? ReduceSlice(part[0], {0, part[0].element_count()},
                                                StepHalf::kBoth, part_tasks[0], tag)
                                  : ReduceFused(part, StepHalf::kBoth, part_tasks, tag));
    if (outcome == CallOutcome::kDeclined) return outcome;
    tag.digest = tag.digest * 31 + 1;
    begin = end;
  }
  return CallOutcome::kDone;
}

// Reduces in the memory of the output, without the fusion buffer. If input and output are the same
// memory, a prescale overwrites the input before the ranks have compared their tags. Only such a
// call needs a copy of the input, which is restored if the call is declined. After the first
// elements of a tensor no call is declined. The parts that are gathered are in the output.
Executor::Outcome Executor::ReduceSlice(const Request& request, ElementRange range, StepHalf half,
                                        Task* task, const CallTag& tag) {
  const uint64_t offset = range.begin * ElementBytes(request.type);
  const uint64_t bytes = range.count * ElementBytes(request.type);
  std::unique_ptr<std::byte[]> zeros;
  std::unique_ptr<std::byte[]> original;  // restored if the call is declined
  std::byte* output = nullptr;
  if (task == nullptr) {
    zeros = std::make_unique<std::byte[]>(bytes);
    output = zeros.get();
  } else {
    output = task->submission.output + offset;
  }
  if (task != nullptr && half != StepHalf::kGather) {
    const std::byte* const input = task->submission.input + offset;
    if (output == input && request.prescale != 1 && range.begin == 0) {
      original = std::make_unique_for_overwrite<std::byte[]>(bytes);
      CopyIfApart(original.get(), output, bytes);
    }
    CopyPrescaled(request, output, input, range.count);
  }
  Outcome outcome = Transfer({&task, 1}, bytes, [&] {
    return ReduceValues(tag, {output, range.count, request.type}, ReductionOf(request), half,
                        range.begin == 0 ? TransferStart::kMeets : TransferStart::kGoesOn);
  });
  if (!outcome) {
    KeepIfWritten(std::move(zeros));
    return outcome;
  }
  if (*outcome == CallOutcome::kDeclined && original) CopyIfApart(output, original.get(), bytes);
  return outcome;
}

Result<MutableBytes> Executor::Place(uint64_t size_bytes) {
  LMDBIO_TRY(const uint64_t address, places_->Take(size_bytes));
  return gradients_.subspan(address - AddressOf(gradients_.data()), size_bytes);
}

// The memory of tensors that need not be packed, or null if they must be. The tensors are reduced
// in place, and lie in the memory for gradients exactly as in a fusion buffer.
std::byte* Executor::ViewOf(std::span<const Request> requests, std::span<Task* const> tasks,
                            std::span<const uint64_t> offsets) const {
  if (gradients_.empty() || requests[0].prescale != 1) return nullptr;
  std::vector<uint64_t> addresses;
  for (const Task* const task : tasks) {
    if (task == nullptr || task->submission.input != task->submission.output) return nullptr;
    addresses.push_back(AddressOf(task->submission.output));
  }
  return places_->Hold(requests, addresses, offsets) ? tasks[0]->submission.output : nullptr;
}

// Between two halves the outputs hold the values, because the buffer serves other buckets.
Executor::Outcome Executor::ReduceFused(std::span<const Request> requests, StepHalf half,
                                        std::span<Task* const> tasks, const CallTag& tag) {
  const Request& first = requests[0];
  const auto places = PlacesOf(requests);
  // Without the gap behind the last tensor: in placed memory it may belong to another tensor.
  const uint64_t count =
      (places.offsets.back() + requests.back().byte_count()) / ElementBytes(first.type);
  LMDBIO_CHECK(half == StepHalf::kBoth || places.size_bytes <= fusion_bytes_);
  std::byte* const view = ViewOf(requests, tasks, places.offsets);
  std::byte* const buffer = view != nullptr ? view : FusionBuffer().data();
  for (size_t i = 0; i < requests.size() && view == nullptr; ++i) {
    std::byte* const place = buffer + places.offsets[i];
    const uint64_t bytes = requests[i].byte_count();
    const uint64_t end = i + 1 < requests.size() ? places.offsets[i + 1] : places.size_bytes;
    if (tasks[i] != nullptr) {
      if (half == StepHalf::kGather) {
        CopyIfApart(place, tasks[i]->submission.output, bytes);
      } else {
        CopyPrescaled(requests[i], place, tasks[i]->submission.input, requests[i].element_count());
      }
      // The gaps are reduced along with the tensors, so they must be initialised.
      std::memset(place + bytes, 0, end - places.offsets[i] - bytes);
    } else {
      std::memset(place, 0, end - places.offsets[i]);
    }
  }
  Outcome outcome = Transfer(tasks, places.size_bytes, [&] {
    return ReduceValues(tag, {buffer, count, first.type}, ReductionOf(first), half,
                        TransferStart::kMeets);
  });
  if (!outcome || *outcome == CallOutcome::kDeclined) return outcome;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (tasks[i] == nullptr) continue;
    CopyIfApart(tasks[i]->submission.output, buffer + places.offsets[i], requests[i].byte_count());
  }
  return outcome;
}

// A callback tells that the operation is done. So the helper thread waits for the GPU before it.
template <typename Run>
Executor::Outcome Executor::MoveTensors(const StagedCall& staged, uint64_t chunk_bytes,
                                        const Run& run) {
  const Request& first = staged.requests.front();
  std::vector<uint64_t> sizes;
  std::vector<StagedTensor> tensors;
  bool has_callback = false;
  for (size_t i = 0; i < staged.requests.size(); ++i) {
    const Task* const task = staged.tasks[i];
    sizes.push_back(staged.requests[i].byte_count());
    tensors.push_back(StagedOf(staged.requests[i], task, staged.use));
    has_callback = has_callback || (task != nullptr && task->submission.callback);
  }
  const StagedWork work{
      std::move(tensors),
      StagedChunks(PlacesOf(staged.requests).offsets, std::move(sizes), chunk_bytes), first.type,
      staged.prescale, staged.needs_zeros};
  const auto with_name = [&](const Error& error) {
    if (error.code() == ErrorCode::kPeerFailed) return error.Copy();
    const size_t others = staged.requests.size() - 1;
    return error.Copy().Within(
        others == 0 ? fmt::format("bucket of tensor '{}'", first.name)
                    : fmt::format("bucket of tensor '{}' and {} others", first.name, others));
  };
  const Result<StagedResult> result = run(work);
  if (!result) return Fail(with_name(result.error()));
  if (result->outcome == CallOutcome::kDeclined) return CallOutcome::kDeclined;
  // Without outputs the work on the host is all, but GPUs may still read an input.
  if (!staged.use.has_output && staged.result_state == nullptr) return CallOutcome::kDone;
  for (Task* const task : staged.tasks) {
    if (task == nullptr) continue;
    task->output = {result->is_in, staged.result_state};
  }
  if (!has_callback) return CallOutcome::kDone;
  const Status is_in = device_->waits().AwaitDone(*result->is_in);
  if (!is_in) return Fail(with_name(is_in.error()));
  if (staged.result_state != nullptr && staged.result_state->is_void()) {
    return Fail(VoidSumError(first.name));
  }
  return CallOutcome::kDone;
}

Executor::Outcome Executor::Stage(const StagedCall& staged, const ChunkCall& call) {
  if (device_ == nullptr) {
    return Fail(ErrorCode::kInternal, fmt::format("tensor '{}' is on a GPU, and this rank has none",
                                                  staged.requests.front().name));
  }
  StagingRing& ring = device_->ring();
  int64_t waits_since_ns = SteadyNanoseconds();
  const auto traced_call = [&](MutableBytes values, uint64_t chunk) -> Outcome {
    tracer_.Staged(staged.tasks, values.size(), waits_since_ns);
    Outcome outcome = call(values, chunk);
    waits_since_ns = SteadyNanoseconds();
    return outcome;
  };
  return MoveTensors(staged, ring.chunk_bytes(),
                     [&](const StagedWork& work) { return ring.Run(work, traced_call); });
}

// Other ranks may pack the same tensors, because each of them publishes the place of its values. A
// prescale is a part of packing.
std::optional<uint64_t> Executor::OffsetInArena(const StagedCall& staged) const {
  if (staged.prescale != 1) return std::nullopt;
  std::vector<uint64_t> addresses;
  for (const Task* const task : staged.tasks) {
    if (task == nullptr) return std::nullopt;
    const DeviceTensor& tensor = *task->submission.on_device;
    if (staged.use.has_input && tensor.input != tensor.output) return std::nullopt;
    addresses.push_back(tensor.output.value);
  }
  return device_->OffsetOfPlaced(staged.requests, addresses, PlacesOf(staged.requests).offsets);
}

Executor::Outcome Executor::CallInArena(StagedCall staged, ResultPlace result,
                                        const ArenaValuesCall& call) {
  ArenaMover& arena = *device_->arena();
  const std::optional<uint64_t> placed = OffsetInArena(staged);
  const DataType type = staged.requests[0].type;
  const auto values_of = [&](uint64_t bytes, uint64_t chunk) -> DeviceValues {
    return {.offset = placed ? *placed + chunk * arena.chunk_bytes() : device_->buffer_offset(),
            .count = bytes / ElementBytes(type),
            .type = type,
            .result = placed ? ResultPlace::kInPlace : result};
  };
  const auto call_chunk = [&](uint64_t bytes, uint64_t chunk, device::DeviceStream& stream) {
    return Transfer(staged.tasks, bytes,
                    [&] { return call(values_of(bytes, chunk), chunk, stream); });
  };
  const auto result_of = [&](uint64_t bytes) {
    return device_->collectives().ResultOf(values_of(bytes, 0));
  };
  staged.result_state = device_->collectives().result_state();
  const ArenaUse use = placed ? ArenaUse::kInPlace : ArenaUse::kPacked;
  return MoveTensors(staged, arena.chunk_bytes(), [&](const StagedWork& work) {
    return arena.Run(work, use, call_chunk, result_of);
  });
}

Executor::Outcome Executor::ReduceOnDevice(std::span<const Request> requests,
                                           std::span<Task* const> tasks, const CallTag& tag) {
  const Request& first = requests[0];
  const StagedCall staged{.requests = requests,
                          .tasks = tasks,
                          .use = {.has_input = true, .has_output = true},
                          .prescale = first.prescale};
  const bool has_arena = device_ != nullptr && device_->arena() != nullptr;
  if (has_arena && device_->collectives().Reduces(first.type, first.reduce_op)) {
    return CallInArena(
        staged, ResultPlace::kAnywhere,
        [&](const DeviceValues& values, uint64_t chunk, device::DeviceStream& stream) {
          return device_->collectives().AllReduce(TagOf(tag, chunk), values, ReductionOf(first),
                                                  stream);
        });
  }
  const uint64_t element_bytes = ElementBytes(first.type);
  const auto reduce = [&](MutableBytes values, uint64_t chunk) {
    return Transfer(tasks, values.size(), [&] {
      return collectives_.AllReduce(
          TagOf(tag, chunk), Values{values.data(), values.size() / element_bytes, first.type},
          ReductionOf(first));
    });
  };
  return Stage(staged, reduce);
}

// The root copies its input to its own output on the way through the ring or the arena, if these
// are apart.
Executor::Outcome Executor::BroadcastStaged(const Request& request, Task* task,
                                            const CallTag& tag) {
  const bool is_root = collectives_.rank() == request.root;
  const bool is_apart =
      task != nullptr && task->submission.on_device->input != task->submission.on_device->output;
  const auto send = [&](MutableBytes values, uint64_t chunk) {
    return Transfer({&task, 1}, values.size(), [&] {
      return collectives_.Broadcast(TagOf(tag, chunk), values, request.root);
    });
  };
  const StagedCall staged{.requests = {&request, 1},
                          .tasks = {&task, 1},
                          .use = {.has_input = is_root, .has_output = !is_root || is_apart},
                          .needs_zeros = false};
  const bool has_arena = device_ != nullptr && device_->arena() != nullptr;
  if (!has_arena || !device_->collectives().has_broadcast()) return Stage(staged, send);
  return CallInArena(staged, ResultPlace::kInPlace,
                     [&](const DeviceValues& values, uint64_t chunk, device::DeviceStream& stream) {
                       return device_->collectives().Broadcast(TagOf(tag, chunk), values,
                                                               request.root, stream);
                     });
}

Executor::Outcome Executor::Broadcast(const Request& request, Task* task, const CallTag& tag) {
  const uint64_t bytes = request.byte_count();
  // A joined rank takes part, because the algorithms expect all ranks. It drops what it receives.
  std::unique_ptr<std::byte[]> unwanted;
  if (task == nullptr) unwanted = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* const output = task == nullptr ? unwanted.get() : task->submission.output;
  if (collectives_.rank() == request.root) CopyIfApart(output, task->submission.input, bytes);
  Outcome outcome = Transfer({&task, 1}, bytes, [&] {
    return collectives_.Broadcast(tag, {output, bytes}, request.root);
  });
  if (!outcome) KeepIfWritten(std::move(unwanted));
  return outcome;
}

// The result is in memory of the host, also if the input is on a GPU. The copy of that input is
// kept as other memory of a call that has failed.
Executor::Outcome Executor::PerformWithResult(const Response& response, Task* task,
                                              const CallTag& tag) {
  const Request& request = response.tensors.front();
  const std::byte* input = task == nullptr ? nullptr : task->submission.input;
  std::vector<std::byte> staged;
  if (task != nullptr && request.memory == MemoryKind::kDevice) {
    staged.resize(task->submission.request.byte_count());
    size_t end = 0;
    const auto copy = [&](MutableBytes values, uint64_t) -> Outcome {
      std::copy(values.begin(), values.end(), staged.begin() + static_cast<ptrdiff_t>(end));
      end += values.size();
      return CallOutcome::kDone;
    };
    LMDBIO_TRY_VOID(Stage({.requests = {&task->submission.request, 1},
                           .tasks = {&task, 1},
                           .use = {.has_input = true}},
                          copy));
    input = staged.data();
  }
  Outcome outcome =
      request.operation == Operation::kAllGather  ? AllGather(response, task, input, tag)
      : request.operation == Operation::kAllToAll ? AllToAll(response, task, input, tag)
                                                  : ReduceScatter(request, task, input, tag);
  if (!outcome && !staged.empty()) KeepIfWritten(std::move(staged));
  // Ranks may have had different numbers of chunks.
  if (request.memory == MemoryKind::kDevice && device_ != nullptr) device_->ring().Restart();
  return outcome;
}

Executor::Outcome Executor::AllGather(const Response& response, Task* task, const std::byte* input,
                                      const CallTag& tag) {
  const Request& request = response.tensors.front();
  const uint64_t row_bytes = request.row_element_count() * ElementBytes(request.type);
  std::vector<uint64_t> part_bytes;
  uint64_t bytes = 0;
  for (const int64_t rows : response.rows) {
    part_bytes.push_back(static_cast<uint64_t>(rows) * row_bytes);
    bytes += part_bytes.back();
  }
  std::vector<std::byte> all(bytes);
  const uint64_t mine_bytes = part_bytes[static_cast<size_t>(collectives_.rank())];
  Outcome outcome = Transfer({&task, 1}, bytes, [&] {
    return collectives_.AllGather(tag, Bytes(input, mine_bytes), all, part_bytes);
  });
  if (!outcome) {
    KeepIfWritten(std::move(all));
  } else if (task != nullptr) {
    task->result = std::move(all);
    task->result_rows = response.rows;
  }
  return outcome;
}

// response.rows[i * ranks + k] are the rows that rank i sends to rank k. So row `rank` has what
// this rank sends, and column `rank` has what it receives.
Executor::Outcome Executor::AllToAll(const Response& response, Task* task, const std::byte* input,
                                     const CallTag& tag) {
  const Request& request = response.tensors.front();
  const uint64_t row_bytes = request.row_element_count() * ElementBytes(request.type);
  const auto size = static_cast<size_t>(collectives_.size());
  const auto rank = static_cast<size_t>(collectives_.rank());
  std::vector<uint64_t> send_bytes(size);
  std::vector<uint64_t> receive_bytes(size);
  std::vector<int64_t> received_rows(size);
  uint64_t sent = 0;
  uint64_t received = 0;
  for (size_t other = 0; other < size; ++other) {
    send_bytes[other] = static_cast<uint64_t>(response.rows[rank * size + other]) * row_bytes;
    received_rows[other] = response.rows[other * size + rank];
    receive_bytes[other] = static_cast<uint64_t>(received_rows[other]) * row_bytes;
    sent += send_bytes[other];
    received += receive_bytes[other];
  }
  std::vector<std::byte> all(received);
  Outcome outcome = Transfer({&task, 1}, received, [&] {
    return collectives_.AllToAll(tag, Bytes(input, sent), send_bytes, all, receive_bytes);
  });
  if (!outcome) {
    KeepIfWritten(std::move(all));
  } else if (task != nullptr) {
    task->result = std::move(all);
    task->result_rows = std::move(received_rows);
  }
  return outcome;
}

Executor::Outcome Executor::ReduceScatter(const Request& request, Task* task,
                                          const std::byte* input, const CallTag& tag) {
  const uint64_t row_count = request.row_element_count();
  std::vector<uint64_t> counts = EvenSizes(
      request.shape.empty() ? 1 : static_cast<uint64_t>(request.shape[0]), collectives_.size());
  const uint64_t own_rows = counts[static_cast<size_t>(collectives_.rank())];
  for (uint64_t& count : counts) count *= row_count;
  const uint64_t bytes = request.byte_count();
  const uint64_t count = request.element_count();
  // The input must not change. So a prescale needs a copy, and a joined rank needs zeros.
  std::vector<std::byte> values;
  auto* brought = const_cast<std::byte*>(input);
  if (task == nullptr || request.prescale != 1) {
    values.resize(bytes);
    if (task != nullptr) CopyPrescaled(request, values.data(), input, count);
    brought = values.data();
  }
  const uint64_t own_count = own_rows * row_count;
  std::vector<std::byte> part(own_count * ElementBytes(request.type));
  Outcome outcome = Transfer({&task, 1}, bytes, [&] {
    return collectives_.ReduceScatter(tag, Values{brought, count, request.type}, part.data(),
                                      counts, ReductionOf(request));
  });
  if (!outcome) {
    KeepIfWritten(std::move(values));
    KeepIfWritten(std::move(part));
  } else if (task != nullptr) {
    task->result = std::move(part);
    task->result_rows = {static_cast<int64_t>(own_rows)};
  }
  return outcome;
}

}  // namespace lmdbio::sync
