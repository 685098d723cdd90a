// Tensors of a GPU pass through an arena there. Oracle: the same arithmetic on the host. The
// stand-in draws the order of the streams by a seed, so a wait that is missing gives wrong values.
#include "lmdbio/sync/on_device/arena_mover.h"

#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lmdbio/sync/over_device/event_wait.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/on_device/random_tensors.h"
#include "tests/sync/on_device/tensors_on_device.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using device::DeviceMemory;
using device::DeviceSpan;
using device::DeviceStream;
using test::EmulatedGpu;
using test::Good;
using test::Must;
using test::ProgramOnDevice;
using test::Random;
using test::RandomTensors;

constexpr uint64_t kArenaBytes = 256;

struct MoverOnDevice {
  explicit MoverOnDevice(uint64_t seed) : gpu(seed) {}

  // Enqueues: each value becomes twice the value.
  Result<CallOutcome> Twice(uint64_t size_bytes, DeviceStream& stream) {
    const std::array<DeviceSpan, 1> values = {DeviceSpan{arena.begin(), size_bytes}};
    LMDBIO_TRY_VOID(packer->Launch(stream, kernels::ReduceWork{.sources = values,
                                                               .targets = values,
                                                               .count = size_bytes / sizeof(float),
                                                               .reduction = {ReduceOp::kSum, 2}}));
    return CallOutcome::kDone;
  }
  Result<StagedResult> Run(const StagedWork& work) {
    return mover->Run(work, ArenaUse::kPacked,
                      [this](uint64_t size_bytes, uint64_t, DeviceStream& stream) {
                        return Twice(size_bytes, stream);
                      });
  }
  bool Drains() const {
    const auto drained =
        LookUntil([this] { return mover->IsIdle(); }, std::chrono::steady_clock::now() + 10s, {});
    return drained && *drained;
  }

  EmulatedGpu gpu;
  std::shared_ptr<device::Device> opened = gpu.Open();
  std::unique_ptr<EventPool> events = Good(EventPool::Make(opened, 8));
  std::unique_ptr<kernels::DeviceKernels> packer =
      Good(kernels::DeviceKernels::Load(*opened, test::EmulatedKernelImage()));
  ProgramOnDevice program{opened};
  DeviceMemory arena = program.Allocate(kArenaBytes);
  std::unique_ptr<ArenaMover> mover =
      Good(ArenaMover::Make({*opened, *packer, *events}, arena.span()));
};

float TwiceOf(float value) { return 2 * value; }

// One tensor of floats, in place.
struct TensorInPlace {
  TensorInPlace(MoverOnDevice& on, size_t count)
      : memory(on.program.Allocate(count * sizeof(float))),
        work{{{.input = memory.span(), .output = memory.span(), .ready = nullptr}},
             StagedChunks({0}, {count * sizeof(float)}, kArenaBytes)} {
    on.program.WriteLater(memory.begin(), test::BytesOfAll(std::vector<float>(count, 3.0F)));
    auto ready = Good(on.events->Take());
    Must(on.program.stream().Record(*ready));
    work.tensors[0].ready = std::move(ready);
  }

  DeviceMemory memory;
  StagedWork work;
};

TEST_CASE("Tensors come back from the arena with the results of the calls", "[arena_mover]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(150); ++seed) {
    CAPTURE(seed);
    MoverOnDevice on(seed);
    Random random(seed);
    for (int bucket = 0; bucket < 3; ++bucket) {
      RandomTensors tensors(on.program, *on.events, random, kArenaBytes, TwiceOf);
      const StagedResult result = Good(on.Run(tensors.Work()));
      CHECK(result.outcome == CallOutcome::kDone);
      CHECK(tensors.AreRight(result.is_in));
      CHECK(on.Drains());  // before the tensors are freed
    }
  }
}

TEST_CASE("A run waits for nothing on the host", "[arena_mover]") {
  MoverOnDevice on(1);
  TensorInPlace one(on, 10 * kArenaBytes / sizeof(float));
  const uint64_t looks = on.gpu->CallCount("cuEventQuery") + on.gpu->CallCount("cuStreamQuery");
  REQUIRE(on.Run(one.work));
  CHECK(on.gpu->CallCount("cuEventQuery") + on.gpu->CallCount("cuStreamQuery") == looks);
  CHECK(on.mover->counters().tensor_count == 1);
  CHECK(on.mover->counters().bytes == 10 * kArenaBytes);
  CHECK(on.mover->counters().copy_count == 20);
  CHECK(on.Drains());
}

TEST_CASE("One launch packs the tensors of an arena, and one unpacks them", "[arena_mover]") {
  MoverOnDevice on(1);
  std::vector<DeviceMemory> memories;
  StagedWork work{{}, StagedChunks({0, 64, 128}, {64, 60, 64}, kArenaBytes)};
  for (const uint64_t size : {64, 60, 64}) {
    memories.push_back(on.program.Allocate(size));
    work.tensors.push_back({memories.back().span(), memories.back().span(), nullptr});
  }
  const uint64_t launches = on.gpu->CallCount("cuLaunchKernel");
  REQUIRE(on.Run(work));
  CHECK(on.gpu->CallCount("cuLaunchKernel") - launches == 3);  // with that of the call
  CHECK(on.mover->counters().copy_count == 2);
  CHECK(on.Drains());
}

TEST_CASE("Results that a call leaves elsewhere are unpacked there", "[arena_mover]") {
  const size_t tensor_count = GENERATE(1, 3);  // a copy, and a launch
  MoverOnDevice on(1);
  const DeviceMemory elsewhere = on.program.Allocate(kArenaBytes);
  std::vector<DeviceMemory> memories;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes(tensor_count, 64);
  StagedWork work{{}, StagedChunks({}, {}, kArenaBytes)};
  for (size_t i = 0; i < tensor_count; ++i) {
    memories.push_back(on.program.Allocate(64));
    offsets.push_back(i * 64);
    on.program.WriteLater(memories.back().begin(), test::BytesOfAll(std::vector<float>(16, 3.0F)));
    work.tensors.push_back({memories.back().span(), memories.back().span(), nullptr});
  }
  work.chunks = StagedChunks(offsets, sizes, kArenaBytes);
  Must(on.program.stream().Synchronize());
  uint64_t asked = 0;
  const auto call = [&](uint64_t size_bytes, uint64_t, DeviceStream& stream) {
    auto outcome = on.Twice(size_bytes, stream);
    Must(stream.Copy(elsewhere.begin(), on.arena.begin(), size_bytes));
    Must(stream.Fill(on.arena.begin(), std::byte{0xFF}, size_bytes));
    return outcome;
  };
  REQUIRE(on.mover->Run(work, ArenaUse::kPacked, call, [&](uint64_t size_bytes) {
    asked = size_bytes;
    return elsewhere.begin();
  }));
  CHECK(on.Drains());
  CHECK(asked == 64 * tensor_count);
  for (const DeviceMemory& memory : memories) {
    CHECK(on.gpu.Peek(memory.begin(), 64) == test::BytesOfAll(std::vector<float>(16, 6.0F)));
  }
}

// The call finds the tensor behind its event, and enqueues its result before the event of the run.
TEST_CASE("Tensors in place are not moved", "[arena_mover]") {
  constexpr size_t kCount = 5 * kArenaBytes / sizeof(float) / 2;  // two chunks and a half
  for (uint64_t seed = 1; seed <= test::SeedCount(40); ++seed) {
    CAPTURE(seed);
    MoverOnDevice on(seed);
    TensorInPlace one(on, kCount);
    std::vector<uint64_t> sizes;
    const StagedResult result = Good(on.mover->Run(
        one.work, ArenaUse::kInPlace,
        [&](uint64_t size_bytes, uint64_t chunk, DeviceStream& stream) -> Result<CallOutcome> {
          sizes.push_back(size_bytes);
          const device::DeviceAddress place = one.memory.begin() + chunk * kArenaBytes;
          Must(stream.Copy(on.arena.begin(), place, size_bytes));
          Must(Status(on.Twice(size_bytes, stream) ? Status() : Fail(ErrorCode::kInternal, "")));
          Must(stream.Copy(place, on.arena.begin(), size_bytes));
          return CallOutcome::kDone;
        }));
    CHECK(sizes == std::vector<uint64_t>{kArenaBytes, kArenaBytes, kArenaBytes / 2});
    CHECK(on.mover->counters().tensor_count == 1);
    CHECK(on.mover->counters().bytes == one.memory.size_bytes());
    CHECK(on.mover->counters().copy_count == 0);
    Must(on.program.stream().Await(*result.is_in));
    CHECK(on.program.ReadNow(one.memory.begin(), one.memory.size_bytes()) ==
          test::BytesOfAll(std::vector<float>(kCount, 6.0F)));
    CHECK(on.Drains());
  }
}

TEST_CASE("Zeros that no call reads are not written to the arena", "[arena_mover]") {
  MoverOnDevice on(1);
  const DeviceMemory output = on.program.Allocate(64);
  StagedWork work{{{.input = {}, .output = output.span(), .ready = nullptr}},
                  StagedChunks({0}, {64}, kArenaBytes)};
  work.needs_zeros = false;
  const uint64_t fills = on.gpu->CallCount("cuMemsetD8Async");
  REQUIRE(on.Run(work));
  CHECK(on.gpu->CallCount("cuMemsetD8Async") == fills);
  CHECK(on.mover->counters().copy_count == 1);
  CHECK(on.Drains());
}

TEST_CASE("A call that is declined changes no tensor of the arena's", "[arena_mover]") {
  MoverOnDevice on(1);
  TensorInPlace one(on, 3 * kArenaBytes / sizeof(float));
  int calls = 0;
  const StagedResult declined = Good(on.mover->Run(
      one.work, ArenaUse::kPacked, [&](uint64_t, uint64_t, DeviceStream&) -> Result<CallOutcome> {
        ++calls;
        return CallOutcome::kDeclined;
      }));
  CHECK(declined.outcome == CallOutcome::kDeclined);
  CHECK(declined.is_in == nullptr);
  CHECK(calls == 1);
  CHECK(on.mover->counters().tensor_count == 0);
  CHECK(on.Drains());
  const std::vector<float> before(3 * kArenaBytes / sizeof(float), 3.0F);
  CHECK(on.program.ReadNow(one.memory.begin(), one.memory.size_bytes()) ==
        test::BytesOfAll(before));
}

TEST_CASE("The error of a call ends the run of the arena", "[arena_mover]") {
  MoverOnDevice on(1);
  TensorInPlace one(on, 4);
  const auto result = on.mover->Run(one.work, ArenaUse::kPacked,
                                    [](uint64_t, uint64_t, DeviceStream&) -> Result<CallOutcome> {
                                      return Fail(ErrorCode::kPeerFailed, "rank 5 is gone");
                                    });
  REQUIRE_FALSE(result);
  CHECK(result.error().message() == "rank 5 is gone");
  CHECK(on.Drains());
}

TEST_CASE("Each call of the driver for an arena may fail", "[arena_mover]") {
  std::set<std::string> met;
  for (const char* const name : {"cuStreamWaitEvent", "cuMemcpyDtoDAsync", "cuMemsetD8Async",
                                 "cuLaunchKernel", "cuEventRecord", "cuEventCreate"}) {
    for (uint64_t nth = 1;; ++nth) {
      INFO(name << ", call " << nth);
      MoverOnDevice on(nth);
      Random random(3);
      RandomTensors tensors(on.program, *on.events, random, kArenaBytes, TwiceOf);
      const StagedWork work = tensors.Work();
      std::vector<EventPtr> held;  // so that the result needs an event of its own
      for (int i = 0; i < 7; ++i) held.push_back(Good(on.events->Take()));
      on.gpu->FailCall(name, nth, 999);
      const auto result = on.Run(work);
      if (on.gpu->FaultsLeft() > 0) break;
      met.insert(name);
      REQUIRE_FALSE(result);
      CHECK_THAT(result.error().message(), ContainsSubstring(name));
      CHECK(on.Drains());
    }
  }
  CHECK(met.size() >= 5);
}

TEST_CASE("A mover that cannot be made leaves nothing", "[arena_mover]") {
  MoverOnDevice on(1);
  const uint64_t before = on.gpu->Objects().total();
  on.gpu->FailCall("cuStreamCreateWithPriority", 1, device::driver_code::kOutOfMemory);
  const auto mover = ArenaMover::Make({*on.opened, *on.packer, *on.events}, on.arena.span());
  REQUIRE_FALSE(mover);
  CHECK(mover.error().code() == ErrorCode::kResourceExhausted);
  CHECK(on.gpu->Objects().total() == before);
}

}  // namespace
}  // namespace lmdbio::sync
