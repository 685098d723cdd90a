// Goal: a synchronizer reduces tensors on GPUs by NCCL as by any other way: buckets, placed
// gradients, broadcasts and ranks that have joined, on one host or several; and refuses options
// that NCCL cannot follow. Oracle: sums of whole numbers, which are exact in each order. Method:
// ranks are threads with a GPU each, by the stand-ins for the driver and for NCCL.
#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/device_job.h"
#include "tests/sync/over_nccl/nccl_rank.h"

namespace lmdbio::sync {
namespace {

using device::DeviceAddress;
using device::DeviceMemory;
using test::EmulatedGpu;
using test::Findings;
using test::Good;
using test::GradientOf;
using test::OnDevice;
using test::ProgramOnDevice;
using test::SumOf;
using test::SumOnDevice;
using Lines = std::vector<std::string>;

// Each rank has a GPU of its own.
struct NcclSyncJob {
  explicit NcclSyncJob(int its_rank_count, uint64_t seed = 1, int hosts = 1)
      : gpu(seed), rank_count(its_rank_count), ranks_per_host(its_rank_count / hosts) {
    gpu->SetDeviceCount(test::kEmulatedDevicesMax);
    options.device_collective = "nccl";
    options.device_buffer_bytes = 8192;
  }

  using Body = std::function<void(Synchronizer& synchronizer, ProgramOnDevice& program)>;
  // The body returns, and the synchronizer is gone.
  void RunAndLeave(const Body& body) {
    ranks::RunAsThreads({.rank_count = rank_count, .ranks_per_host = ranks_per_host},
                        [&](ranks::Group& group) {
                          SyncOptions its = options;
                          its.device = static_cast<uint32_t>(group.rank()) + 1;
                          auto made = Synchronizer::Create(group, its, {});
                          if (!made)
                            return wrong.Add(group.rank(), "Create: " + made.error().message());
                          ProgramOnDevice program(gpu.Open(group.rank()));
                          body(**made, program);
                          made->reset();
                          static_cast<void>(group.Barrier());
                        });
  }
  // The same with Shutdown.
  void Run(const Body& body) {
    RunAndLeave([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
      body(synchronizer, program);
      wrong.Expect(synchronizer.Shutdown(), synchronizer.rank(), "Shutdown");
    });
    wrong.Expect(gpu->Objects().allocations == 0, 0, "memory is left");
  }

  EmulatedGpu gpu;
  int rank_count;
  int ranks_per_host;
  SyncOptions options;
  Findings wrong;
};

// Those of this build are empty without nvcc.
bool HasKernels() {
  if (!kernels::BuiltInKernels().bytes.empty()) return true;
  WARN("skipped: this build has no kernels");
  return false;
}

TEST_CASE("Buckets of tensors on GPUs are reduced by NCCL, on one host or several", "[nccl_sync]") {
  if (!HasKernels()) return;
  const auto [rank_count, hosts] =
      GENERATE(table<int, int>({{1, 1}, {2, 1}, {4, 1}, {4, 2}, {3, 3}}));
  const auto coordinator = GENERATE("topo", "horovod");
  CAPTURE(rank_count, hosts, coordinator);
  constexpr std::array<size_t, 6> kCounts = {1, 500, 16, 3001, 7, 640};
  NcclSyncJob job(rank_count, static_cast<uint64_t>(rank_count + hosts), hosts);
  job.options.coordinator = coordinator;
  job.Run([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    std::vector<DeviceMemory> memories;
    for (const size_t count : kCounts) memories.push_back(program.Allocate(count * sizeof(float)));
    for (int iteration = 0; iteration < 12; ++iteration) {
      std::vector<Handle> handles;
      for (size_t i = 0; i < kCounts.size(); ++i) {
        program.WriteLater(
            memories[i].begin(),
            test::BytesOfAll(GradientOf(rank, static_cast<int>(i), iteration, kCounts[i])));
        Submission one = SumOnDevice(fmt::format("w{}", i), program, memories[i],
                                     static_cast<int64_t>(kCounts[i]));
        one.request.prescale = iteration % 2 == 0 ? 1 : 2;
        one.request.postscale = iteration % 3 == 0 ? 1 : 0.25;
        handles.push_back(Good(synchronizer.Submit(std::move(one))));
      }
      for (size_t i = 0; i < kCounts.size(); ++i) {
        job.wrong.Expect(handles[i].WaitOn(program.stream().native()), rank, "WaitOn");
        auto sums = SumOf(rank_count, static_cast<int>(i), iteration, kCounts[i]);
        const float scale =
            (iteration % 2 == 0 ? 1.0F : 2.0F) * (iteration % 3 == 0 ? 1.0F : 0.25F);
        for (float& sum : sums) sum *= scale;
        job.wrong.Expect(program.ReadNow(memories[i].begin(), kCounts[i] * sizeof(float)) ==
                             test::BytesOfAll(sums),
                         rank, fmt::format("iteration {}, w{}", iteration, i));
      }
    }
    const SyncCounters counters = synchronizer.counters();
    job.wrong.Expect(counters.device_reduced_count == 12 * kCounts.size(), rank,
                     "not reduced by GPUs");
    job.wrong.Expect(counters.device_tensor_count == 0, rank, "values have passed the host");
    bool is_described = false;
    for (const std::string& line : synchronizer.Description()) {
      is_described = is_described || line == fmt::format(
                                                 "reductions by NCCL 2.28.9: {} ranks with "
                                                 "a GPU each; arenas of 8192 bytes",
                                                 rank_count);
    }
    job.wrong.Expect(is_described, rank, "not described");
  });
  CHECK(job.wrong.lines() == Lines());
}

TEST_CASE("Tensors of each type are reduced by NCCL", "[nccl_sync]") {
  if (!HasKernels()) return;
  NcclSyncJob job(2);
  job.Run([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(800);
    const auto check = [&]<typename T>(DataType type, const std::vector<T>& values, ReduceOp op,
                                       T expected) {
      program.WriteLater(memory.begin(), test::BytesOfAll(values));
      Handle handle = Good(synchronizer.Submit(
          SumOnDevice("w", program, memory, static_cast<int64_t>(values.size()), type, op)));
      job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
      job.wrong.Expect(program.ReadNow(memory.begin(), values.size() * sizeof(T)) ==
                           test::BytesOfAll(std::vector<T>(values.size(), expected)),
                       rank, fmt::format("{} {}", NameOf(op), NameOf(type)));
    };
    check(DataType::kFloat64, std::vector<double>(9, rank + 2.0), ReduceOp::kProduct, 6.0);
    check(DataType::kInt32, std::vector<int32_t>(9, rank + 2), ReduceOp::kMax, 3);
    check(DataType::kInt64, std::vector<int64_t>(9, rank + 2), ReduceOp::kMin, int64_t{2});
    // 2 and 3 become 5.
    check(DataType::kFloat16, std::vector<uint16_t>(9, rank == 0 ? 0x4000 : 0x4200), ReduceOp::kSum,
          uint16_t{0x4500});
    check(DataType::kBFloat16, std::vector<uint16_t>(9, rank == 0 ? 0x4000 : 0x4040),
          ReduceOp::kSum, uint16_t{0x40A0});
  });
  CHECK(job.wrong.lines() == Lines());
}

TEST_CASE("NCCL reduces placed gradients where they are, beside ranks that pack", "[nccl_sync]") {
  if (!HasKernels()) return;
  constexpr size_t kFloats = 3000;  // more than a buffer
  NcclSyncJob job(3, 7);
  job.options.device_gradient_bytes = kFloats * sizeof(float);
  job.Run([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const bool is_placed = rank != 1;
    const DeviceAddress place = Good(synchronizer.PlaceOnDevice(kFloats * sizeof(float))).begin;
    const DeviceMemory own = program.Allocate(kFloats * sizeof(float));
    const DeviceAddress address = is_placed ? place : own.begin();
    for (int iteration = 0; iteration < 4; ++iteration) {
      program.WriteLater(address, test::BytesOfAll(GradientOf(rank, 0, iteration, kFloats)));
      Handle handle = Good(synchronizer.Submit(
          OnDevice(AllReduceOf("w", nullptr, nullptr, kFloats), program, address, address)));
      job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
      job.wrong.Expect(program.ReadNow(address, kFloats * sizeof(float)) ==
                           test::BytesOfAll(SumOf(3, 0, iteration, kFloats)),
                       rank, fmt::format("iteration {}", iteration));
    }
    const uint64_t copies = synchronizer.counters().device_copy_count;
    job.wrong.Expect(copies == (is_placed ? 0 : 16), rank, fmt::format("{} copies", copies));
  });
  CHECK(job.wrong.lines() == Lines());
}

TEST_CASE("NCCL broadcasts, and a rank that has joined brings zeros", "[nccl_sync]") {
  if (!HasKernels()) return;
  NcclSyncJob job(4, 3, 2);
  job.Run([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(20'000);
    program.WriteLater(memory.begin(), std::string(20'000, static_cast<char>('a' + rank)));
    Submission copy = SumOnDevice("b", program, memory, 5000);
    copy.request.operation = Operation::kBroadcast;
    copy.request.root = 2;
    Handle copied = Good(synchronizer.Submit(std::move(copy)));
    job.wrong.Expect(copied.WaitOn(program.stream().native()), rank, "broadcast");
    job.wrong.Expect(program.ReadNow(memory.begin(), 20'000) == std::string(20'000, 'c'), rank,
                     "other bytes");
    job.wrong.Expect(synchronizer.counters().device_tensor_count == 0, rank,
                     "a broadcast passes the host");
    if (rank != 3) {
      program.WriteLater(memory.begin(), test::BytesOfAll(std::vector<float>(100, 2.0F)));
      Handle handle = Good(synchronizer.Submit(SumOnDevice("w", program, memory, 100)));
      job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
      job.wrong.Expect(
          program.ReadNow(memory.begin(), 400) == test::BytesOfAll(std::vector<float>(100, 6.0F)),
          rank, "another sum");
    }
    Submission join;
    join.request.operation = Operation::kJoin;
    job.wrong.Expect(Good(synchronizer.Submit(std::move(join))).Wait(), rank, "join");
  });
  CHECK(job.wrong.lines() == Lines());
}

// The first rank that comes to the call is the one that fails.
TEST_CASE("A failure of NCCL is told with the bucket, and to the other rank by name",
          "[nccl_sync]") {
  if (!HasKernels()) return;
  const bool is_late = GENERATE(false, true);
  CAPTURE(is_late);
  NcclSyncJob job(2);
  const test::EmulatedNcclControl& nccl = test::NcclControl();
  nccl.Reset();
  (is_late ? nccl.FailLater : nccl.FailCall)("ncclAllReduce", 1, 3);
  std::array<std::string, 2> errors;
  std::array<ErrorCode, 2> codes = {};
  job.RunAndLeave([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const auto rank = static_cast<size_t>(synchronizer.rank());
    const DeviceMemory memory = program.Allocate(400);
    const Status failed =
        Good(synchronizer.Submit(SumOnDevice("conv1", program, memory, 100))).Wait();
    if (failed) return job.wrong.Add(synchronizer.rank(), "no error");
    errors[rank] = failed.error().message();
    codes[rank] = failed.error().code();
    program.WriteLater(memory.begin(), "still works");
    job.wrong.Expect(program.ReadNow(memory.begin(), 11) == "still works", synchronizer.rank(),
                     "the GPU does not work");
  });
  CHECK(job.wrong.lines() == Lines());
  const size_t victim = codes[0] == ErrorCode::kInternal ? 0 : 1;
  const std::string reason = fmt::format(
      "bucket of tensor 'conv1': GPU {}: ncclAllReduce: NCCL: internal error: a fault of the test",
      victim);
  CHECK(codes[victim] == ErrorCode::kInternal);
  CHECK_THAT(errors[victim], ContainsSubstring(reason));
  CHECK(codes[1 - victim] == ErrorCode::kPeerFailed);
  CHECK_THAT(errors[1 - victim], ContainsSubstring(fmt::format("rank {}: {}", victim, reason)));
  nccl.Reset();
}

// --- Refusals ----------------------------------------------------------------------------------

// The errors of two ranks with these options.
using OptionsOf = std::function<void(SyncOptions& options, int rank)>;
std::array<std::string, 2> ErrorsOfCreate(const OptionsOf& options_of, ErrorCode code) {
  std::array<std::string, 2> errors;
  ranks::RunAsThreads({.rank_count = 2}, [&](ranks::Group& group) {
    SyncOptions options;
    options.device_collective = "nccl";
    options.device = static_cast<uint32_t>(group.rank()) + 1;
    options_of(options, group.rank());
    const auto made = Synchronizer::Create(group, options, {});
    std::string& mine = errors[static_cast<size_t>(group.rank())];
    if (made) {
      mine = "no error";
    } else if (made.error().code() != code && made.error().code() != ErrorCode::kPeerFailed) {
      mine = "another code: " + made.error().message();
    } else {
      mine = made.error().message();
    }
  });
  return errors;
}

TEST_CASE("NCCL needs the option device on every rank", "[nccl_sync]") {
  const EmulatedGpu gpu;
  const std::string message =
      "device_collective: 'nccl' needs a GPU for each rank: set the option device to 1 + the "
      "number of the GPU";
  CHECK(ErrorsOfCreate(
            [](SyncOptions& options, int rank) {
              if (rank == 1) options.device = 0;
            },
            ErrorCode::kInvalidArgument) ==
        std::array<std::string, 2>{"rank 1: " + message, message});
  CHECK(ErrorsOfCreate([](SyncOptions& options, int) { options.device = 0; },
                       ErrorCode::kInvalidArgument) ==
        std::array<std::string, 2>{message, message});
}

TEST_CASE("NCCL has no order of streams but its own", "[nccl_sync]") {
  const EmulatedGpu gpu;
  const std::string order = GENERATE("event", "mark");
  const std::string message =
      "device_order: '" + order +
      "' is not possible with device_collective 'nccl', whose kernels wait for each other; use "
      "'auto' or 'host'";
  CHECK(ErrorsOfCreate([&](SyncOptions& options, int) { options.device_order = order; },
                       ErrorCode::kInvalidArgument) ==
        std::array<std::string, 2>{message, message});
}

TEST_CASE("The order of the host is that of NCCL", "[nccl_sync]") {
  if (!HasKernels()) return;
  NcclSyncJob job(2);
  job.options.device_order = "host";
  job.Run([](Synchronizer&, ProgramOnDevice&) {});
  CHECK(job.wrong.lines() == Lines());
}

TEST_CASE("Two ranks of a synchronizer on one GPU are refused by NCCL's name", "[nccl_sync]") {
  const EmulatedGpu gpu;
  const std::string uuid = gpu.Open(0)->facts().uuid;
  const std::string message = "the ranks cannot use NCCL: ranks 0 and 1 share " + uuid +
                              ", and NCCL needs a GPU for each rank";
  CHECK(ErrorsOfCreate([](SyncOptions& options, int) { options.device = 1; },
                       ErrorCode::kUnsupported) == std::array<std::string, 2>{message, message});
  CHECK(gpu->Objects().total() == 0);
}

}  // namespace
}  // namespace lmdbio::sync
