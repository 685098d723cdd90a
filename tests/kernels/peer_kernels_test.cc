// Kernels of one GPU that read and write memory of another one. Oracle: ReduceAll.

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::kernels {
namespace {

using device::Device;
using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceMemory;
using device::DeviceSpan;
using device::DeviceStream;
using device::PinnedBytes;
using sync::DataType;
using test::EmulatedGpu;
using test::Good;
using test::Must;
using test::Random;
using test::SharedBytes;

constexpr DataType kType = DataType::kFloat32;
constexpr size_t kElementBytes = 4;

// One GPU of a host, with memory of its own and that of the other GPU.
struct PeerRank {
  PeerRank(const EmulatedGpu& gpu, int ordinal, const std::string& values)
      : device(gpu.Open(ordinal)),
        kernels(Good(DeviceKernels::Load(*device, test::EmulatedKernelImage()))),
        stream(Good(device->MakeStream())),
        ready(Good(device->MakeEvent(DeviceEventKind::kLocal))),
        done(Good(device->MakeEvent(DeviceEventKind::kLocal))),
        memory(Good(device->Allocate(values.size()))),
        host(values.size()),
        pinned(Good(device->Pin(host.bytes()))) {
    test::Write(pinned, values);
    Must(stream.CopyIn(memory.begin(), pinned, 0, values.size()));
    Must(stream.Record(ready));
  }

  void Import(PeerRank& other) {
    of_other = Good(device->Import(Good(other.device->Share(other.memory))));
  }

  std::shared_ptr<Device> device;
  std::unique_ptr<DeviceKernels> kernels;
  DeviceStream stream;
  DeviceEvent ready;
  DeviceEvent done;
  DeviceMemory memory;
  SharedBytes host;
  PinnedBytes pinned;
  std::optional<DeviceMemory> of_other;
};

DeviceSpan PartOf(const DeviceMemory& memory, size_t first, size_t count) {
  return {memory.begin() + first * kElementBytes, count * kElementBytes};
}

TEST_CASE("Each of two GPUs reduces a part of the values of both", "[peer_kernels]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(20); ++seed) {
    INFO("seed " << seed);
    const EmulatedGpu gpu(seed);
    Random random(seed);
    const size_t count = random.Between(2, 2000);
    const std::string numbers[2] = {test::NumbersOf(random, kType, count),
                                    test::NumbersOf(random, kType, count)};
    PeerRank first(gpu, 0, numbers[0]);
    PeerRank second(gpu, 1, numbers[1]);
    first.Import(second);
    second.Import(first);

    const sync::Reduction reduction(sync::ReduceOp::kSum, 1);
    const size_t middle = random.Between(1, count - 1);
    // The sources are in the order of the ranks.
    const auto reduce = [&](PeerRank& rank, PeerRank& other, const DeviceMemory& of_first,
                            const DeviceMemory& of_second, size_t begin, size_t part) {
      const std::vector<DeviceSpan> spans = {PartOf(of_first, begin, part),
                                             PartOf(of_second, begin, part)};
      Must(rank.stream.Await(other.ready));
      Must(rank.kernels->Launch(rank.stream, ReduceWork{.sources = spans,
                                                        .targets = spans,
                                                        .count = part,
                                                        .type = kType,
                                                        .reduction = reduction}));
      Must(rank.stream.Record(rank.done));
    };
    reduce(first, second, first.memory, *first.of_other, 0, middle);
    reduce(second, first, *second.of_other, second.memory, middle, count - middle);
    REQUIRE(first.stream.Await(second.done));
    REQUIRE(second.stream.Await(first.done));
    REQUIRE(first.stream.Synchronize());
    REQUIRE(second.stream.Synchronize());

    std::vector<std::byte> expected(count * kElementBytes);
    const std::vector<const std::byte*> sources = {
        reinterpret_cast<const std::byte*>(numbers[0].data()),
        reinterpret_cast<const std::byte*>(numbers[1].data())};
    sync::ReduceAll(kType, reduction, expected.data(), sources, count);
    for (const PeerRank* const rank : {&first, &second}) {
      const std::string found = gpu.Peek(rank->memory.begin(), expected.size());
      CHECK(test::FirstDifference(kType, reinterpret_cast<const std::byte*>(found.data()),
                                  expected.data(), count) == count);
    }
  }
}

// Launches on the first GPU with an address of the second one.
using PeerLaunch = std::function<Status(PeerRank& rank, const DeviceMemory& of_other)>;

const std::map<std::string, PeerLaunch> kLaunches = {
    {"reduce from",
     [](PeerRank& rank, const DeviceMemory& of_other) {
       const DeviceSpan from = of_other.span();
       const DeviceSpan to = rank.memory.span();
       return rank.kernels->Launch(
           rank.stream, ReduceWork{.sources = {&from, 1}, .targets = {&to, 1}, .count = 16});
     }},
    {"reduce to",
     [](PeerRank& rank, const DeviceMemory& of_other) {
       const DeviceSpan from = rank.memory.span();
       const DeviceSpan to = of_other.span();
       return rank.kernels->Launch(
           rank.stream, ReduceWork{.sources = {&from, 1}, .targets = {&to, 1}, .count = 16});
     }},
    {"pack",
     [](PeerRank& rank, const DeviceMemory& of_other) {
       const DeviceSpan tensor = rank.memory.span();
       const uint64_t offset = 0;
       return rank.kernels->Launch(
           rank.stream,
           PackWork{.tensors = {&tensor, 1}, .offsets = {&offset, 1}, .buffer = of_other.span()});
     }},
    {"gather", [](PeerRank& rank, const DeviceMemory& of_other) {
       const GatherValue value = {0, 8};
       return rank.kernels->Launch(rank.stream, GatherWork{.window = rank.pinned,
                                                           .values = {&value, 1},
                                                           .rows = of_other.span(),
                                                           .row_bytes = std::nullopt,
                                                           .list = rank.pinned,
                                                           .list_offset = 16});
     }}};

TEST_CASE("A kernel that uses memory of another GPU needs access", "[peer_kernels]") {
  const bool has_access = GENERATE(true, false);
  for (const auto& [name, launch] : kLaunches) {
    INFO(name << (has_access ? " with access" : " without access"));
    const EmulatedGpu gpu;
    PeerRank first(gpu, 0, std::string(64, '\1'));
    PeerRank second(gpu, 1, std::string(64, '\2'));
    REQUIRE(second.stream.Synchronize());
    if (has_access) first.Import(second);
    REQUIRE(launch(first, second.memory));
    const Status status = first.stream.Synchronize();
    CHECK(status.has_value() == has_access);
    if (!status) CHECK_THAT(status.error().message(), ContainsSubstring("ILLEGAL_ADDRESS"));
    CHECK(second.stream.Fill(second.memory.begin(), std::byte{3}, 64));
    CHECK(second.stream.Synchronize());
  }
}

}  // namespace
}  // namespace lmdbio::kernels
