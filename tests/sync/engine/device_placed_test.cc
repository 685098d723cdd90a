// Goal: tensors in placed memory of a GPU are reduced where they are, and give the sums of tensors
// that are packed, whatever memory the other ranks use. Oracle: sums of whole numbers.
#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/kernels/kernel_image.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/device_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::string_literals;
using device::DeviceAddress;
using device::DeviceMemory;
using test::DeviceJob;
using test::Good;
using test::GradientOf;
using test::OnDevice;
using test::ProgramOnDevice;
using test::SumOf;

using Lines = std::vector<std::string>;

// Floats of each tensor: with gaps behind them, and more than a buffer.
constexpr std::array<size_t, 4> kCounts = {10, 1000, 16, 3001};

bool HasKernels() { return !kernels::BuiltInKernels().bytes.empty(); }

Submission InPlace(ProgramOnDevice& program, const std::string& name, DeviceAddress address,
                   size_t count) {
  return OnDevice(AllReduceOf(name, nullptr, nullptr, static_cast<int64_t>(count)), program,
                  address, address);
}

// The gradients of a rank in placed memory, or in its own.
struct PlacedGradients {
  PlacedGradients(Synchronizer& synchronizer, ProgramOnDevice& on, bool are_placed) : program(on) {
    for (const size_t count : kCounts) {
      const device::DeviceSpan place = Good(synchronizer.PlaceOnDevice(count * sizeof(float)));
      own.push_back(on.Allocate(count * sizeof(float)));
      addresses.push_back(are_placed ? place.begin : own.back().begin());
    }
  }

  void Write(int rank, int iteration) {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      const auto values = GradientOf(rank, static_cast<int>(i), iteration, kCounts[i]);
      program.WriteLater(addresses[i], test::BytesOfAll(values));
    }
  }
  std::vector<Submission> Submissions(double prescale = 1) {
    std::vector<Submission> group;
    for (size_t i = 0; i < kCounts.size(); ++i) {
      group.push_back(InPlace(program, fmt::format("w{}", i), addresses[i], kCounts[i]));
      group.back().request.prescale = prescale;
    }
    return group;
  }
  // "" if all tensors are the sums over these ranks, times `scale`.
  std::string Compare(int rank_count, int iteration, float scale = 1) {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      auto sums = SumOf(rank_count, static_cast<int>(i), iteration, kCounts[i]);
      for (float& sum : sums) sum *= scale;
      if (program.ReadNow(addresses[i], kCounts[i] * sizeof(float)) != test::BytesOfAll(sums)) {
        return fmt::format("iteration {}, w{}", iteration, i);
      }
    }
    return "";
  }

  ProgramOnDevice& program;
  std::vector<DeviceMemory> own;
  std::vector<DeviceAddress> addresses;
};

struct PlacedJob : DeviceJob {
  explicit PlacedJob(int rank_count, uint64_t seed = 1) : DeviceJob(rank_count, seed) {
    options.device_collective = "auto";
    options.device_buffer_bytes = 4096;
    for (const size_t count : kCounts) {
      options.device_gradient_bytes += (count * sizeof(float) + 63) / 64 * 64;
    }
  }

  // Iterations with groups of all gradients, on ranks that place them or do not.
  void Iterate(const std::function<bool(int rank)>& places, double prescale = 1) {
    RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
      const int rank = synchronizer.rank();
      PlacedGradients gradients(synchronizer, program, places(rank));
      for (int iteration = 0; iteration < 5; ++iteration) {
        gradients.Write(rank, iteration);
        for (Handle& handle : Good(synchronizer.SubmitGroup(gradients.Submissions(prescale)))) {
          wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
        }
        const std::string found =
            gradients.Compare(synchronizer.size(), iteration, static_cast<float>(prescale));
        wrong.Expect(found.empty(), rank, found);
      }
      const SyncCounters counters = synchronizer.counters();
      const std::lock_guard lock(mutex);
      copies.resize(static_cast<size_t>(synchronizer.size()));
      copies[static_cast<size_t>(rank)] = counters.device_copy_count;
      reduced += counters.device_reduced_count;
    });
  }

  std::mutex mutex;
  std::vector<uint64_t> copies;  // [ranks]
  uint64_t reduced = 0;
};

TEST_CASE("Tensors in placed memory are not packed", "[device_placed]") {
  const int rank_count = GENERATE(1, 2, 3);
  for (uint64_t seed = 1; seed <= test::SeedCount(4); ++seed) {
    INFO("seed " << seed);
    PlacedJob job(rank_count, seed);
    job.Iterate([](int) { return true; });
    CHECK(job.wrong.lines() == Lines());
    if (!HasKernels()) continue;
    CHECK(job.copies == std::vector<uint64_t>(static_cast<size_t>(rank_count), 0));
    CHECK(job.reduced == static_cast<uint64_t>(rank_count) * 5 * kCounts.size());
  }
}

TEST_CASE("Ranks that place their tensors and ranks that do not get the same sums",
          "[device_placed]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(4); ++seed) {
    INFO("seed " << seed);
    PlacedJob job(3, seed);
    job.Iterate([](int rank) { return rank != 1; });
    CHECK(job.wrong.lines() == Lines());
    if (!HasKernels()) continue;
    CHECK(job.copies[0] + job.copies[2] == 0);
    CHECK(job.copies[1] > 0);
  }
}

TEST_CASE("A prescale is a part of packing", "[device_placed]") {
  PlacedJob job(2);
  job.Iterate([](int) { return true; }, 0.5);
  CHECK(job.wrong.lines() == Lines());
  CHECK(job.copies[0] > 0);
}

TEST_CASE("Placed tensors are staged if the GPUs do not reduce", "[device_placed]") {
  PlacedJob job(2);
  job.options.device_collective = "staged";
  job.Iterate([](int) { return true; });
  CHECK(job.wrong.lines() == Lines());
  CHECK(job.reduced == 0);
}

TEST_CASE("A rank that has joined contributes zeros to placed tensors", "[device_placed]") {
  PlacedJob job(2);
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    PlacedGradients gradients(synchronizer, program, true);
    for (int iteration = 0; iteration < 3 && rank == 0; ++iteration) {
      gradients.Write(rank, iteration);
      for (Handle& handle : Good(synchronizer.SubmitGroup(gradients.Submissions()))) {
        job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
      }
      const std::string found = gradients.Compare(1, iteration);
      job.wrong.Expect(found.empty(), rank, found);
    }
    Submission join;
    join.request.operation = Operation::kJoin;
    job.wrong.Expect(Good(synchronizer.Submit(std::move(join))).Wait(), rank, "join");
  });
  CHECK(job.wrong.lines() == Lines());
}

// The root has its values in placed memory, and so have some of the others.
TEST_CASE("A broadcast copies between the memories of the GPU", "[device_placed]") {
  constexpr size_t kCount = 3000;  // several chunks
  for (uint64_t seed = 1; seed <= test::SeedCount(4); ++seed) {
    INFO("seed " << seed);
    PlacedJob job(3, seed);
    job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
      const int rank = synchronizer.rank();
      const device::DeviceSpan place = Good(synchronizer.PlaceOnDevice(kCount * sizeof(float)));
      const DeviceMemory own = program.Allocate(kCount * sizeof(float));
      const DeviceAddress memory = rank == 1 ? own.begin() : place.begin;
      for (int root = 0; root < 3; ++root) {
        program.WriteLater(memory, test::BytesOfAll(GradientOf(rank, 0, root, kCount)));
        Submission submission = InPlace(program, "w", memory, kCount);
        submission.request.operation = Operation::kBroadcast;
        submission.request.root = root;
        Handle handle = Good(synchronizer.Submit(std::move(submission)));
        job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
        job.wrong.Expect(program.ReadNow(memory, kCount * sizeof(float)) ==
                             test::BytesOfAll(GradientOf(root, 0, root, kCount)),
                         rank, fmt::format("root {}", root));
      }
      if (!HasKernels()) return;
      const SyncCounters counters = synchronizer.counters();
      job.wrong.Expect(counters.device_out_bytes + counters.device_in_bytes == 0, rank, "staged");
      job.wrong.Expect((counters.device_copy_count == 0) == (rank != 1), rank, "copies");
      job.wrong.Expect(counters.device_reduced_count == 3, rank, "device_reduced_count");
    });
    CHECK(job.wrong.lines() == Lines());
  }
}

// Between the tensors of one part the program may have other values.
TEST_CASE("Values between two tensors of a part are not reduced", "[device_placed]") {
  PlacedJob job(2);
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const device::DeviceSpan place = Good(synchronizer.PlaceOnDevice(128));
    program.WriteLater(place.begin, test::BytesOfAll(std::vector<float>(32, 1.0F)));
    std::vector<Submission> group;
    group.push_back(InPlace(program, "a", place.begin, 10));
    group.push_back(InPlace(program, "b", place.begin + 64, 16));
    for (Handle& handle : Good(synchronizer.SubmitGroup(std::move(group)))) {
      job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
    }
    std::vector<float> expected(32, 2.0F);
    for (size_t i = 10; i < 16; ++i) expected[i] = 1;
    job.wrong.Expect(program.ReadNow(place.begin, 128) == test::BytesOfAll(expected), rank,
                     "other values");
  });
  CHECK(job.wrong.lines() == Lines());
}

// The output is apart, so the input must stay.
TEST_CASE("A placed tensor with an output elsewhere is packed", "[device_placed]") {
  PlacedJob job(2);
  job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& program) {
    const int rank = synchronizer.rank();
    const device::DeviceSpan input = Good(synchronizer.PlaceOnDevice(400));
    const device::DeviceSpan output = Good(synchronizer.PlaceOnDevice(400));
    const std::string values = test::BytesOfAll(GradientOf(rank, 0, 0, 100));
    program.WriteLater(input.begin, values);
    Submission sum = AllReduceOf("w", nullptr, nullptr, 100);
    Handle handle =
        Good(synchronizer.Submit(OnDevice(std::move(sum), program, input.begin, output.begin)));
    job.wrong.Expect(handle.WaitOn(program.stream().native()), rank, "WaitOn");
    job.wrong.Expect(program.ReadNow(output.begin, 400) == test::BytesOfAll(SumOf(2, 0, 0, 100)),
                     rank, "the sum");
    job.wrong.Expect(program.ReadNow(input.begin, 400) == values, rank, "another input");
  });
  CHECK(job.wrong.lines() == Lines());
}

TEST_CASE("Ranks that have shut down give the memory of their arenas back", "[device_placed]") {
  PlacedJob job(2);
  const size_t kept = KeptCount();
  job.Run([](Synchronizer& synchronizer) { CHECK(synchronizer.PlaceOnDevice(100)); });
  CHECK(job.wrong.lines() == Lines());
  CHECK(KeptCount() == kept);
  CHECK(job.gpu->Objects().total() == 0);
}

TEST_CASE("Placed memory needs the options of a GPU and of its size", "[device_placed]") {
  PlacedJob job(1);
  job.Run([&](Synchronizer& synchronizer) {
    const auto refused = synchronizer.PlaceOnDevice(job.options.device_gradient_bytes + 1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::kResourceExhausted);
    CHECK_THAT(refused.error().message(), ContainsSubstring("device_gradient_bytes"));
    CHECK(synchronizer.PlaceOnDevice(job.options.device_gradient_bytes));
  });
  job.options.device = 0;
  job.Run([&](Synchronizer& synchronizer) {
    const auto refused = synchronizer.PlaceOnDevice(1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::kInvalidArgument);
    CHECK_THAT(refused.error().message(), ContainsSubstring("option device"));
  });
  CHECK(job.wrong.lines() == Lines());
}

}  // namespace
}  // namespace lmdbio::sync
