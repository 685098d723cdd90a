// Goal: tensors on a GPU get the bits that the same tensors get on the host, whatever the order in
// which the GPU works, and no call of the driver waits. Oracle: the synchronizer's own path over
// memory of the host.
#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"
#include "tests/sync/engine/device_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using device::DeviceMemory;
using test::DeviceJob;
using test::Good;
using test::Must;
using test::OnDevice;
using test::ProgramOnDevice;
using test::Random;
using test::SumOnDevice;

constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                               DataType::kBFloat16, DataType::kInt32,   DataType::kInt64};

// Values of any type: positive, and small enough that no sum or product is infinite.
std::string ValuesFor(DataType type, int64_t count, uint64_t seed) {
  const size_t width = ElementBytes(type);
  std::string bytes = Random(seed).BytesOf(static_cast<size_t>(count) * width);
  for (size_t end = width; end <= bytes.size(); end += width) {
    bytes[end - 1] = static_cast<char>(bytes[end - 1] & 0x3F);
  }
  return bytes;
}

const std::byte* PointerTo(const std::string& bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

// A tensor on the host and the same on the GPU; `output` is apart from `input`.
struct TensorTwice {
  TensorTwice(ProgramOnDevice& on, const Request& request, std::string values)
      : program(on),
        input(std::move(values)),
        output(input.size(), '\0'),
        device_input(on.Allocate(input.size() + 64)),
        device_output(on.Allocate(input.size() + 64)) {
    submission.request = request;
    submission.input = PointerTo(input);
    submission.output = reinterpret_cast<std::byte*>(output.data());
    on.WriteLater(device_input.begin(), input);
  }

  Submission OfHost() const {
    Submission host = submission;
    host.request.name += ".host";
    return host;
  }
  Submission OfDevice() const {
    return OnDevice(submission, program, device_input.begin(), device_output.begin());
  }

  ProgramOnDevice& program;
  std::string input;
  std::string output;
  DeviceMemory device_input;
  DeviceMemory device_output;
  Submission submission;
};

// Submits a tensor twice. Returns what differs; "" if both results are equal.
std::string DifferenceOf(Synchronizer& synchronizer, TensorTwice& twice) {
  Handle on_host = Good(synchronizer.Submit(twice.OfHost()));
  Handle on_device = Good(synchronizer.Submit(twice.OfDevice()));
  if (const Status status = on_host.Wait(); !status) return status.error().message();
  if (const Status status = on_device.WaitOn(twice.program.stream().native()); !status) {
    return status.error().message();
  }
  const Operation operation = twice.submission.request.operation;
  if (operation == Operation::kAllReduce || operation == Operation::kBroadcast) {
    const std::string found =
        twice.program.ReadNow(twice.device_output.begin(), twice.output.size() + 64);
    if (found != twice.output + std::string(64, '\0')) return "other values";
  } else {
    const Bytes host = on_host.result();
    const Bytes device = on_device.result();
    if (!std::equal(host.begin(), host.end(), device.begin(), device.end())) return "other bytes";
    if (on_host.result_rows() != on_device.result_rows()) return "other rows";
  }
  const std::string kept = twice.program.ReadNow(twice.device_input.begin(), twice.input.size());
  return kept == twice.input ? "" : "another input";
}

struct OperationCase {
  Operation operation;
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1;
  double postscale = 1;
};

constexpr OperationCase kOperations[] = {
    {Operation::kAllReduce},
    {Operation::kAllReduce, ReduceOp::kMin},
    {Operation::kAllReduce, ReduceOp::kMax, 1, 0.5},
    {Operation::kAllReduce, ReduceOp::kProduct, 0.5, 1.0 / 3},
    {Operation::kAllReduce, ReduceOp::kSum, 0.25, 1.0 / 3},
    {Operation::kBroadcast},
    {Operation::kAllGather},
    {Operation::kAllToAll},
    {Operation::kReduceScatter, ReduceOp::kSum, 0.5, 2},
};

Request RequestFor(const OperationCase& one, DataType type, int rank, int size) {
  Request request;
  request.operation = one.operation;
  request.type = type;
  request.reduce_op = one.reduce_op;
  request.prescale = one.prescale;
  request.postscale = one.postscale;
  request.shape = {7, 5};
  request.root = size - 1;
  if (one.operation == Operation::kAllGather) request.shape[0] += rank;
  if (one.operation == Operation::kAllToAll) {
    request.splits.assign(static_cast<size_t>(size), 0);
    request.splits[static_cast<size_t>(rank)] = 3;
    request.splits[0] += 4;
  }
  return request;
}

enum class Kernels { kThere, kMissing };

TEST_CASE("Each operation gives the bits of the host, for each type", "[device_tensors]") {
  const int rank_count = GENERATE(1, 2, 3);
  const Kernels kernels = GENERATE(Kernels::kThere, Kernels::kMissing);
  const auto collective = GENERATE("staged", "auto");
  DeviceJob job(rank_count, static_cast<uint64_t>(rank_count));
  job.options.device_collective = collective;
  for (int rank = 0; rank < rank_count && kernels == Kernels::kMissing; ++rank) {
    job.gpu->FailCall("cuModuleLoadData", static_cast<uint64_t>(rank) + 1,
                      device::driver_code::kNoBinaryForGpu);
  }
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    int number = 0;
    for (const OperationCase& one : kOperations) {
      for (const DataType type : kTypes) {
        Request request = RequestFor(one, type, rank, synchronizer.size());
        request.name = fmt::format("t{}", ++number);
        TensorTwice twice(program, request,
                          ValuesFor(type, static_cast<int64_t>(request.element_count()),
                                    static_cast<uint64_t>(100 * number + rank)));
        const std::string wrong = DifferenceOf(synchronizer, twice);
        job.wrong.Expect(wrong.empty(), rank,
                         fmt::format("{} of {}: {}", NameOf(one.operation), NameOf(type), wrong));
      }
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  const bool has_none = kernels == Kernels::kMissing || kernels::BuiltInKernels().bytes.empty();
  CHECK(job.notes.Has("packed by one copy each") == has_none);
  CHECK(job.notes.Has("do not reduce on their GPUs") == (has_none && collective == "auto"s));
}

TEST_CASE("Tensors of any size are reduced, in place and without elements", "[device_tensors]") {
  const int rank_count = GENERATE(1, 2);
  DeviceJob job(rank_count);
  job.options.device_collective = GENERATE("staged", "auto");
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    // The last has more bytes than the ring and the arena.
    for (const int64_t count : {0, 1, 70'000, 1'500'000, 4'600'000}) {
      const auto size = static_cast<size_t>(count);
      const DeviceMemory memory = program.Allocate(size * sizeof(int32_t) + 64);
      std::vector<int32_t> values(size);
      for (size_t i = 0; i < size; ++i) values[i] = static_cast<int32_t>(i) + rank;
      program.WriteLater(memory.begin(), test::BytesOfAll(values));
      Handle handle = Good(synchronizer.Submit(
          SumOnDevice(fmt::format("t{}", count), program, memory, count, DataType::kInt32)));
      job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
      for (size_t i = 0; i < size; ++i) {
        values[i] = static_cast<int32_t>(i) * rank_count + rank_count * (rank_count - 1) / 2;
      }
      const std::string found = program.ReadNow(memory.begin(), size * sizeof(int32_t));
      job.wrong.Expect(found == test::BytesOfAll(values), rank, fmt::format("{} values", count));
      job.wrong.Expect(handle.Wait(), rank, "Wait");
      job.wrong.Expect(handle.is_done(), rank, "is_done");
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// The work of a training loop: gradients are written on the stream of the program, submitted in
// another order on each rank, and read on the stream. The program never waits for the GPU, and uses
// the names again at once.
TEST_CASE("A program that waits by its stream alone sees all sums", "[device_tensors]") {
  const auto coordinator = GENERATE("topo", "cache");
  const auto collective = GENERATE("staged", "auto");
  constexpr int kTensors = 5;
  constexpr int kIterations = 30;
  for (uint64_t seed = 1; seed <= test::SeedCount(4); ++seed) {
    INFO("seed " << seed);
    DeviceJob job(2, seed);
    job.options.coordinator = coordinator;
    job.options.device_collective = collective;
    job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
      const int rank = synchronizer.rank();
      std::vector<DeviceMemory> gradients;
      std::vector<DeviceMemory> sums;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        gradients.push_back(program.Allocate(400));
        sums.push_back(program.Allocate(400 * kIterations));
      }
      for (int iteration = 0; iteration < kIterations; ++iteration) {
        std::vector<Handle> handles;
        for (int i = 0; i < kTensors; ++i) {
          const int tensor = (i + rank * iteration) % kTensors;
          const auto at = static_cast<size_t>(tensor);
          program.WriteLater(gradients[at].begin(),
                             test::BytesOfAll(test::GradientOf(rank, tensor, iteration, 100)));
          handles.push_back(Good(synchronizer.Submit(
              SumOnDevice(fmt::format("w{}", tensor), program, gradients[at], 100))));
        }
        for (Handle& handle : handles) {
          job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
        }
        for (size_t i = 0; i < kTensors; ++i) {
          Must(program.stream().Copy(sums[i].begin() + 400 * static_cast<uint64_t>(iteration),
                                     gradients[i].begin(), 400));
        }
      }
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        std::string expected;
        for (int iteration = 0; iteration < kIterations; ++iteration) {
          expected += test::BytesOfAll(test::SumOf(2, tensor, iteration, 100));
        }
        const std::string found =
            program.ReadNow(sums[static_cast<size_t>(tensor)].begin(), expected.size());
        job.wrong.Expect(found == expected, rank, fmt::format("sums of w{}", tensor));
      }
    });
    CHECK(job.wrong.lines() == std::vector<std::string>());
  }
}

// Calls of the driver that wait for the device, or make something.
constexpr const char* kCallsOfStarts[] = {
    "cuStreamSynchronize",     "cuMemAlloc",    "cuMemFree",       "cuMemHostRegister",
    "cuMemHostUnregister",     "cuEventCreate", "cuEventDestroy",  "cuStreamCreateWithPriority",
    "cuModuleLoadData",        "cuFuncLoad",    "cuStreamDestroy", "cuModuleGetFunction",
    "cuDevicePrimaryCtxRetain"};

std::map<std::string, uint64_t> CountCalls(const test::EmulatedGpu& gpu) {
  std::map<std::string, uint64_t> counts;
  const device::DriverTable table;
  device::ForEachFunction(table, [&](const char* name, device::FunctionNeed, auto) {
    counts[name] = gpu->CallCount(name);
  });
  return counts;
}

// The calls of `tensors` tensors in `chunks` chunks, over two ranks.
void CheckCalls(const std::map<std::string, uint64_t>& calls, uint64_t tensors, uint64_t chunks,
                bool is_staged) {
  // Each bucket is one chunk here. A tensor is recorded when it is ready, and awaited twice: by the
  // ring or the arena, and by the program.
  const uint64_t copies = calls.at("cuLaunchKernel") + calls.at("cuMemcpyDtoHAsync") +
                          calls.at("cuMemcpyHtoDAsync") + calls.at("cuMemcpyDtoDAsync");
  if (is_staged) {
    CHECK(calls.at("cuEventRecord") == tensors + 3 * chunks);
    CHECK(calls.at("cuStreamWaitEvent") == 2 * tensors + chunks);
    CHECK(copies <= 2 * tensors);
  } else {
    // Each rank packs, announces, unpacks and records; the leader also reduces and announces.
    CHECK(calls.at("cuEventRecord") == tensors + 2 * chunks + chunks / 2);
    CHECK(calls.at("cuStreamWaitEvent") == 2 * tensors);
    CHECK(copies == 2 * chunks + chunks / 2);
    CHECK(calls.at("cuMemcpyDtoHAsync") + calls.at("cuMemcpyHtoDAsync") == 0);
  }
  CHECK(calls.at("cuStreamIsCapturing") == 2 * tensors);
  CHECK(calls.at("cuStreamQuery") == 0);
}

TEST_CASE("In steady state no call of the driver waits or makes anything", "[device_tensors]") {
  constexpr int kRanks = 2;
  constexpr uint64_t kTensors = 6;
  constexpr uint64_t kIterations = 100;
  const auto collective = GENERATE("staged"s, "auto"s);
  DeviceJob job(kRanks);
  job.options.device_collective = collective;
  job.options.stall_report = 0ms;
  std::map<std::string, uint64_t> calls;
  std::array<SyncCounters, kRanks> before;
  std::array<SyncCounters, kRanks> after;
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    std::vector<DeviceMemory> gradients;
    for (uint64_t i = 0; i < kTensors; ++i) gradients.push_back(program.Allocate(4096));
    const auto iterate = [&] {
      std::vector<Handle> handles;
      for (uint64_t i = 0; i < kTensors; ++i) {
        handles.push_back(
            Good(synchronizer.Submit(SumOnDevice(fmt::format("w{}", i), program, gradients[i], 1024,
                                                 DataType::kFloat32, ReduceOp::kMax))));
      }
      for (Handle& handle : handles) {
        job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
        job.wrong.Expect(handle.Wait(), rank, "Wait");
      }
    };
    // Both ranks do nothing else between two of these.
    const auto meet = [&](const char* name) {
      Submission barrier;
      barrier.request.name = name;
      barrier.request.operation = Operation::kBarrier;
      job.wrong.Expect(Good(synchronizer.Submit(std::move(barrier))).Wait(), rank, "barrier");
    };
    for (int i = 0; i < 20; ++i) iterate();
    meet("first");
    if (rank == 0) calls = CountCalls(job.gpu);
    before[static_cast<size_t>(rank)] = synchronizer.counters();
    meet("second");
    for (uint64_t i = 0; i < kIterations; ++i) iterate();
    meet("third");
    if (rank == 0) {
      for (auto& [name, count] : calls) count = job.gpu->CallCount(name.c_str()) - count;
    }
    after[static_cast<size_t>(rank)] = synchronizer.counters();
    meet("fourth");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  for (const char* const name : kCallsOfStarts) {
    INFO(name);
    CHECK(calls.at(name) == 0);
  }
  uint64_t chunks = 0;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    chunks += after[rank].collective_count - before[rank].collective_count;
  }
  const uint64_t tensors = kRanks * kTensors * kIterations;
  CHECK(chunks >= kRanks * kIterations);
  CHECK(chunks <= tensors);
  const bool has_kernels = !kernels::BuiltInKernels().bytes.empty();
  CheckCalls(calls, tensors, chunks, collective == "staged" || !has_kernels);
}

TEST_CASE("A callback finds the result on the GPU", "[device_tensors]") {
  const auto collective = GENERATE("staged", "auto");
  for (uint64_t seed = 1; seed <= test::SeedCount(10); ++seed) {
    INFO("seed " << seed);
    DeviceJob job(2, seed);
    job.options.device_collective = collective;
    std::atomic<int> called{0};
    job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
      const DeviceMemory memory = program.Allocate(400);
      const int rank = synchronizer.rank();
      program.WriteLater(memory.begin(), test::BytesOfAll(test::GradientOf(rank, 0, 0, 100)));
      Submission submission = SumOnDevice("w", program, memory, 100);
      submission.callback = [&](const Status& status) {
        job.wrong.Expect(status, rank, "callback");
        const std::string found = job.gpu.Peek(memory.begin(), 400);
        job.wrong.Expect(found == test::BytesOfAll(test::SumOf(2, 0, 0, 100)), rank, "the sum");
        ++called;
      };
      job.wrong.Expect(Good(synchronizer.Submit(std::move(submission))).Wait(), rank, "Wait");
    });
    CHECK(job.wrong.lines() == std::vector<std::string>());
    CHECK(called == 2);
  }
}

// The stand-in works only while somebody asks it, so nothing is done by chance.
TEST_CASE("Wait, WaitFor, is_done and Shutdown wait for the GPU", "[device_tensors]") {
  const int way = GENERATE(0, 1, 2, 3);
  const auto collective = GENERATE("staged", "auto");
  for (uint64_t seed = 1; seed <= test::SeedCount(10); ++seed) {
    INFO("seed " << seed << ", way " << way);
    DeviceJob job(1, seed);
    job.options.device_collective = collective;
    ProgramOnDevice program(job.gpu.Open());
    const DeviceMemory memory = program.Allocate(400);
    const std::string twice = test::BytesOfAll(std::vector<float>(100, 2.0F));
    job.Run([&](Synchronizer& synchronizer) {
      program.WriteLater(memory.begin(), test::BytesOfAll(std::vector<float>(100, 1.0F)));
      Submission submission = SumOnDevice("w", program, memory, 100);
      submission.request.postscale = 2;
      Handle handle = Good(synchronizer.Submit(std::move(submission)));
      if (way == 0) CHECK(handle.Wait());
      if (way == 1) {
        while (!Good(handle.WaitFor(1ms))) {
        }
      }
      if (way == 2) {
        while (!handle.is_done()) std::this_thread::sleep_for(10us);
      }
      if (way < 3) CHECK(job.gpu.Peek(memory.begin(), 400) == twice);
    });
    CHECK(job.gpu.Peek(memory.begin(), 400) == twice);
    CHECK(job.wrong.lines() == std::vector<std::string>());
  }
}

TEST_CASE("Shutdown waits until the results of all operations are on the GPU", "[device_tensors]") {
  constexpr size_t kTensors = 8;
  const auto collective = GENERATE("staged", "auto");
  for (uint64_t seed = 1; seed <= test::SeedCount(20); ++seed) {
    INFO("seed " << seed);
    DeviceJob job(1, seed);
    job.options.device_collective = collective;
    job.options.fusion_threshold_bytes = 0;  // each tensor is a call, so copies in pile up
    ProgramOnDevice program(job.gpu.Open());
    std::vector<DeviceMemory> memories;
    job.Run([&](Synchronizer& synchronizer) {
      for (size_t i = 0; i < kTensors; ++i) {
        memories.push_back(program.Allocate(400));
        program.WriteLater(memories[i].begin(), test::BytesOfAll(std::vector<float>(100, 1.0F)));
        Submission submission = SumOnDevice(fmt::format("w{}", i), program, memories[i], 100);
        submission.request.postscale = 2;
        CHECK(synchronizer.Submit(std::move(submission)));
      }
    });
    for (const DeviceMemory& memory : memories) {
      CHECK(job.gpu.Peek(memory.begin(), 400) == test::BytesOfAll(std::vector<float>(100, 2.0F)));
    }
    CHECK(job.wrong.lines() == std::vector<std::string>());
  }
}

TEST_CASE("A group of tensors on a GPU is reduced together", "[device_tensors]") {
  DeviceJob job(2);
  job.options.device_collective = GENERATE("staged", "auto");
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    std::vector<DeviceMemory> memories;
    std::vector<Submission> group;
    for (int tensor = 0; tensor < 7; ++tensor) {
      memories.push_back(program.Allocate(40));
      program.WriteLater(memories.back().begin(),
                         test::BytesOfAll(test::GradientOf(rank, tensor, 0, 10)));
      group.push_back(SumOnDevice(fmt::format("w{}", tensor), program, memories.back(), 10));
    }
    std::vector<Handle> handles = Good(synchronizer.SubmitGroup(std::move(group)));
    for (int tensor = 0; tensor < 7; ++tensor) {
      const auto at = static_cast<size_t>(tensor);
      job.wrong.Expect(handles[at].WaitOn(program.stream().native()), rank, "WaitOn");
      job.wrong.Expect(program.ReadNow(memories[at].begin(), 40) ==
                           test::BytesOfAll(test::SumOf(2, tensor, 0, 10)),
                       rank, fmt::format("w{}", tensor));
    }
    job.wrong.Expect(synchronizer.counters().collective_count == 1, rank, "one call");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("Counters, flight record and timeline show the copies", "[device_tensors]") {
  const test::TempDir dir;
  DeviceJob job(1);
  job.options.timeline_path = dir.path() / "trace";
  constexpr int64_t kCount = 2 << 20;  // 8 MiB: two chunks of a rank alone
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const DeviceMemory memory = program.Allocate(kCount * sizeof(float));
    CHECK(Good(synchronizer.Submit(SumOnDevice("conv1", program, memory, kCount))).Wait());
    Submission gather = SumOnDevice("rows", program, memory, 100);
    gather.request.operation = Operation::kAllGather;
    CHECK(Good(synchronizer.Submit(std::move(gather))).Wait());
    const SyncCounters counters = synchronizer.counters();
    CHECK(counters.device_tensor_count == 2);
    CHECK(counters.device_out_bytes == kCount * sizeof(float) + 400);
    CHECK(counters.device_in_bytes == kCount * sizeof(float));
    CHECK(counters.device_copy_count == 5);
    CHECK(counters.device_wait_ns > 0);
    CHECK(counters.tensor_count == 2);
    CHECK(counters.collective_count == 3);
    std::string record;
    for (const std::string& line : synchronizer.FlightRecord()) record += line + "\n";
    CHECK(CountOf(record, "staged       'conv1' 4194304 bytes") == 2);
    CHECK(CountOf(record, "staged       'rows'") == 1);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  const std::string trace = TextOf(dir.path() / "trace.0");
  CHECK(CountOf(trace, R"("name":"copy out")") == 3);
  CHECK(CountOf(trace, R"("args":{"bytes":4194304})") == 4);  // and as many transfers
}

TEST_CASE("Counters and description show the tensors that GPUs reduce", "[device_tensors]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  DeviceJob job(2);
  job.options.device_collective = "auto";
  job.options.device_buffer_bytes = 4096;
  job.options.device_order = "mark";
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(4 * 4096);
    Handle handle = Good(synchronizer.Submit(SumOnDevice("conv1", program, memory, 4 * 1024)));
    job.wrong.Expect(handle.Wait(), rank, "Wait");
    const SyncCounters counters = synchronizer.counters();
    job.wrong.Expect(counters.device_reduced_count == 1, rank, "device_reduced_count");
    job.wrong.Expect(counters.device_reduced_bytes == 4 * 4096, rank, "device_reduced_bytes");
    job.wrong.Expect(counters.device_copy_count == 8, rank, "device_copy_count");
    job.wrong.Expect(counters.collective_count == 4, rank, "collective_count");
    job.wrong.Expect(counters.device_out_bytes + counters.device_tensor_count == 0, rank, "staged");
    std::string lines;
    for (const std::string& line : synchronizer.Description()) lines += line + "\n";
    job.wrong.Expect(lines.find("order 'host'") != std::string::npos, rank, lines);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  CHECK(job.notes.Has("threads of one process"));  // which have no marks
}

TEST_CASE("Messages of MPI with memory of GPUs are refused, and a note says what MPI takes",
          "[device_tensors]") {
  const test::EmulatedGpu gpu(1);
  SyncOptions options;
  const auto group = ranks::SoloGroup();
  options.device_collective = "mpi";
  const auto refused = Synchronizer::Create(*group, options, {});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == ErrorCode::kUnsupported);
  CHECK(refused.error().message() ==
        "device_collective: 'mpi' needs a communicator of an MPI that takes memory of GPUs");
  options.device_collective = "auto";
  for (const uint32_t device : {0U, 1U}) {
    options.device = device;
    SyncParts parts;
    parts.device_note = "a note of MPI";
    const auto made = Good(Synchronizer::Create(*group, options, std::move(parts)));
    const auto lines = made->Description();
    CHECK(std::ranges::count(lines, "a note of MPI") == device);
  }
}

TEST_CASE("GPUs of several hosts reduce by the algorithm and chunks of the options",
          "[device_tensors]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  DeviceJob job(3);
  job.ranks.ranks_per_host = 2;
  job.options.device_collective = "auto";
  const bool is_reproducible = GENERATE(false, true);
  job.options.collective = is_reproducible ? "auto" : "halving";
  job.options.reproducible = is_reproducible;
  const std::string algorithm = is_reproducible ? "direct" : "halving";
  job.options.chunk_bytes = 4096;
  job.options.chunk_depth = 3;
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(40'000);
    program.WriteLater(memory.begin(), test::BytesOfAll(std::vector<int32_t>(10'000, rank + 1)));
    Handle handle =
        Good(synchronizer.Submit(SumOnDevice("w", program, memory, 10'000, DataType::kInt32)));
    job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
    job.wrong.Expect(program.ReadNow(memory.begin(), 40'000) ==
                         test::BytesOfAll(std::vector<int32_t>(10'000, 6)),
                     rank, "another sum");
    job.wrong.Expect(synchronizer.counters().device_reduced_count == 1, rank,
                     "not reduced by GPUs");
    std::string lines;
    for (const std::string& line : synchronizer.Description()) lines += line + "\n";
    const bool is_root = rank != 1;
    const bool names_chunks =
        lines.find("between hosts, reduced by GPUs:\nall others: " + algorithm +
                   ", chunks of 4096 bytes, 3 at once\n") != std::string::npos;
    job.wrong.Expect(names_chunks == is_root, rank, lines);
    job.wrong.Expect(lines.find("; 2 hosts\n") != std::string::npos, rank, lines);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Buckets are large if ranks reduce on their GPUs, and fit into the memory for it",
          "[device_tensors]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  struct Case {
    const char* way;
    uint64_t buffer_bytes;
    const char* buckets;
  };
  const auto [way, buffer_bytes, buckets] =
      GENERATE(Case{"auto", 20 << 20, "buckets up to 16777216 bytes, chosen"},
               Case{"auto", 8 << 20, "buckets up to 8388608 bytes, chosen"},
               Case{"staged", 20 << 20, "buckets up to 1048576 bytes, chosen"});
  CAPTURE(way, buffer_bytes);
  DeviceJob job(2);
  job.options.device_collective = way;
  job.options.device_buffer_bytes = buffer_bytes;
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice&) {
    std::string lines;
    for (const std::string& line : synchronizer.Description()) lines += line + "\n";
    job.wrong.Expect(lines.find(buckets) != std::string::npos, synchronizer.rank(), lines);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A rank that has joined contributes zeros to tensors on a GPU", "[device_tensors]") {
  DeviceJob job(2);
  job.options.device_collective = GENERATE("staged", "auto");
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(400);
    for (int iteration = 0; iteration < 3 && rank == 0; ++iteration) {
      program.WriteLater(memory.begin(),
                         test::BytesOfAll(test::GradientOf(rank, 0, iteration, 100)));
      Handle handle = Good(synchronizer.Submit(SumOnDevice("w", program, memory, 100)));
      job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
      job.wrong.Expect(program.ReadNow(memory.begin(), 400) ==
                           test::BytesOfAll(test::GradientOf(rank, 0, iteration, 100)),
                       rank, "its own values");
    }
    Submission join;
    join.request.operation = Operation::kJoin;
    job.wrong.Expect(Good(synchronizer.Submit(std::move(join))).Wait(), rank, "join");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A handle outlives its synchronizer, and a host tensor is done for any stream",
          "[device_tensors]") {
  DeviceJob job(1);
  std::vector<Handle> handles;
  std::vector<DeviceMemory> kept;
  std::vector<float> values(10, 1.0F);
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    kept.push_back(program.Allocate(40));
    handles.push_back(Good(synchronizer.Submit(SumOnDevice("w", program, kept.back(), 10))));
    handles.push_back(
        Good(synchronizer.Submit(AllReduceOf("h", values.data(), values.data(), 10))));
    CHECK(Good(synchronizer.MemoryOf(values.data())) == MemoryKind::kHost);
    const auto lines = synchronizer.Description();
    CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("GPU 0 (Emulated GPU 0): tensors pass through 4 chunks");
    }));
  });
  ProgramOnDevice program(job.gpu.Open());
  for (Handle& handle : handles) {
    CHECK(handle.Wait());
    CHECK(handle.WaitOn(program.stream().native()));
  }
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

}  // namespace
}  // namespace lmdbio::sync
