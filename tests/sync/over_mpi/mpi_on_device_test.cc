// Goal: MPI reduces tensors on GPUs, alone and by a whole synchronizer; values that it cannot
// reduce there pass through the host. Oracle: serial sums of whole numbers. Method: ranks are
// processes of MPI, whose calls take memory of the stand-in for a GPU (tests/emulated_mpi).
#include "lmdbio/sync/over_mpi/mpi_on_device.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "lmdbio/sync/over_mpi/mpi_device_memory.h"
#include "tests/ranks/launcher/world_group.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/device_job.h"
#include "tests/sync/over_device/exact_values.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::sync {
namespace {

using device::DeviceAddress;
using device::DeviceMemory;
using test::EmulatedGpu;
using test::ExactValuesOfRanks;
using test::Good;
using test::GradientOf;
using test::kOps;
using test::kTypes;
using test::Must;
using test::OnDevice;
using test::ProgramOnDevice;
using test::SumOf;
using test::SumOnDevice;
using test::ValuesOfRanks;

int WorldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

TEST_CASE("The MPI of this program takes memory of GPUs", "[mpi_on_device]") {
  if (QueryMpiDeviceMemory() == MpiDeviceMemory::kUnknown) return;
  CHECK(QueryMpiDeviceMemory() == MpiDeviceMemory::kTaken);
  CHECK(CheckMpiDeviceMemory(QueryMpiDeviceMemory()));
}

TEST_CASE("MPI reduces integers, and sums and products of floats, on GPUs", "[mpi_on_device]") {
  const uint64_t piece_bytes = GENERATE(uint64_t{64}, ranks::kPieceBytesMax);
  CAPTURE(piece_bytes);
  const EmulatedGpu gpu(3);
  ProgramOnDevice program(gpu.Open(WorldRank() % test::kEmulatedDevices));
  const auto library = Good(MpiOnDevice(MPI_COMM_WORLD, piece_bytes));
  CHECK(library->name() == "MPI");
  const DeviceMemory memory = program.Allocate(4096);
  uint64_t seed = 0;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      CAPTURE(NameOf(type), NameOf(op));
      const bool is_half = type == DataType::kFloat16 || type == DataType::kBFloat16;
      const bool is_extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
      const bool is_taken = !is_half && !(is_extreme && IsFloating(type));
      REQUIRE(library->Reduces(type, op) == is_taken);
      if (!is_taken) continue;
      for (const size_t count : {size_t{1}, size_t{333}}) {
        const ValuesOfRanks all =
            ExactValuesOfRanks(WorldSize(), {.count = count, .type = type}, ++seed);
        const std::string& own = all.of[static_cast<size_t>(WorldRank())];
        program.WriteLater(memory.begin() + 64, own);
        Must(program.stream().Synchronize());
        Must(library->AllReduce({memory.begin() + 64, count, type}, op));
        CHECK(all.Compare(program.ReadNow(memory.begin() + 64, own.size()), op) == "");
      }
    }
  }
}

TEST_CASE("MPI copies bytes of a GPU to those of other ranks", "[mpi_on_device]") {
  const uint64_t piece_bytes = GENERATE(uint64_t{100}, ranks::kPieceBytesMax);
  CAPTURE(piece_bytes);
  const EmulatedGpu gpu(4);
  ProgramOnDevice program(gpu.Open(0));
  const auto library = Good(MpiOnDevice(MPI_COMM_WORLD, piece_bytes));
  const DeviceMemory memory = program.Allocate(1000);
  for (int root = 0; root < WorldSize(); ++root) {
    program.WriteLater(memory.begin(), std::string(1000, static_cast<char>('a' + WorldRank())));
    Must(program.stream().Synchronize());
    Must(library->Broadcast({memory.begin() + 1, 777}, root));
    const char own = static_cast<char>('a' + WorldRank());
    CHECK(program.ReadNow(memory.begin(), 1000) ==
          std::string(1, own) + std::string(777, static_cast<char>('a' + root)) +
              std::string(222, own));
  }
}

TEST_CASE("A failure of MPI has MPI's words", "[mpi_on_device]") {
  const EmulatedGpu gpu;
  const auto library = Good(MpiOnDevice(MPI_COMM_WORLD));
  const DeviceMemory memory = Good(gpu.Open(0)->Allocate(64));
  const Status wrong = library->Broadcast(memory.span(), WorldSize() + 5);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code() == ErrorCode::kInternal);
  CHECK(wrong.error().message().find("MPI_Bcast: ") == 0);
}

// --- A whole synchronizer ------------------------------------------------------------------------

// Those of this build are empty without nvcc.
bool HasKernels() {
  if (!kernels::BuiltInKernels().bytes.empty()) return true;
  WARN("skipped: this build has no kernels");
  return false;
}

// One synchronizer of all ranks, which share GPU 0 or not.
struct MpiSyncJob {
  explicit MpiSyncJob(uint64_t seed, bool do_share) : gpu(seed) {
    options.device_collective = "mpi";
    options.device_buffer_bytes = 8192;
    ordinal = do_share ? 0 : WorldRank() % test::kEmulatedDevices;
    options.device = static_cast<uint32_t>(ordinal) + 1;
  }

  Result<std::unique_ptr<Synchronizer>> Create() {
    SyncParts parts;
    parts.device_library = Good(MpiOnDevice(MPI_COMM_WORLD));
    return Synchronizer::Create(*world, options, std::move(parts));
  }

  const EmulatedGpu gpu;
  const std::unique_ptr<ranks::Group> world = Good(test::WorldGroup());
  SyncOptions options;
  int ordinal = 0;
};

TEST_CASE("Buckets of tensors on GPUs are reduced by MPI", "[mpi_on_device]") {
  if (!HasKernels()) return;
  const bool do_share = GENERATE(true, false);
  const auto coordinator = GENERATE("topo", "horovod");
  CAPTURE(do_share, coordinator);
  constexpr std::array<size_t, 6> kCounts = {1, 500, 16, 3001, 7, 640};
  MpiSyncJob job(2, do_share);
  job.options.coordinator = coordinator;
  const auto synchronizer = Good(job.Create());
  ProgramOnDevice program(job.gpu.Open(job.ordinal));
  std::vector<DeviceMemory> memories;
  for (const size_t count : kCounts) memories.push_back(program.Allocate(count * sizeof(float)));
  for (int iteration = 0; iteration < 12; ++iteration) {
    CAPTURE(iteration);
    std::vector<Handle> handles;
    for (size_t i = 0; i < kCounts.size(); ++i) {
      program.WriteLater(
          memories[i].begin(),
          test::BytesOfAll(GradientOf(WorldRank(), static_cast<int>(i), iteration, kCounts[i])));
      Submission one = SumOnDevice(fmt::format("w{}", i), program, memories[i],
                                   static_cast<int64_t>(kCounts[i]));
      one.request.prescale = iteration % 2 == 0 ? 1 : 2;
      one.request.postscale = iteration % 3 == 0 ? 1 : 0.25;
      handles.push_back(Good(synchronizer->Submit(std::move(one))));
    }
    const float scale = (iteration % 2 == 0 ? 1.0F : 2.0F) * (iteration % 3 == 0 ? 1.0F : 0.25F);
    for (size_t i = 0; i < kCounts.size(); ++i) {
      Must(handles[i].WaitOn(program.stream().native()));
      auto sums = SumOf(WorldSize(), static_cast<int>(i), iteration, kCounts[i]);
      for (float& sum : sums) sum *= scale;
      CHECK(program.ReadNow(memories[i].begin(), kCounts[i] * sizeof(float)) ==
            test::BytesOfAll(sums));
    }
  }
  CHECK(synchronizer->counters().device_reduced_count == 12 * kCounts.size());
  CHECK(synchronizer->counters().device_tensor_count == 0);
  CHECK(std::ranges::count(synchronizer->Description(),
                           fmt::format("reductions by MPI: {} ranks; arenas of 8192 bytes; through "
                                       "the host: float16, bfloat16, and minima and maxima of "
                                       "floats",
                                       WorldSize())) == 1);
  Must(synchronizer->Shutdown());
}

// Sums one tensor of ones.
template <typename T>
std::string SumOfOnes(Synchronizer& synchronizer, ProgramOnDevice& program, DataType type,
                      ReduceOp op, T one) {
  const DeviceMemory memory = program.Allocate(5 * sizeof(T));
  program.WriteLater(memory.begin(), test::BytesOfAll(std::vector<T>(5, one)));
  Handle handle = Good(
      synchronizer.Submit(SumOnDevice(std::string(NameOf(type)), program, memory, 5, type, op)));
  Must(handle.WaitOn(program.stream().native()));
  return program.ReadNow(memory.begin(), 5 * sizeof(T));
}

TEST_CASE("Values that MPI cannot reduce on a GPU pass through the host", "[mpi_on_device]") {
  if (!HasKernels()) return;
  MpiSyncJob job(5, false);
  const auto synchronizer = Good(job.Create());
  ProgramOnDevice program(job.gpu.Open(job.ordinal));
  const double size = WorldSize();
  CHECK(SumOfOnes(*synchronizer, program, DataType::kFloat16, ReduceOp::kSum,
                  test::Encode(test::kHalf, 1)) ==
        test::BytesOfAll(std::vector(5, test::Encode(test::kHalf, size))));
  CHECK(SumOfOnes(*synchronizer, program, DataType::kFloat32, ReduceOp::kMax, 3.0F) ==
        test::BytesOfAll(std::vector(5, 3.0F)));
  CHECK(synchronizer->counters().device_tensor_count == 2);
  CHECK(synchronizer->counters().device_reduced_count == 0);
  CHECK(SumOfOnes(*synchronizer, program, DataType::kInt64, ReduceOp::kMin, int64_t{4}) ==
        test::BytesOfAll(std::vector(5, int64_t{4})));
  CHECK(synchronizer->counters().device_reduced_count == 1);
  Must(synchronizer->Shutdown());
}

TEST_CASE("MPI reduces placed gradients where they are, and broadcasts", "[mpi_on_device]") {
  if (!HasKernels()) return;
  constexpr size_t kFloats = 3000;  // more than a buffer
  MpiSyncJob job(7, false);
  job.options.device_gradient_bytes = kFloats * sizeof(float);
  const auto synchronizer = Good(job.Create());
  ProgramOnDevice program(job.gpu.Open(job.ordinal));
  const bool is_placed = WorldRank() != 1;
  const DeviceAddress place = Good(synchronizer->PlaceOnDevice(kFloats * sizeof(float))).begin;
  const DeviceMemory own = program.Allocate(kFloats * sizeof(float));
  const DeviceAddress address = is_placed ? place : own.begin();
  for (int iteration = 0; iteration < 4; ++iteration) {
    program.WriteLater(address, test::BytesOfAll(GradientOf(WorldRank(), 0, iteration, kFloats)));
    Handle handle = Good(synchronizer->Submit(
        OnDevice(AllReduceOf("w", nullptr, nullptr, kFloats), program, address, address)));
    Must(handle.WaitOn(program.stream().native()));
    CHECK(program.ReadNow(address, kFloats * sizeof(float)) ==
          test::BytesOfAll(SumOf(WorldSize(), 0, iteration, kFloats)));
  }
  CHECK(synchronizer->counters().device_copy_count == (is_placed ? 0U : 16U));
  const int root = WorldSize() - 1;
  program.WriteLater(own.begin(), std::string(9000, static_cast<char>('a' + WorldRank())));
  Submission copy = SumOnDevice("b", program, own, 2250);
  copy.request.operation = Operation::kBroadcast;
  copy.request.root = root;
  Handle copied = Good(synchronizer->Submit(std::move(copy)));
  Must(copied.WaitOn(program.stream().native()));
  CHECK(program.ReadNow(own.begin(), 9000) == std::string(9000, static_cast<char>('a' + root)));
  CHECK(synchronizer->counters().device_tensor_count == 0);
  Must(synchronizer->Shutdown());
}

TEST_CASE("MPI on GPUs needs the option device and the order of the host", "[mpi_on_device]") {
  MpiSyncJob job(1, false);
  job.options.device = 0;
  const auto without = job.Create();
  REQUIRE_FALSE(without);
  CHECK(without.error().code() == ErrorCode::kInvalidArgument);
  CHECK(without.error().message() ==
        "device_collective: 'mpi' needs a GPU for each rank: set the option device to 1 + the "
        "number of the GPU");
  job.options.device = 1;
  job.options.device_order = "mark";
  const auto ordered = job.Create();
  REQUIRE_FALSE(ordered);
  CHECK(ordered.error().code() == ErrorCode::kInvalidArgument);
  CHECK(ordered.error().message() ==
        "device_order: 'mark' is not possible with device_collective 'mpi', whose calls wait for "
        "other ranks on the host; use 'auto' or 'host'");
}

}  // namespace
}  // namespace lmdbio::sync
