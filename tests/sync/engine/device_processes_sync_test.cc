// Goal: if a rank is killed or stopped at any step of a bucket on its GPU, the others fail within 5
// s with its name, their streams are done, and their GPUs still work. Method: ranks are processes,
// each with devices of its own; the stand-in kills a rank in a call of the driver, or of NCCL. In
// place of MPI there is a library that waits for a dead rank for ever.
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_image.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/wide.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/sync/engine/device_job.h"
#include "tests/sync/over_library/emulated_library.h"
#include "tests/sync/over_nccl/nccl_control.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using device::DeviceMemory;
using test::EmulatedGpu;
using test::EmulatedLibrary;
using test::ForkedJob;
using test::Good;
using test::LibraryBoard;
using test::ProgramOnDevice;
using test::SumOnDevice;

constexpr double kSecondsMax = 5.0;
constexpr int kRanks = 3;

constexpr std::byte kFilled{0x3F};

float ValueAt(device::DeviceAddress address) {
  float value = 0;
  if (!test::Control().Peek(&value, address.value, sizeof value)) return 0;
  return value;
}

// How a rank ends, and how the ranks reduce.
struct JobEnding {
  int victim;
  std::string fault;  // of the stand-in; "": the test sends a signal
  std::string collective;
  std::string order;
  int rank_count = kRanks;
  int ranks_per_host = kRanks;
  int signal = SIGKILL;  // that the test sends

  bool is_by_nccl() const { return collective == "nccl"; }
  bool is_by_library() const { return collective == "mpi"; }
  // The number of its GPU.
  int DeviceOf(int rank) const { return is_by_nccl() ? rank : 0; }
  // That of floats whose bytes are kFilled: those of each host first, but not by a library.
  float SumOfFilled() const {
    const auto one = std::bit_cast<float>(0x3F3F3F3F);
    const int together = is_by_nccl() || is_by_library() ? rank_count : ranks_per_host;
    float sum = 0;
    for (int first = 0; first < rank_count; first += together) {
      float of_host = 0;
      for (int rank = 0; rank < together; ++rank) of_host += one;
      sum += of_host;
    }
    return sum;
  }
  // In the order `event` the stream of the program may wait for the dead rank for ever, if the
  // rank is of the same host.
  bool StreamMayWait(int rank) const {
    return order == "event" && rank / ranks_per_host == victim / ranks_per_host;
  }
};

// Iterates until it fails. A wait that ends well finds the sum. Returns the error.
// gradients  the program may still use them after a failure
Status TrainUntilItFails(Synchronizer& synchronizer, ProgramOnDevice& program,
                         const std::vector<DeviceMemory>& gradients, const JobEnding& ending,
                         ForkedJob& job) {
  for (int iteration = 0;; ++iteration) {
    if (iteration == 8) job.SayReady();
    std::vector<Handle> handles;
    for (size_t i = 0; i < gradients.size(); ++i) {
      LMDBIO_TRY_VOID(program.stream().Fill(gradients[i].begin(), kFilled, 400'000));
      LMDBIO_TRY(Handle handle, synchronizer.Submit(SumOnDevice(fmt::format("w{}", i), program,
                                                                gradients[i], 100'000)));
      handles.push_back(std::move(handle));
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      LMDBIO_TRY_VOID(handles[i].WaitOn(program.stream().native()));
      LMDBIO_TRY_VOID(handles[i].Wait());
      for (const uint64_t at : {0, 200'000, 399'996}) {
        if (ValueAt(gradients[i].begin() + at) == ending.SumOfFilled()) continue;
        return Fail(ErrorCode::kCorruption, fmt::format("a wrong sum at byte {}", at));
      }
    }
  }
}

// Kills this process in a call of NCCL from now on. Not earlier: Create asks for the state of NCCL
// as often as the other ranks are late.
void KillInCallOfNccl(const std::string& fault) {
  const size_t colon = fault.find(':');
  test::NcclControl().FailCall(fault.substr(0, colon).c_str(), std::stoull(fault.substr(colon + 1)),
                               test::kKillInNccl);
}

// board  of the library in place of MPI
std::string RunRank(ranks::Group& group, ForkedJob& job, const JobEnding& ending,
                    const LibraryBoard& board) {
  const bool has_fault = group.rank() == ending.victim && !ending.fault.empty();
  const bool is_of_nccl = ending.fault.starts_with("nccl");
  if (has_fault && !is_of_nccl) {
    ::setenv("LMDBIO_EMULATED_GPU_FAULTS", ending.fault.c_str(), 1);
  }
  const int device_number = ending.DeviceOf(group.rank());
  test::Control().SetDeviceCount(test::kEmulatedDevicesMax);
  SyncOptions options;
  options.device = 1 + static_cast<uint32_t>(device_number);
  options.device_collective = ending.collective;
  options.device_order = ending.order;
  options.device_buffer_bytes = 100'000;
  SyncParts parts;
  if (ending.is_by_library()) {
    parts.device_library = std::make_shared<EmulatedLibrary>(board, group.rank());
  }
  auto made = Synchronizer::Create(group, options, std::move(parts));
  if (!made) return "Create: " + made.error().message();
  if (has_fault && is_of_nccl) KillInCallOfNccl(ending.fault);
  const auto driver = device::SystemDriver();
  if (!driver) return driver.error().message();
  ProgramOnDevice program(Good(device::Device::Open(device_number, **driver)));
  std::vector<DeviceMemory> gradients;
  for (int i = 0; i < 4; ++i) gradients.push_back(program.Allocate(400'000));
  const auto began = std::chrono::steady_clock::now();
  const Status status = TrainUntilItFails(**made, program, gradients, ending, job);
  const double seconds =
      ending.fault.empty()
          ? job.SecondsSinceSignal()
          : std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::string wrong;
  if (status.error().code() != ErrorCode::kPeerFailed) wrong += "not kPeerFailed; ";
  if (status.error().message().find(fmt::format("rank {}", ending.victim)) == std::string::npos) {
    wrong += "does not name the rank; ";
  }
  // A victim of a fault dies at some time; only a signal has a known one.
  if (group.rank() != ending.victim && ending.fault.empty() &&
      (seconds < 0 || seconds > kSecondsMax)) {
    wrong += "late; ";
  }
  ProgramOnDevice another(Good(device::Device::Open(device_number, **driver)));
  ProgramOnDevice& living = ending.StreamMayWait(group.rank()) ? another : program;
  const DeviceMemory memory = living.Allocate(64);
  living.WriteLater(memory.begin(), "still works");
  if (living.ReadNow(memory.begin(), 11) != "still works") wrong += "the GPU does not work; ";
  const auto closing = std::chrono::steady_clock::now();
  made->reset();
  if (std::chrono::steady_clock::now() - closing > 2s) wrong += "closing takes long; ";
  return wrong.empty()
             ? ""
             : fmt::format("{}after {:.2f} s: {}", wrong, seconds, status.error().message());
}

// The ranks of a job that starts now use the same devices.
class SharedDevices {
 public:
  SharedDevices() { ::setenv("LMDBIO_EMULATED_GPU", (folder_.path() / "devices").c_str(), 1); }
  ~SharedDevices() { ::unsetenv("LMDBIO_EMULATED_GPU"); }
  SharedDevices(const SharedDevices&) = delete;
  SharedDevices& operator=(const SharedDevices&) = delete;

 private:
  test::TempDir folder_;
};

class EndedSyncJob {
 public:
  explicit EndedSyncJob(const JobEnding& ending)
      : board_(ending.rank_count), job_(ending.rank_count, ending.ranks_per_host) {
    job_.Start(
        [&](ranks::Group& group, ForkedJob& own) { return RunRank(group, own, ending, board_); });
  }
  ForkedJob* operator->() { return &job_; }

 private:
  const SharedDevices devices_;
  const LibraryBoard board_;
  ForkedJob job_;
};

// Runs a job for each of them, all at the same time.
void CheckEndings(const std::vector<JobEnding>& endings) {
  std::vector<std::unique_ptr<EndedSyncJob>> jobs;
  for (const JobEnding& ending : endings) jobs.push_back(std::make_unique<EndedSyncJob>(ending));
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (int rank = 0; rank < endings[i].rank_count; ++rank) {
      CAPTURE(endings[i].fault, rank);
      CHECK((*jobs[i])->EndOf(rank) == (rank == endings[i].victim ? "killed" : ""));
    }
  }
}

// The root writes its memory again behind WaitOn. The copies to other ranks have read it then.
std::string BroadcastInTurn(ranks::Group& group, const std::string& order) {
  SyncOptions options;
  options.device = 1;
  options.device_order = order;
  options.device_gradient_bytes = 4096;
  auto made = Synchronizer::Create(group, options, {});
  if (!made) return "Create: " + made.error().message();
  ProgramOnDevice program(Good(device::Device::Open(0, *Good(device::SystemDriver()))));
  const device::DeviceAddress place = Good((*made)->PlaceOnDevice(4096)).begin;
  for (int turn = 0; turn < 60; ++turn) {
    const bool is_root = turn % kRanks == group.rank();
    const auto right = static_cast<std::byte>(turn + 1);
    test::Must(program.stream().Fill(place, is_root ? right : std::byte{0xEE}, 4096));
    Submission submission =
        test::OnDevice(AllReduceOf("w", nullptr, nullptr, 1024), program, place, place);
    submission.request.operation = Operation::kBroadcast;
    submission.request.root = turn % kRanks;
    Handle handle = Good((*made)->Submit(std::move(submission)));
    if (const Status done = handle.WaitOn(program.stream().native()); !done) {
      return done.error().message();
    }
    if (is_root) {
      test::Must(program.stream().Fill(place, std::byte{0xDD}, 4096));
      // The stand-in works while its process asks it, and the others wait for this work.
      test::Must(program.stream().Synchronize());
    } else if (program.ReadNow(place, 4096) != std::string(4096, static_cast<char>(right))) {
      return fmt::format("turn {}: other values", turn);
    }
  }
  const Status end = (*made)->Shutdown();
  return end ? "" : end.error().message();
}

TEST_CASE("The root of a broadcast may write its values when its stream goes on",
          "[device_processes_sync]") {
  const std::string order = GENERATE("host", "event", "mark");
  CAPTURE(order);
  const SharedDevices devices;
  ForkedJob job(kRanks, kRanks);
  job.Start([&](ranks::Group& group, ForkedJob&) { return BroadcastInTurn(group, order); });
  for (int rank = 0; rank < kRanks; ++rank) CHECK(job.EndOf(rank) == "");
}

TEST_CASE("A rank that is killed in any call of a bucket is named by the others",
          "[device_processes_sync]") {
  std::vector<std::string> faults = {"cuEventRecord:9:kill",     "cuEventRecord:40:kill",
                                     "cuStreamWaitEvent:5:kill", "cuStreamWaitEvent:60:kill",
                                     "cuMemcpyDtoHAsync:2:kill", "cuMemcpyHtoDAsync:2:kill",
                                     "cuEventQuery:30:kill",     "cuStreamIsCapturing:17:kill"};
  if (!kernels::BuiltInKernels().bytes.empty()) {
    faults.emplace_back("cuLaunchKernel:1:kill");
    faults.emplace_back("cuLaunchKernel:6:kill");
  }
  std::vector<JobEnding> endings;
  endings.reserve(faults.size());
  for (const std::string& fault : faults)
    endings.push_back({.victim = 1, .fault = fault, .collective = "staged", .order = "auto"});
  CheckEndings(endings);
}

// The ranks share a GPU, and its file.
TEST_CASE("A rank that is killed in any call of a reduction on the GPU is named by the others",
          "[device_processes_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  const std::string order = GENERATE("host", "event", "mark");
  CAPTURE(order);
  std::vector<std::string> faults = {"cuEventRecord:9:kill",       "cuEventRecord:40:kill",
                                     "cuStreamWaitEvent:5:kill",   "cuStreamWaitEvent:60:kill",
                                     "cuMemcpyDtoDAsync:1:kill",   "cuMemcpyDtoDAsync:8:kill",
                                     "cuStreamIsCapturing:17:kill"};
  std::vector<std::string> own_faults;  // of this order alone
  if (order == "host") own_faults = {"cuEventQuery:30:kill"};
  if (order == "mark") own_faults = {"cuStreamWriteValue64:3:kill", "cuStreamBatchMemOp:3:kill"};
  // The victims take the faults in turn, each one the other's with the next order.
  const int first_victim = order == "event" ? 2 : 0;
  const int other_victim = 2 - first_victim;
  std::vector<JobEnding> endings;
  std::vector<JobEnding> others;
  const auto add = [&](int victim, const std::string& fault, std::vector<JobEnding>& to) {
    to.push_back({.victim = victim, .fault = fault, .collective = "auto", .order = order});
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    add(i % 2 == 0 ? first_victim : other_victim, faults[i], endings);
    add(i % 2 == 0 ? other_victim : first_victim, faults[i], others);
  }
  for (const std::string& fault : own_faults) {
    add(0, fault, endings);
    add(2, fault, endings);
  }
  for (const char* const fault : {"cuLaunchKernel:1:kill", "cuLaunchKernel:6:kill"}) {
    add(0, fault, endings);
  }
  CheckEndings(endings);
  if (test::IsWide()) CheckEndings(others);
}

// Lets all jobs run for a while, and sends each victim its signal.
void CheckSignals(const std::vector<JobEnding>& endings) {
  std::vector<std::unique_ptr<EndedSyncJob>> jobs;
  for (const JobEnding& ending : endings) jobs.push_back(std::make_unique<EndedSyncJob>(ending));
  for (size_t i = 0; i < jobs.size(); ++i) {
    REQUIRE((*jobs[i])->AwaitReady());
    (*jobs[i])->Send(endings[i].signal, endings[i].victim);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobEnding& ending = endings[i];
    CAPTURE(ending.collective, ending.order, ending.victim, ending.signal);
    for (int rank = 0; rank < ending.rank_count; ++rank) {
      if (rank != ending.victim) CHECK((*jobs[i])->EndOf(rank) == "");
    }
    (*jobs[i])->Send(SIGCONT, ending.victim);
    CHECK((*jobs[i])->EndOf(ending.victim) == (ending.signal == SIGKILL ? "killed" : ""));
  }
}

TEST_CASE("A rank that is killed or stopped among its buckets is named by the others",
          "[device_processes_sync]") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  std::vector<JobEnding> endings = {
      {.victim = 1, .fault = "", .collective = "staged", .order = "auto"}};
  for (const char* const order : {"host", "event", "mark"}) {
    endings.push_back({.victim = 1, .fault = "", .collective = "auto", .order = order});
  }
  if (!kernels::BuiltInKernels().bytes.empty()) {  // NCCL needs them, and the other ways do not
    endings.push_back({.victim = 1, .fault = "", .collective = "nccl", .order = "auto"});
  }
  for (JobEnding& ending : endings) ending.signal = signal;
  CheckSignals(endings);
}

// --- Several hosts -----------------------------------------------------------------------------

JobEnding OnTwoHosts(int victim, const std::string& fault, const std::string& order) {
  return {.victim = victim,
          .fault = fault,
          .collective = "auto",
          .order = order,
          .rank_count = 4,
          .ranks_per_host = 2};
}

// Ranks 0 and 2 are the roots of their hosts.
TEST_CASE("A rank of several hosts that is killed or stopped is named on all of them",
          "[device_processes_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  const std::string order = GENERATE("host", "event", "mark");
  CAPTURE(order);
  // Both signals with each victim and each order.
  const size_t first = order == "event" ? 1 : 0;
  std::vector<JobEnding> endings = {OnTwoHosts(0, "", order), OnTwoHosts(2, "", order),
                                    OnTwoHosts(3, "", order)};
  std::vector<JobEnding> others = endings;
  for (size_t i = 0; i < endings.size(); ++i) {
    endings[i].signal = (i + first) % 2 == 0 ? SIGKILL : SIGSTOP;
    others[i].signal = (i + first) % 2 == 0 ? SIGSTOP : SIGKILL;
  }
  CheckSignals(endings);
  if (test::IsWide()) CheckSignals(others);
}

JobEnding ByNcclOnTwoHosts(int victim, const std::string& fault) {
  JobEnding ending = OnTwoHosts(victim, fault, "host");
  ending.collective = "nccl";
  return ending;
}

TEST_CASE("A rank that ends while NCCL reduces is named on all hosts", "[device_processes_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  std::vector<JobEnding> endings;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const int victim : {0, 3}) {
      endings.push_back(ByNcclOnTwoHosts(victim, ""));
      endings.back().signal = signal;
    }
  }
  CheckSignals(endings);
}

TEST_CASE("A rank that is killed in any call of NCCL is named on all hosts",
          "[device_processes_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  const int victim = GENERATE(0, 3);
  CAPTURE(victim);
  std::vector<JobEnding> endings;
  for (const char* const fault : {"ncclAllReduce:1", "ncclAllReduce:7", "ncclCommGetAsyncError:40",
                                  "cuEventRecord:40:kill", "cuMemcpyDtoDAsync:8:kill"}) {
    endings.push_back(ByNcclOnTwoHosts(victim, fault));
  }
  CheckEndings(endings);
}

JobEnding ByLibraryOnTwoHosts(int victim, const std::string& fault) {
  JobEnding ending = OnTwoHosts(victim, fault, "host");
  ending.collective = "mpi";
  return ending;
}

TEST_CASE("A rank that ends while a library reduces is named on all hosts",
          "[device_processes_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  std::vector<JobEnding> endings;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const int victim : {0, 3}) {
      endings.push_back(ByLibraryOnTwoHosts(victim, ""));
      endings.back().signal = signal;
    }
  }
  CheckSignals(endings);
  CheckEndings({ByLibraryOnTwoHosts(1, "cuEventRecord:40:kill"),
                ByLibraryOnTwoHosts(2, "cuMemcpyDtoDAsync:8:kill")});
}

TEST_CASE("A rank of several hosts that is killed in any call of a bucket is named on all of them",
          "[device_processes_sync]") {
  if (kernels::BuiltInKernels().bytes.empty()) {
    WARN("skipped: this build has no kernels");
    return;
  }
  const std::string order = GENERATE("host", "event", "mark");
  CAPTURE(order);
  // Those of a root: in the reduction of its host, in messages, and where it copies their result.
  CheckEndings({OnTwoHosts(2, "cuLaunchKernel:5:kill", order),
                OnTwoHosts(2, "cuMemcpyDtoHAsync:6:kill", order),
                OnTwoHosts(2, "cuMemcpyHtoDAsync:6:kill", order),
                OnTwoHosts(2, "cuMemcpyDtoDAsync:11:kill", order)});
  // Those of another rank: where it packs and unpacks.
  CheckEndings({OnTwoHosts(3, "cuMemcpyDtoDAsync:8:kill", order),
                OnTwoHosts(3, "cuEventRecord:40:kill", order),
                OnTwoHosts(3, "cuStreamWaitEvent:30:kill", order)});
}

}  // namespace
}  // namespace lmdbio::sync
