// Goal: each fault of a GPU, or of a program that uses one, is an error with a name on the rank
// that has it, and on the others; nothing hangs, and no memory that the GPU uses is freed.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/kernels/kernel_image.h"
#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/device_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using device::DeviceMemory;
using test::DeviceJob;
using test::EmulatedGpu;
using test::EndlessWork;
using test::Findings;
using test::Good;
using test::Must;
using test::OnDevice;
using test::ProgramOnDevice;
using test::SumOnDevice;

template <typename T>
std::string MessageOf(const Result<T>& result) {
  return result ? "no error" : result.error().message();
}

// Whether it is an error of this code that contains `text`.
template <typename T>
bool IsError(const Result<T>& result, ErrorCode code, const std::string& text) {
  return !result && result.error().code() == code &&
         result.error().message().find(text) != std::string::npos;
}

// Makes a synchronizer on each of two ranks, with options of their own. Returns what is not
// expected of their errors.
using OptionsOf = std::function<void(SyncOptions& options, int rank)>;
using ErrorCheck = std::function<bool(const Error& error, int rank)>;
std::vector<std::string> FindingsOfCreate(const OptionsOf& options_of, const ErrorCheck& is_right) {
  Findings wrong;
  ranks::RunAsThreads({.rank_count = 2}, [&](ranks::Group& group) {
    SyncOptions options;
    options_of(options, group.rank());
    const auto made = Synchronizer::Create(group, options, {});
    if (made) {
      wrong.Add(group.rank(), "no error");
    } else if (!is_right(made.error(), group.rank())) {
      wrong.Add(group.rank(), made.error().message());
    }
  });
  return wrong.lines();
}

bool Has(const Error& error, ErrorCode code, const std::string& text) {
  return error.code() == code && error.message().find(text) != std::string::npos;
}

TEST_CASE("Create names a GPU that is not there, on every rank", "[device_failures]") {
  const EmulatedGpu gpu;
  CHECK(FindingsOfCreate([](SyncOptions& options, int rank) { options.device = rank == 1 ? 8 : 1; },
                         [](const Error& error, int rank) {
                           return rank == 1 ? Has(error, ErrorCode::kNotFound,
                                                  "GPU 7: this process sees 3 GPUs")
                                            : Has(error, ErrorCode::kPeerFailed, "rank 1: GPU 7");
                         }) == std::vector<std::string>());
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("The largest number of a GPU is no other GPU", "[device_failures]") {
  const EmulatedGpu gpu;
  CHECK(FindingsOfCreate([](SyncOptions& options, int) { options.device = UINT32_MAX; },
                         [](const Error& error, int) {
                           return Has(error, ErrorCode::kNotFound, "GPU 2147483647");
                         }) == std::vector<std::string>());
}

TEST_CASE("Either all ranks have a GPU, or none has", "[device_failures]") {
  const EmulatedGpu gpu;
  const uint64_t calls = gpu->CallCount(nullptr);
  CHECK(FindingsOfCreate(
            [](SyncOptions& options, int rank) { options.device = static_cast<uint32_t>(rank); },
            [](const Error& error, int rank) {
              return rank == 1 ? Has(error, ErrorCode::kInvalidArgument, "GPU yes")
                               : Has(error, ErrorCode::kPeerFailed, "GPU no");
            }) == std::vector<std::string>());
  CHECK(gpu->CallCount(nullptr) == calls);
}

TEST_CASE("Create fails on every rank if one can make no part of its GPU", "[device_failures]") {
  const auto collective = GENERATE("staged", "auto");
  for (const char* const name : {"cuDevicePrimaryCtxRetain", "cuMemHostRegister",
                                 "cuStreamCreateWithPriority", "cuEventCreate", "cuMemAlloc"}) {
    INFO(name);
    const EmulatedGpu gpu;
    gpu->FailCall(name, 2, device::driver_code::kOutOfMemory);
    std::atomic<int> exhausted{0};
    CHECK(FindingsOfCreate(
              [&](SyncOptions& options, int) {
                options.device = 1;
                options.device_collective = collective;
                options.device_buffer_bytes = 1000;
                options.device_gradient_bytes = 1000;  // without an arena, memory of its own
              },
              [&](const Error& error, int) {
                if (Has(error, ErrorCode::kResourceExhausted, name)) {
                  ++exhausted;
                  return true;
                }
                return Has(error, ErrorCode::kPeerFailed, name);
              }) == std::vector<std::string>());
    CHECK(exhausted == 1);
    CHECK(gpu->Objects().total() == 0);
  }
}

TEST_CASE("Without the option no driver is asked, and tensors on a GPU are refused",
          "[device_failures]") {
  DeviceJob job(2);
  job.options.device = 0;
  const uint64_t calls = job.gpu->CallCount(nullptr);
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<float> values(10, 1.0F);
    job.wrong.Expect(test::SyncJob::Sum(synchronizer, "a", values), synchronizer.rank(), "Sum");
    Submission submission = AllReduceOf("conv1", nullptr, nullptr, 10);
    submission.on_device = {{4096}, {4096}, nullptr};
    const auto refused = synchronizer.Submit(submission);
    job.wrong.Expect(IsError(refused, ErrorCode::kInvalidArgument, "'conv1': is on a GPU") &&
                         IsError(refused, ErrorCode::kInvalidArgument, "option device"),
                     synchronizer.rank(), MessageOf(refused));
    job.wrong.Expect(synchronizer.MemoryOf(values.data()) == MemoryKind::kHost, synchronizer.rank(),
                     "MemoryOf");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  CHECK(job.gpu->CallCount(nullptr) == calls);
}

TEST_CASE("A submission that is refused can be made again", "[device_failures]") {
  DeviceJob job(1);
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const DeviceMemory memory = program.Allocate(40);
    Submission no_address = SumOnDevice("w", program, memory, 10);
    no_address.on_device->output = {};
    CHECK(IsError(synchronizer.Submit(no_address), ErrorCode::kInvalidArgument, "has no output"));
    no_address.on_device->input = {};
    CHECK(IsError(synchronizer.Submit(no_address), ErrorCode::kInvalidArgument, "has no input"));
    Submission no_tensor = AllReduceOf("w", nullptr, nullptr, 10);
    no_tensor.request.memory = MemoryKind::kDevice;
    CHECK(IsError(synchronizer.Submit(no_tensor), ErrorCode::kInvalidArgument, "on_device"));
    const auto* const pointer = reinterpret_cast<const void*>(memory.begin().value);
    std::vector<float> values(10, 1.0F);
    CHECK(IsError(synchronizer.Submit(AllReduceOf("w", pointer, values.data(), 10)),
                  ErrorCode::kInvalidArgument, "submitted as one of the host"));
    CHECK(IsError(
        synchronizer.Submit(AllReduceOf("w", values.data(), const_cast<void*>(pointer), 10)),
        ErrorCode::kInvalidArgument, "submitted as one of the host"));
    CHECK(Good(synchronizer.MemoryOf(pointer)) == MemoryKind::kDevice);
    for (const char* const name :
         {"cuStreamIsCapturing", "cuEventRecord", "cuPointerGetAttributes"}) {
      job.gpu->FailCall(name, 1, 999);
      CHECK(IsError(synchronizer.Submit(SumOnDevice("w", program, memory, 10)),
                    ErrorCode::kInternal, name));
    }
    CHECK(Good(synchronizer.Submit(SumOnDevice("w", program, memory, 10))).Wait());
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A tensor that is on a GPU on some ranks alone fails on all, and the rest goes on",
          "[device_failures]") {
  const auto coordinator = GENERATE("topo", "horovod", "hierarchical");
  DeviceJob job(2);
  job.options.coordinator = coordinator;
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(400);
    for (int iteration = 0; iteration < 12; ++iteration) {
      const bool differs = iteration % 6 == 5;
      std::vector<float> values(100, 1.0F);
      program.WriteLater(memory.begin(), test::BytesOfAll(values));
      Handle handle = Good(synchronizer.Submit(
          differs && rank == 1 ? AllReduceOf("w", values.data(), values.data(), 100)
                               : SumOnDevice("w", program, memory, 100)));
      const Status status = handle.WaitOn(program.stream().native());
      if (differs) {
        job.wrong.Expect(
            IsError(status, ErrorCode::kInvalidArgument, "rank 0 has memory kind GPU, rank 1 host"),
            rank, MessageOf(status));
        continue;
      }
      job.wrong.Expect(status, rank, "WaitOn");
      job.wrong.Expect(
          program.ReadNow(memory.begin(), 400) == test::BytesOfAll(std::vector<float>(100, 2.0F)),
          rank, "the sum");
    }
    Must(program.stream().Synchronize());  // it still writes to the memory
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Each rank has a GPU of its own, so that one of them can fail.
struct TwoGpus {
  explicit TwoGpus(uint64_t seed = 1, const char* its_collective = "staged")
      : gpu(seed), collective(its_collective) {}

  using Body = std::function<void(Synchronizer& synchronizer, ProgramOnDevice& program)>;
  void Run(const SyncOptions& usual, const Body& body) {
    ranks::RunAsThreads({.rank_count = 2}, [&](ranks::Group& group) {
      SyncOptions options = usual;
      options.device = static_cast<uint32_t>(group.rank()) + 1;
      options.device_collective = collective;
      options.device_buffer_bytes = 100'000;
      SyncParts parts;
      parts.log = [this, rank = group.rank()](const std::string& line) { notes.Add(rank, line); };
      auto synchronizer = Good(Synchronizer::Create(group, options, std::move(parts)));
      ProgramOnDevice program(gpu.Open(group.rank()));
      body(*synchronizer, program);
      synchronizer.reset();
    });
  }

  EmulatedGpu gpu;
  std::string collective;
  Findings wrong;
  Findings notes;
};

TEST_CASE("A fault of the program's own work ends the rank with the driver's name for it",
          "[device_failures]") {
  // The fault may be found before this rank has submitted the tensor, or after that.
  const bool is_found_before = GENERATE(false, true);
  const auto collective = GENERATE("staged", "auto");
  CAPTURE(is_found_before, collective);
  SyncOptions options;
  options.stall_limit = 20s;  // and not 10 minutes, if nobody tells the others
  TwoGpus two(1, collective);
  two.Run(options, [&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const DeviceMemory memory = program.Allocate(400);
    const DeviceMemory other = program.Allocate(400);
    two.wrong.Expect(Good(synchronizer.Submit(SumOnDevice("first", program, memory, 100))).Wait(),
                     rank, "first");
    if (rank == 0) Must(program.stream().Copy(memory.begin(), {12345}, 8));
    while (rank == 0 && is_found_before && program.stream().IsDone()) {
    }
    auto handle = synchronizer.Submit(SumOnDevice("second", program, memory, 100));
    const Status status = handle ? handle->Wait() : Fail(handle.error().Copy());
    const char* const name = "CUDA_ERROR_ILLEGAL_ADDRESS";
    const ErrorCode code = rank == 0 ? ErrorCode::kInternal : ErrorCode::kPeerFailed;
    two.wrong.Expect(IsError(status, code, name), rank, "Wait: " + MessageOf(status));
    two.wrong.Expect(!handle || IsError(status, code, "tensor 'second'"), rank,
                     "Wait: " + MessageOf(status));
    const auto later = synchronizer.Submit(SumOnDevice("third", program, other, 100));
    two.wrong.Expect(IsError(later, code, name), rank, "Submit: " + MessageOf(later));
    two.wrong.Expect(!synchronizer.Shutdown(), rank, "Shutdown");
    if (rank == 1) {
      program.WriteLater(other.begin(), "still works");
      two.wrong.Expect(program.ReadNow(other.begin(), 11) == "still works", rank, "a copy");
    }
  });
  CHECK(two.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A call of the driver that fails in a bucket is told with the bucket",
          "[device_failures]") {
  const auto collective = GENERATE("staged", "auto");
  int met = 0;
  for (const char* const name : {"cuLaunchKernel", "cuMemcpyDtoHAsync"}) {
    DeviceJob job(1);
    job.options.device_collective = collective;
    job.RunAndLeave([&](Synchronizer& synchronizer) {
      ProgramOnDevice program(job.gpu.Open());
      const DeviceMemory memory = program.Allocate(400);
      std::vector<Submission> group;
      group.push_back(SumOnDevice("first", program, memory, 10));
      group.push_back(SumOnDevice("second", program, memory, 10));
      group[1].on_device->input = group[1].on_device->output = memory.begin() + 200;
      job.gpu->FailCall(name, 1, 999);
      std::vector<Handle> handles = Good(synchronizer.SubmitGroup(std::move(group)));
      for (Handle& handle : handles) {
        const Status status = handle.Wait();
        if (job.gpu->FaultsLeft() > 0) {
          CHECK(status);  // this build packs by copies, or by kernels
          continue;
        }
        CHECK(IsError(status, ErrorCode::kInternal, name));
        CHECK(IsError(status, ErrorCode::kInternal, "bucket of tensor 'first' and 1 others"));
      }
      if (job.gpu->FaultsLeft() == 0) ++met;
    });
  }
  CHECK(met == 1);
}

TEST_CASE("A fault after the operation was enqueued is told by its handle", "[device_failures]") {
  DeviceJob job(1);
  job.options.device_collective = GENERATE("staged", "auto");
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    ProgramOnDevice program(job.gpu.Open());
    const DeviceMemory memory = program.Allocate(400);
    Handle handle = Good(synchronizer.Submit(SumOnDevice("w", program, memory, 100)));
    CHECK(handle.WaitOn(program.stream().native()));
    Must(program.stream().Copy(memory.begin(), {12345}, 8));
    while (!program.stream().IsDone().value_or(true)) {
    }
    CHECK(handle.is_done());
    for (int i = 0; i < 2; ++i) {
      CHECK(IsError(handle.Wait(), ErrorCode::kInternal, "tensor 'w'"));
      CHECK(IsError(handle.WaitFor(1ms), ErrorCode::kInternal, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
  });
}

TEST_CASE("A captured stream, and one of another GPU, cannot wait for a tensor",
          "[device_failures]") {
  DeviceJob job(1);
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const DeviceMemory memory = program.Allocate(400);
    ProgramOnDevice other(job.gpu.Open(1));
    Handle handle = Good(synchronizer.Submit(SumOnDevice("w", program, memory, 100)));
    CHECK(IsError(handle.WaitOn(other.stream().native()), ErrorCode::kInvalidArgument, "GPU 0"));
    CHECK(handle.WaitOn(program.stream().native()));
    job.gpu->BeginCapture(program.stream().native());
    CHECK(IsError(handle.WaitOn(program.stream().native()), ErrorCode::kInvalidArgument,
                  "tensor 'w': a stream that is captured"));
    CHECK(handle.Wait());
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A stream that is never done is reported by name, and fails all ranks in the end",
          "[device_failures]") {
  TwoGpus two(1, GENERATE("staged", "auto"));
  SyncOptions options;
  options.stall_report = 300ms;
  options.stall_limit = 1500ms;
  options.silence_limit = 60s;
  two.Run(options, [&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    EndlessWork endless(program.gpu());
    const DeviceMemory memory = program.Allocate(400);
    if (rank == 0) endless.BeginOn(program.stream());
    Handle handle = Good(synchronizer.Submit(SumOnDevice("conv1", program, memory, 100)));
    if (rank == 0) two.wrong.Expect(!Good(handle.WaitFor(0ms)), rank, "it is done at once");
    const Status status = handle.Wait();
    two.wrong.Expect(IsError(status, ErrorCode::kPeerFailed, "'conv1'"), rank, MessageOf(status));
    two.wrong.Expect(
        IsError(handle.WaitOn(program.stream().native()), ErrorCode::kPeerFailed, "'conv1'"), rank,
        "WaitOn");
    endless.End();
    Must(program.stream().Synchronize());
  });
  CHECK(two.wrong.lines() == std::vector<std::string>());
  CHECK(two.notes.Has("rank 0: tensor 'conv1' (number 0) has waited"));
  CHECK(two.notes.Has("s: submitted, not ready on its stream"));
}

TEST_CASE("Closing ends a wait for a stream, and keeps the memory that the GPU still uses",
          "[device_failures]") {
  DeviceJob job(1);
  job.options.device_collective = GENERATE("staged", "auto");
  const size_t kept = KeptCount();
  std::unique_ptr<EndlessWork> endless;
  job.RunAndLeave([&](Synchronizer&) {});
  CHECK(KeptCount() == kept);
  ProgramOnDevice program(job.gpu.Open());
  endless = std::make_unique<EndlessWork>(program.gpu());
  endless->BeginOn(program.stream());
  const DeviceMemory memory = program.Allocate(400);
  std::vector<Handle> handles;
  const auto began = std::chrono::steady_clock::now();
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    const auto looks = [] { return test::CountCalls().at("cuEventQuery"); };
    const uint64_t looks_before = looks();
    handles.push_back(Good(synchronizer.Submit(SumOnDevice("w", program, memory, 100))));
    // The helper thread has the tensor when it looks for the end of the work before it.
    while (looks() < looks_before + 3) std::this_thread::sleep_for(1ms);
  });
  CHECK(std::chrono::steady_clock::now() - began < 30s);
  CHECK(IsError(handles[0].Wait(), ErrorCode::kPeerFailed, "closed its synchronizer"));
  CHECK(KeptCount() > kept);
  endless->End();
  Must(program.stream().Synchronize());
  program.WriteLater(memory.begin(), "still works");  // no memory was gone under the GPU
  CHECK(program.ReadNow(memory.begin(), 11) == "still works");
  while (job.gpu->QueuedCount() > 0) CHECK(program.stream().IsDone());
}

// The first copy in fails, while later chunks are on their way out.
TEST_CASE("No copy goes on after an operation has failed", "[device_failures]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(10); ++seed) {
    INFO("seed " << seed);
    DeviceJob job(1, seed);
    job.RunAndLeave([&](Synchronizer& synchronizer) {
      ProgramOnDevice program(job.gpu.Open());
      {
        const DeviceMemory memory = program.Allocate(16 << 20);
        job.gpu->FailCall("cuMemcpyHtoDAsync", 1, 999);
        Handle handle = Good(synchronizer.Submit(SumOnDevice("w", program, memory, 4 << 20)));
        CHECK(IsError(handle.Wait(), ErrorCode::kInternal, "cuMemcpyHtoDAsync"));
      }  // a copy that is still enqueued would use memory that is gone
      const DeviceMemory other = program.Allocate(64);
      program.WriteLater(other.begin(), "still works");
      CHECK(program.ReadNow(other.begin(), 11) == "still works");
      while (job.gpu->QueuedCount() > 0) CHECK(program.stream().IsDone());
    });
  }
}

// Rank 1 is not ready, and leaves while rank 0 waits for it.
TEST_CASE("A peer that leaves fails the tensors of the others, whose GPUs still work",
          "[device_failures]") {
  const auto collective = GENERATE("staged", "auto");
  const bool is_reduced = collective == "auto"s && !kernels::BuiltInKernels().bytes.empty();
  const char* const first_copy = is_reduced ? "cuMemcpyDtoDAsync" : "cuMemcpyDtoHAsync";
  const uint64_t copies = is_reduced ? 2 : 8;
  for (uint64_t seed = 1; seed <= test::SeedCount(2); ++seed) {
    INFO("seed " << seed);
    TwoGpus two(seed, collective);
    std::unique_ptr<EndlessWork> endless;
    std::vector<DeviceMemory> kept;
    two.Run({}, [&](Synchronizer& synchronizer, ProgramOnDevice& program) {
      if (synchronizer.rank() == 1) {
        endless = std::make_unique<EndlessWork>(program.gpu());
        endless->BeginOn(program.stream());
        kept.push_back(program.Allocate(8 << 20));
        const Handle handle =
            Good(synchronizer.Submit(SumOnDevice("w", program, kept.back(), 2 << 20)));
        while (two.gpu->CallCount(first_copy) < copies) std::this_thread::yield();
        return;
      }
      {
        const DeviceMemory memory = program.Allocate(8 << 20);
        Handle handle = Good(synchronizer.Submit(SumOnDevice("w", program, memory, 2 << 20)));
        const Status status = handle.Wait();
        two.wrong.Expect(IsError(status, ErrorCode::kPeerFailed, "rank 1"), 0, MessageOf(status));
      }
      const DeviceMemory other = program.Allocate(64);
      program.WriteLater(other.begin(), "still works");
      two.wrong.Expect(program.ReadNow(other.begin(), 11) == "still works", 0, "a copy");
    });
    CHECK(two.wrong.lines() == std::vector<std::string>());
  }
}

// Health that no rank can end.
TEST_CASE("Closing ends a wait for the GPU without the health of the job", "[device_failures]") {
  const EmulatedGpu gpu;
  ProgramOnDevice program(gpu.Open());
  EndlessWork endless(program.gpu());
  endless.BeginOn(program.stream());
  const DeviceMemory memory = program.Allocate(400);
  const auto group = ranks::SoloGroup();
  SyncOptions options;
  options.device = 1;
  options.device_collective = "staged";
  SyncParts parts;
  parts.health = std::make_unique<ranks::SoloHealth>();
  auto synchronizer = Good(Synchronizer::Create(*group, options, std::move(parts)));
  Handle handle = Good(synchronizer->Submit(SumOnDevice("w", program, memory, 100)));
  while (gpu->CallCount("cuMemcpyDtoHAsync") == 0) std::this_thread::yield();
  synchronizer.reset();
  CHECK(IsError(handle.Wait(), ErrorCode::kPeerFailed, "closed its synchronizer"));
  endless.End();
  while (gpu->QueuedCount() > 0) CHECK(program.stream().IsDone());
}

// The thread sanitizer does not survive a fork while threads run.
#ifndef __SANITIZE_THREAD__
TEST_CASE("A child of fork() is refused, and does not disturb its parent", "[device_failures]") {
  const EmulatedGpu gpu;
  SyncOptions options;
  options.device = 1;
  const auto group = ranks::SoloGroup();
  const auto synchronizer = Good(Synchronizer::Create(*group, options, {}));
  ProgramOnDevice program(gpu.Open());
  const DeviceMemory memory = program.Allocate(40);
  Handle done = Good(synchronizer->Submit(SumOnDevice("w", program, memory, 10)));
  REQUIRE(done.Wait());
  // The address sanitizer's allocator does not survive a fork while another thread allocates.
  std::this_thread::sleep_for(100ms);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The stand-in ends a child that calls it.
    const bool is_refused = IsError(synchronizer->Submit(SumOnDevice("x", program, memory, 10)),
                                    ErrorCode::kUnsupported, "fork()") &&
                            IsError(done.WaitOn(nullptr), ErrorCode::kUnsupported, "fork()") &&
                            IsError(done.WaitFor(1ms), ErrorCode::kUnsupported, "fork()");
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(Good(synchronizer->Submit(SumOnDevice("w", program, memory, 10))).Wait());
}
#endif

}  // namespace
}  // namespace lmdbio::sync
