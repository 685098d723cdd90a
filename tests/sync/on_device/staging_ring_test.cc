// Tensors of a GPU pass through the ring, with kernels and without. Oracle: the same arithmetic on
// the host. The stand-in draws the order of the streams by a seed, so a wait that is missing gives
// wrong values.
#include "lmdbio/sync/on_device/staging_ring.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/reduce/reduce.h"
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
using test::EmulatedGpu;
using test::EndlessWork;
using test::Good;
using test::Must;
using test::ProgramOnDevice;
using test::Random;
using test::RandomTensors;
using test::SharedBytes;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kChunkBytes = 256;

class EndingHealth final : public ranks::Health {
 public:
  Status Check() override {
    if (!is_bad) return {};
    return Fail(ErrorCode::kPeerFailed, "rank 7 is gone");
  }
  void GiveUp(const Error&) override {}
  std::atomic<bool> is_bad{false};
};

enum class Packing { kByKernels, kByCopies };

struct RingOnDevice {
  explicit RingOnDevice(uint64_t seed, Packing packing = Packing::kByKernels) : gpu(seed) {
    if (packing == Packing::kByKernels) {
      packer = Good(kernels::DeviceKernels::Load(*opened, test::EmulatedKernelImage()));
    }
    ring =
        Good(StagingRing::Make({*opened, packer.get(), *events, waits}, host.bytes(), kChunkBytes));
  }

  // Whether all work of the ring is done within this time.
  bool Drains(std::chrono::milliseconds limit) const {
    const auto drained = LookUntil([this] { return ring->IsIdle(); }, Clock::now() + limit, {});
    return drained && *drained;
  }

  // The event of all work that the program has enqueued.
  EventPtr Ready() {
    auto event = Good(events->Take());
    Must(program.stream().Record(*event));
    return event;
  }

  EmulatedGpu gpu;
  std::shared_ptr<device::Device> opened = gpu.Open();
  std::unique_ptr<EventPool> events = Good(EventPool::Make(opened, 8));
  EndingHealth health;
  DeviceWaits waits{health};
  std::unique_ptr<kernels::DeviceKernels> packer;
  SharedBytes host{4 * kChunkBytes};
  ProgramOnDevice program{opened};
  std::unique_ptr<StagingRing> ring;
};

float TwiceAndOneOf(float value) { return 2 * value + 1; }

// The call of the host.
Result<CallOutcome> TwiceAndOne(MutableBytes values, uint64_t) {
  for (size_t at = 0; at < values.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &values[at], sizeof value);
    value = TwiceAndOneOf(value);
    std::memcpy(&values[at], &value, sizeof value);
  }
  return CallOutcome::kDone;
}

TEST_CASE("Tensors come back with the results of the calls", "[staging_ring]") {
  const auto packing = GENERATE(Packing::kByKernels, Packing::kByCopies);
  for (uint64_t seed = 1; seed <= test::SeedCount(150); ++seed) {
    INFO("seed " << seed);
    RingOnDevice on(seed, packing);
    Random random(seed);
    for (int run = 0; run < 3; ++run) {
      RandomTensors tensors(on.program, *on.events, random, kChunkBytes, TwiceAndOneOf);
      const StagedResult result = Good(on.ring->Run(tensors.Work(), TwiceAndOne));
      CHECK(result.outcome == CallOutcome::kDone);
      CHECK(tensors.AreRight(result.is_in));
    }
    CHECK(on.Drains(10s));
  }
}

// One tensor of that many chunks, in place.
struct OneTensor {
  OneTensor(RingOnDevice& on, uint64_t chunk_count)
      : memory(on.program.Allocate(chunk_count * kChunkBytes)),
        values(chunk_count * kChunkBytes / sizeof(float), 3.0F) {
    on.program.WriteLater(memory.begin(), test::BytesOfAll(values));
    work.tensors = {{memory.span(), memory.span(), on.Ready()}};
    work.chunks = StagedChunks({0}, {memory.size_bytes()}, kChunkBytes);
  }

  DeviceMemory memory;
  std::vector<float> values;
  StagedWork work{{}, StagedChunks({0}, {0}, kChunkBytes)};
};

TEST_CASE("Later chunks are on their way while the host is in a call", "[staging_ring]") {
  RingOnDevice on(1);
  OneTensor one(on, 10);
  const uint64_t out_before = on.gpu->CallCount("cuMemcpyDtoHAsync");
  const uint64_t in_before = on.gpu->CallCount("cuMemcpyHtoDAsync");
  std::vector<uint64_t> out;
  std::vector<uint64_t> in;
  REQUIRE(on.ring->Run(one.work, [&](MutableBytes, uint64_t) -> Result<CallOutcome> {
    out.push_back(on.gpu->CallCount("cuMemcpyDtoHAsync") - out_before);
    in.push_back(on.gpu->CallCount("cuMemcpyHtoDAsync") - in_before);
    return CallOutcome::kDone;
  }));
  CHECK(out == std::vector<uint64_t>{4, 5, 6, 7, 8, 9, 10, 10, 10, 10});
  CHECK(in == std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(on.ring->counters().tensor_count == 1);
  CHECK(on.ring->counters().out_bytes == 10 * kChunkBytes);
  CHECK(on.ring->counters().in_bytes == 10 * kChunkBytes);
  CHECK(on.ring->counters().copy_count == 20);
  CHECK(on.ring->counters().wait_ns > 0);
  CHECK(on.Drains(10s));
}

TEST_CASE("A launch packs all parts of a chunk", "[staging_ring]") {
  for (const auto packing : {Packing::kByKernels, Packing::kByCopies}) {
    RingOnDevice on(1, packing);
    const DeviceMemory memory = on.program.Allocate(128);
    const DeviceSpan parts[] = {{memory.begin(), 4}, {memory.begin() + 64, 4}};
    const StagedWork work{{{parts[0], parts[0], nullptr}, {parts[1], parts[1], nullptr}},
                          StagedChunks({0, 64}, {4, 4}, kChunkBytes)};
    const uint64_t launches = on.gpu->CallCount("cuLaunchKernel");
    REQUIRE(on.ring->Run(work, TwiceAndOne));
    const bool has_kernels = packing == Packing::kByKernels;
    CHECK(on.gpu->CallCount("cuLaunchKernel") - launches == (has_kernels ? 2 : 0));
    CHECK(on.gpu->CallCount("cuMemcpyDtoHAsync") == (has_kernels ? 0 : 2));
    CHECK(on.gpu->CallCount("cuMemcpyHtoDAsync") == (has_kernels ? 0 : 2));
    CHECK(on.Drains(10s));
  }
}

TEST_CASE("A call that is declined changes no tensor, and the slots begin anew", "[staging_ring]") {
  RingOnDevice on(1);
  OneTensor one(on, 2);
  std::vector<const std::byte*> places;
  const auto call = [&](CallOutcome outcome) {
    return [&places, outcome](MutableBytes values, uint64_t chunk) -> Result<CallOutcome> {
      if (chunk == 0) places.push_back(values.data());
      std::fill(values.begin(), values.end(), std::byte{1});
      return outcome;
    };
  };
  const StagedResult declined = Good(on.ring->Run(one.work, call(CallOutcome::kDeclined)));
  CHECK(declined.outcome == CallOutcome::kDeclined);
  CHECK(declined.is_in == nullptr);
  CHECK(on.Drains(10s));
  CHECK(on.gpu.Peek(one.memory.begin(), one.memory.size_bytes()) == test::BytesOfAll(one.values));
  for (int i = 0; i < 3; ++i) {
    if (i == 2) on.ring->Restart();
    REQUIRE(on.ring->Run(one.work, call(CallOutcome::kDone)));
  }
  CHECK(places[1] == places[0]);
  CHECK(places[2] == places[0] + 2 * kChunkBytes);
  CHECK(places[3] == places[0]);
  CHECK(on.Drains(10s));
}

TEST_CASE("The error of a call ends the run", "[staging_ring]") {
  RingOnDevice on(1);
  OneTensor one(on, 6);
  int calls = 0;
  const auto result = on.ring->Run(one.work, [&](MutableBytes, uint64_t) -> Result<CallOutcome> {
    if (++calls == 2) return Fail(ErrorCode::kPeerFailed, "rank 3 is gone");
    return CallOutcome::kDone;
  });
  REQUIRE_FALSE(result);
  CHECK(result.error().message() == "rank 3 is gone");
  CHECK(calls == 2);
  CHECK(on.Drains(10s));
}

TEST_CASE("Stop and the health end a wait for a stream that is never done", "[staging_ring]") {
  const bool is_stopped = GENERATE(true, false);
  RingOnDevice on(1);
  EndlessWork endless(*on.opened);
  endless.BeginOn(on.program.stream());
  OneTensor one(on, 1);
  std::thread ending([&] {
    std::this_thread::sleep_for(20ms);
    if (is_stopped) {
      on.waits.Stop();
    } else {
      on.health.is_bad = true;
    }
  });
  const auto result = on.ring->Run(one.work, TwiceAndOne);
  ending.join();
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == ErrorCode::kPeerFailed);
  CHECK_THAT(result.error().message(),
             ContainsSubstring(is_stopped ? "closed its synchronizer" : "rank 7 is gone"));
  CHECK_FALSE(on.Drains(5ms));
  endless.End();
  CHECK(on.Drains(10s));
}

TEST_CASE("A run that the driver fails says so, and the ring is not known to be done",
          "[staging_ring]") {
  RingOnDevice on(1);
  OneTensor one(on, 1);
  on.gpu->FailCall("cuEventQuery", 1, device::driver_code::kIllegalAddress);
  const auto result = on.ring->Run(one.work, TwiceAndOne);
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == ErrorCode::kInternal);
  CHECK_THAT(result.error().message(), ContainsSubstring("CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK_FALSE(on.Drains(5ms));
}

TEST_CASE("Each call of the driver in a run may fail", "[staging_ring]") {
  const auto packing = GENERATE(Packing::kByKernels, Packing::kByCopies);
  std::set<std::string> met;
  for (const char* const name :
       {"cuStreamWaitEvent", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuLaunchKernel",
        "cuEventRecord", "cuEventQuery", "cuEventCreate"}) {
    for (uint64_t nth = 1;; ++nth) {
      INFO(name << ", call " << nth);
      RingOnDevice on(nth, packing);
      Random random(3);
      RandomTensors tensors(on.program, *on.events, random, kChunkBytes, TwiceAndOneOf);
      const StagedWork work = tensors.Work();
      std::vector<EventPtr> held;  // so that the result needs an event of its own
      for (int i = 0; i < 7; ++i) held.push_back(Good(on.events->Take()));
      on.gpu->FailCall(name, nth, 999);
      const auto result = on.ring->Run(work, TwiceAndOne);
      if (on.gpu->FaultsLeft() > 0) break;
      met.insert(name);
      REQUIRE_FALSE(result);
      CHECK_THAT(result.error().message(), ContainsSubstring(name));
      CHECK(on.Drains(10s));
    }
  }
  CHECK(met.contains("cuLaunchKernel") == (packing == Packing::kByKernels));
  CHECK(met.size() >= 6);
}

TEST_CASE("A ring that cannot be made leaves nothing", "[staging_ring]") {
  for (const char* const name : {"cuMemHostRegister", "cuStreamCreateWithPriority"}) {
    const EmulatedGpu gpu;
    const auto device = gpu.Open();
    const auto events = Good(EventPool::Make(device, 0));
    EndingHealth health;
    const DeviceWaits waits(health);
    const SharedBytes host(1024);
    const uint64_t before = gpu->Objects().total();
    gpu->FailCall(name, 1, device::driver_code::kOutOfMemory);
    const auto ring = StagingRing::Make({*device, nullptr, *events, waits}, host.bytes(), 256);
    REQUIRE_FALSE(ring);
    CHECK(ring.error().code() == ErrorCode::kResourceExhausted);
    CHECK_THAT(ring.error().message(), ContainsSubstring(name));
    CHECK(gpu->Objects().total() == before);
  }
}

}  // namespace
}  // namespace lmdbio::sync
