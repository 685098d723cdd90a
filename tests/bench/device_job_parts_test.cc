// Goal: the parts of lmdbio-device-jobs do what its figures say: the check of a sum finds one wrong
// value, a wire whose host adds gives the serial sum, and the gradients are those of ResNet-50.
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/device_jobs/host_reduced_wire.h"
#include "bench/device_jobs/job_rank.h"
#include "bench/device_jobs/memory_wire.h"
#include "bench/device_jobs/resnet50_list.h"
#include "bench/on_device/device_timer.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/device/emulated_device.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::figures {
namespace {

using test::Complaints;
using test::EmulatedGpu;
using test::Good;
using test::Must;

constexpr int kNoRows = -1;

// Runs `body` on threads that are ranks with one GPU. Returns every complaint.
std::vector<std::string> RunJobRanks(int rank_count,
                                     const std::function<void(JobRank&, Complaints&)>& body) {
  const EmulatedGpu gpu;
  std::vector<Complaints> complaints(static_cast<size_t>(rank_count));
  JobSpec spec;
  spec.rank_count = rank_count;
  spec.are_threads = true;
  spec.sample_count = 3;
  spec.sample_seconds = 0;
  ranks::RunAsThreads({.rank_count = rank_count}, [&](ranks::Group& group) {
    Complaints& mine = complaints[static_cast<size_t>(group.rank())];
    try {
      body(*Good(JobRank::Open(spec, group, kNoRows)), mine);
    } catch (const std::exception& error) {
      mine.Expect(false, error.what());
    }
  });
  std::vector<std::string> list;
  for (const Complaints& one : complaints) {
    list.insert(list.end(), one.list().begin(), one.list().end());
  }
  return list;
}

TEST_CASE("A sum with one wrong value is refused", "[device_jobs]") {
  constexpr uint64_t kBytes = (4 << 20) + 4096;  // more than is read at once
  const auto complaints = RunJobRanks(1, [&](JobRank& rank, Complaints& mine) {
    const device::DeviceMemory memory = Good(rank.device().Allocate(kBytes));
    Must(rank.Write(memory.begin(), kBytes));
    mine.Expect(rank.CheckSum(memory.begin(), kBytes).has_value(), "a right sum is refused");
    for (const uint64_t place : {uint64_t{0}, uint64_t{4} << 20, kBytes - 4}) {
      Must(rank.stream().Fill(memory.begin() + place, std::byte{0x42}, 4));
      const Status status = rank.CheckSum(memory.begin(), kBytes);
      mine.Expect(!status && status.error().code() == ErrorCode::kCorruption,
                  "a wrong value is not found");
      Must(rank.Write(memory.begin(), kBytes));
    }
  });
  CHECK(complaints.empty());
}

TEST_CASE("The sum of a rank is not that of all", "[device_jobs]") {
  const auto complaints = RunJobRanks(2, [](JobRank& rank, Complaints& mine) {
    const device::DeviceMemory memory = Good(rank.device().Allocate(64));
    Must(rank.Write(memory.begin(), 64));
    mine.Expect(!rank.CheckSum(memory.begin(), 64), "the values of one rank count as the sum");
  });
  CHECK(complaints.empty());
}

TEST_CASE("All ranks time the same number of calls, and have the times of the slowest",
          "[device_jobs]") {
  const auto complaints = RunJobRanks(3, [](JobRank& rank, Complaints& mine) {
    int calls = 0;
    const CallTimes times = Good(rank.Time([&]() -> Status {
      ++calls;
      return {};
    }));
    mine.Expect(times.microseconds.size() == 3 && times.processor_microseconds.size() == 3,
                "not as many samples as asked for");
    mine.Expect(Good(rank.LargestOf(calls)) == calls, "not the same calls");
    const double first = times.microseconds.front();
    mine.Expect(Good(rank.LargestOf(first)) == first && Good(rank.LargestOf(-first)) == -first,
                "not the same times");
    const int number = rank.group().rank();
    mine.Expect(Good(rank.LargestOf(number)) == 2 && Good(rank.LargestOf(-number)) == 0,
                "not the largest of all ranks");
  });
  CHECK(complaints.empty());
}

TEST_CASE("The processor of the host adds values of GPUs", "[device_jobs]") {
  const auto algorithm = GENERATE(sync::WireAlgorithm::kRing, sync::WireAlgorithm::kHalving);
  const int rank_count = GENERATE(2, 3, 4, 5);
  CAPTURE(sync::NameOf(algorithm), rank_count);
  constexpr uint64_t kBytesMax = (2 << 20) + 4096;  // three pieces are copied out
  const auto exchange = std::make_shared<MemoryExchange>(rank_count);
  const auto complaints = RunJobRanks(rank_count, [&](JobRank& rank, Complaints& mine) {
    const auto made = Good(HostReducedWire::Make(
        rank.device(), std::make_unique<MemoryWire>(exchange, rank.group().rank()),
        {.algorithm = algorithm, .chunk_bytes = 10'000, .chunk_depth = 3}, kBytesMax));
    const device::DeviceMemory memory = Good(rank.device().Allocate(kBytesMax));
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{4}, uint64_t{40'004}, kBytesMax}) {
      Must(rank.Write(memory.begin(), bytes));
      Must(made->AllReduce({memory.begin(), bytes / sizeof(float)}, sync::ReduceOp::kSum,
                           rank.stream()));
      Must(AwaitDone(rank.stream()));
      const Status status = rank.CheckSum(memory.begin(), bytes);
      mine.Expect(status.has_value(), status ? "" : status.error().message());
    }
  });
  CHECK(complaints.empty());
}

TEST_CASE("A rank that stops a wire of memory ends the waits of the others", "[device_jobs]") {
  const auto exchange = std::make_shared<MemoryExchange>(2);
  MemoryWire waiting(exchange, 0);
  MemoryWire stopping(exchange, 1);
  std::byte place{};
  REQUIRE(waiting.StartReceive(1, {&place, 1}));
  CHECK_FALSE(Good(waiting.IsReceived(1)));
  stopping.Stop(Error(ErrorCode::kInternal, "rank 1 is done"));
  const Status status = waiting.AwaitReceive(1);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == ErrorCode::kPeerFailed);
  CHECK(status.error().message() == "rank 1 is done");
}

TEST_CASE("The list of gradients is that of ResNet-50", "[device_jobs]") {
  std::ifstream file(LMDBIO_BENCH_NETWORKS "/resnet50.json");
  const auto network = nlohmann::json::parse(file);
  std::vector<uint64_t> expected;
  for (const auto& layer : network.at("layers")) {
    for (const auto& tensor : layer.at("tensors")) {
      uint64_t count = 1;
      for (const auto& extent : tensor.at(1)) count *= extent.get<uint64_t>();
      expected.push_back(count);
    }
  }
  std::vector<uint64_t> found;
  double cost = 0;
  for (const EmulatedGradient& one : Resnet50Gradients()) {
    found.push_back(one.count);
    cost += one.cost;
  }
  CHECK(found == expected);
  CHECK(found.size() == 161);
  CHECK(cost == Approx(1));
}

TEST_CASE("A job arrives as it was sent", "[device_jobs]") {
  JobSpec spec;
  spec.kind = "wire";
  spec.variant = "ring memory gpu";
  spec.order = "mark";
  spec.rank_count = 4;
  spec.are_threads = true;
  spec.sizes = {8, uint64_t{1} << 40};
  spec.buffer_bytes = 77;
  spec.ordinal = 3;
  spec.sample_count = 9;
  spec.sample_seconds = 0.25;
  spec.row_seconds = 7;
  const auto arrived = JobSpecOf(TextOf(spec));
  REQUIRE(arrived);
  CHECK(TextOf(*arrived) == TextOf(spec));
  CHECK(arrived->sizes == spec.sizes);
  CHECK(arrived->order == "mark");
  CHECK_FALSE(JobSpecOf("{}"));
  CHECK_FALSE(JobMeetingOf("no JSON"));
}

}  // namespace
}  // namespace lmdbio::figures
