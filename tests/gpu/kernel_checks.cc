// C1 and C2. Oracles: ReduceAll and Scale of lmdbio/sync/reduce, and memcpy. A kernel gets a room
// of the GPU in which every byte is known before, and is compared after.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/gpu/device_check.h"
#include "tests/gpu/gpu_room.h"
#include "tests/kernels/kernel_bodies.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::test {
namespace {

using device::DeviceSpan;
using device::DeviceStream;
using kernels::DeviceKernels;
using kernels::GatherValue;
using kernels::GatherWork;
using kernels::PackDirection;
using kernels::PackWork;
using kernels::ReduceWork;
using sync::DataType;

const std::byte* AsBytes(const std::string& text) {
  return reinterpret_cast<const std::byte*>(text.data());
}
std::byte* AsBytes(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

// A GPU with the kernels of this build, and a stream.
struct KernelBench {
  explicit KernelBench(const CheckScene& scene) : gpu(scene.Open()) {}

  std::shared_ptr<device::Device> gpu;
  std::unique_ptr<DeviceKernels> kernels = Good(DeviceKernels::Load(*gpu));
  DeviceStream stream = Good(gpu->MakeStream());
};

// "" if the bytes are equal.
std::string CompareRooms(const std::string& found, const std::string& expected) {
  if (found == expected) return "";
  const auto wrong = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
  return fmt::format("byte {} of the room is wrong", wrong.first - found.begin());
}

// As above, where the bits of a NaN may differ in these values.
std::string CompareValues(DataType type, const std::string& found, std::string& expected,
                          uint64_t offset, uint64_t count) {
  const size_t wrong =
      FirstDifference(type, AsBytes(found) + offset, AsBytes(expected) + offset, count);
  if (wrong != count) return fmt::format("element {} is wrong", wrong);
  expected.replace(offset, count * sync::ElementBytes(type), found, offset,
                   count * sync::ElementBytes(type));
  return "";
}

// --- Reductions --------------------------------------------------------------------------------

struct DrawnReduction {
  DataType type;
  sync::Reduction reduction;
  uint64_t count;
  std::vector<uint64_t> sources;  // offsets in the room
  std::vector<uint64_t> targets;

  std::string Words() const {
    return fmt::format("{} of {} sources of {} x {}, scaled by {}, {} targets",
                       sync::NameOf(reduction.op), sources.size(), sync::NameOf(type), count,
                       reduction.scale, targets.size());
  }
};

constexpr uint64_t kReduceRoomBytes = 16 << 20;

// Sources and targets at any offset, or all at lines; targets in place or apart.
DrawnReduction DrawReduction(DataType type, sync::ReduceOp op, Random& random) {
  DrawnReduction drawn{type, sync::Reduction(op, random.Below(3) == 0 ? 0.3 : 1.0), 0, {}, {}};
  const uint64_t element_bytes = sync::ElementBytes(type);
  switch (random.Below(3)) {
    case 0:
      drawn.count = random.Below(71);
      break;
    case 1:
      drawn.count = 65'536 - 40 + random.Below(81);
      break;
    default:
      drawn.count = random.Below(100'000);
  }
  const bool is_at_lines = random.Below(2) == 0;
  uint64_t end = 0;
  const auto take = [&] {
    const uint64_t begin = (end + 255) / 256 * 256 + (is_at_lines ? 0 : random.Below(16));
    end = begin + drawn.count * element_bytes + random.Below(64);
    return begin;
  };
  for (uint64_t i = random.Between(1, 9); i > 0; --i) drawn.sources.push_back(take());
  drawn.targets = {random.Below(2) == 0 ? drawn.sources[0] : take()};
  if (random.Below(3) == 0) drawn.targets.push_back(take());
  return drawn;
}

void PutNumbers(DataType type, uint64_t offset, uint64_t count, Random& random, std::string& room) {
  const std::string numbers = NumbersOf(random, type, count);
  room.replace(offset, numbers.size(), numbers);
}

std::string CheckReduction(KernelBench& bench, GpuRoom& room, const DrawnReduction& drawn,
                           Random& random) {
  const uint64_t size_bytes = drawn.count * sync::ElementBytes(drawn.type);
  const uint64_t used = std::max(*std::max_element(drawn.sources.begin(), drawn.sources.end()),
                                 *std::max_element(drawn.targets.begin(), drawn.targets.end())) +
                        size_bytes + 64;
  std::string expected = random.BytesOf(used);
  for (const uint64_t at : drawn.sources) {
    PutNumbers(drawn.type, at, drawn.count, random, expected);
  }
  room.Write(bench.stream, expected);
  std::vector<DeviceSpan> sources;
  std::vector<DeviceSpan> targets;
  std::vector<std::string> copies;  // a target may be a source
  for (const uint64_t at : drawn.sources) sources.push_back(room.Part(at, size_bytes));
  for (const uint64_t at : drawn.targets) targets.push_back(room.Part(at, size_bytes));
  for (const uint64_t at : drawn.sources) copies.push_back(expected.substr(at, size_bytes));
  Must(bench.kernels->Launch(bench.stream, ReduceWork{.sources = sources,
                                                      .targets = targets,
                                                      .count = drawn.count,
                                                      .type = drawn.type,
                                                      .reduction = drawn.reduction}));
  std::vector<const std::byte*> pointers;
  for (const std::string& copy : copies) pointers.push_back(AsBytes(copy));
  std::string result(size_bytes, '\0');
  sync::ReduceAll(drawn.type, drawn.reduction, AsBytes(result), pointers, drawn.count);
  for (const uint64_t at : drawn.targets) expected.replace(at, size_bytes, result);
  const std::string found = room.Read(bench.stream, used);
  for (const uint64_t at : drawn.targets) {
    const std::string wrong = CompareValues(drawn.type, found, expected, at, drawn.count);
    if (!wrong.empty()) return wrong;
  }
  return CompareRooms(found, expected);
}

CheckOutcome CheckReductions(const CheckScene& scene) {
  KernelBench bench(scene);
  GpuRoom room(*bench.gpu, kReduceRoomBytes);
  Random random(scene.seed);
  const uint64_t turns = scene.Of(40, 2);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    for (const DataType type : kEachType) {
      for (const sync::ReduceOp op : kEachOp) {
        const DrawnReduction drawn = DrawReduction(type, op, random);
        const std::string wrong = CheckReduction(bench, room, drawn, random);
        if (!wrong.empty()) return Failed(drawn.Words() + ": " + wrong);
      }
    }
  }
  return Passed(fmt::format("{} reductions", turns * kEachType.size() * kEachOp.size()));
}

// Many values of a type, in pieces that fit.
CheckOutcome CheckManyValues(const CheckScene& scene, DataType type) {
  KernelBench bench(scene);
  Random random(scene.seed + static_cast<uint64_t>(type));
  const uint64_t piece = scene.Of(1'000'000, 20'000);
  const uint64_t pieces = scene.Of(10, 2);
  const uint64_t place_bytes = (piece * sync::ElementBytes(type) + 255) / 256 * 256;
  GpuRoom room(*bench.gpu, 3 * place_bytes + 64);
  for (uint64_t i = 0; i < pieces; ++i) {
    const DrawnReduction drawn{type,
                               sync::Reduction(sync::ReduceOp::kSum, i % 2 == 0 ? 1.0 : 0.25),
                               piece,
                               {0, place_bytes},
                               {2 * place_bytes}};
    const std::string wrong = CheckReduction(bench, room, drawn, random);
    if (!wrong.empty()) return Failed(fmt::format("piece {}: {}: {}", i, drawn.Words(), wrong));
  }
  return Passed(fmt::format("{} values of each of 2 sources", piece * pieces));
}

// --- Packing -----------------------------------------------------------------------------------

struct DrawnPack {
  DataType type = DataType::kFloat32;
  double scale = 1;
  std::vector<uint64_t> places;  // of tensors in the room
  std::vector<uint64_t> sizes;   // bytes
  std::vector<uint64_t> offsets;
  uint64_t tensors_end = 0;
  uint64_t buffer_bytes = 0;
};

constexpr uint64_t kPackRoomBytes = 8 << 20;  // of the tensors, and of the buffer

DrawnPack DrawPack(uint64_t tensor_count, Random& random) {
  DrawnPack drawn;
  drawn.type = kEachType[random.Below(kEachType.size())];
  drawn.scale = random.Below(2) == 0 ? 1 : 0.5;
  const uint64_t element_bytes = sync::ElementBytes(drawn.type);
  const uint64_t huge = random.Below(tensor_count + 1);  // the index of one, or of none
  for (uint64_t i = 0; i < tensor_count; ++i) {
    const uint64_t count = i == huge ? 200'000 : random.Below(8) == 0 ? 0 : random.Below(300);
    drawn.sizes.push_back(count * element_bytes);
    drawn.places.push_back(drawn.tensors_end + random.Below(16));
    drawn.tensors_end = drawn.places.back() + drawn.sizes.back() + random.Below(32);
    drawn.offsets.push_back(drawn.buffer_bytes);
    drawn.buffer_bytes = (drawn.buffer_bytes + drawn.sizes.back() + 63) / 64 * 64;
  }
  return drawn;
}

std::string CheckPack(KernelBench& bench, GpuRoom& tensor_room, GpuRoom& buffer_room,
                      const DrawnPack& drawn, PackDirection direction, Random& random) {
  std::string tensors = random.BytesOf(drawn.tensors_end + 64);
  std::string buffer = random.BytesOf(drawn.buffer_bytes + 64);
  std::vector<DeviceSpan> spans;
  for (size_t i = 0; i < drawn.places.size(); ++i) {
    spans.push_back(tensor_room.Part(drawn.places[i], drawn.sizes[i]));
  }
  tensor_room.Write(bench.stream, tensors);
  buffer_room.Write(bench.stream, buffer);
  Must(bench.kernels->Launch(bench.stream,
                             PackWork{.direction = direction,
                                      .tensors = spans,
                                      .offsets = drawn.offsets,
                                      .buffer = buffer_room.Part(0, drawn.buffer_bytes),
                                      .type = drawn.type,
                                      .scale = drawn.scale}));
  const std::string found_tensors = tensor_room.Read(bench.stream, tensors.size());
  const std::string found_buffer = buffer_room.Read(bench.stream, buffer.size());
  const bool is_packed = direction == PackDirection::kPack;
  for (size_t i = 0; i < drawn.places.size(); ++i) {
    const uint64_t count = drawn.sizes[i] / sync::ElementBytes(drawn.type);
    const std::string values =
        (is_packed ? tensors : buffer)
            .substr(is_packed ? drawn.places[i] : drawn.offsets[i], drawn.sizes[i]);
    std::string scaled(values.size(), '\0');
    sync::Scale(drawn.type, drawn.scale, AsBytes(scaled), AsBytes(values), count);
    std::string& into = is_packed ? buffer : tensors;
    const uint64_t at = is_packed ? drawn.offsets[i] : drawn.places[i];
    into.replace(at, scaled.size(), scaled);
    const std::string wrong =
        CompareValues(drawn.type, is_packed ? found_buffer : found_tensors, into, at, count);
    if (!wrong.empty()) return fmt::format("tensor {}: {}", i, wrong);
  }
  const std::string wrong = CompareRooms(found_tensors, tensors);
  return wrong.empty() ? CompareRooms(found_buffer, buffer) : wrong;
}

CheckOutcome CheckPacking(const CheckScene& scene, PackDirection direction) {
  KernelBench bench(scene);
  GpuRoom tensor_room(*bench.gpu, kPackRoomBytes);
  GpuRoom buffer_room(*bench.gpu, kPackRoomBytes);
  Random random(scene.seed);
  const uint64_t turns = scene.Of(8, 1);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    for (const uint64_t tensor_count : {0, 1, 2, 7, 161, 1000, 1024, 1025, 2000}) {
      const DrawnPack drawn = DrawPack(tensor_count, random);
      const std::string wrong =
          CheckPack(bench, tensor_room, buffer_room, drawn, direction, random);
      if (wrong.empty()) continue;
      return Failed(fmt::format("{} tensors of {}, scaled by {}: {}", tensor_count,
                                sync::NameOf(drawn.type), drawn.scale, wrong));
    }
  }
  return Passed();
}

// --- Gathering ---------------------------------------------------------------------------------

std::string CheckGather(KernelBench& bench, GpuRoom& room, uint64_t value_max, Random& random) {
  constexpr uint64_t kWindowBytes = 1 << 20;
  const SharedBytes host(kWindowBytes);
  const SharedBytes list(1 << 20);
  const device::PinnedBytes window = Good(bench.gpu->Pin(host.bytes()));
  const device::PinnedBytes pinned_list = Good(bench.gpu->Pin(list.bytes()));
  const std::string bytes = random.BytesOf(kWindowBytes);
  std::memcpy(host.bytes().data(), bytes.data(), bytes.size());
  std::vector<GatherValue> values;
  uint64_t row_bytes = 0;
  for (uint64_t i = random.Below(40); i > 0; --i) {
    const uint64_t size_bytes = random.Below(6) == 0 ? 0 : random.Below(value_max);
    values.push_back({random.Below(kWindowBytes - size_bytes), size_bytes});
    row_bytes = std::max(row_bytes, size_bytes);
  }
  row_bytes += random.Below(2) == 0 ? 0 : random.Below(20'000);
  const bool has_rows = random.Below(2) == 0;
  const uint64_t skew = random.Below(16);
  std::string expected = random.BytesOf(skew);
  uint64_t rows_bytes = 0;
  for (const GatherValue& value : values) {
    expected += bytes.substr(value.offset, value.size_bytes);
    if (has_rows) expected.resize(expected.size() + row_bytes - value.size_bytes);
  }
  rows_bytes = expected.size() - skew;
  std::string before = random.BytesOf(expected.size() + 64);
  before.replace(0, skew, expected, 0, skew);
  expected += before.substr(expected.size());
  room.Write(bench.stream, before);
  Must(bench.kernels->Launch(
      bench.stream, GatherWork{.window = window,
                               .values = values,
                               .rows = room.Part(skew, rows_bytes),
                               .row_bytes = has_rows ? std::optional(row_bytes) : std::nullopt,
                               .list = pinned_list}));
  return CompareRooms(room.Read(bench.stream, expected.size()), expected);
}

CheckOutcome CheckGathering(const CheckScene& scene) {
  KernelBench bench(scene);
  GpuRoom room(*bench.gpu, 12 << 20);
  Random random(scene.seed);
  for (uint64_t turn = 0; turn < scene.Of(60, 6); ++turn) {
    const uint64_t value_max = std::array<uint64_t, 3>{64, 3'081, 200'000}[turn % 3];
    const std::string wrong = CheckGather(bench, room, value_max, random);
    if (!wrong.empty()) {
      return Failed(fmt::format("values of up to {} bytes: {}", value_max, wrong));
    }
  }
  return Passed();
}

}  // namespace

DeviceChecks KernelChecks() {
  DeviceChecks checks = {
      {"C1", "reductions: types, reductions, sources, offsets", 60, &CheckReductions},
      {"C1", "packing", 40,
       [](const CheckScene& scene) { return CheckPacking(scene, PackDirection::kPack); }},
      {"C1", "unpacking", 40,
       [](const CheckScene& scene) { return CheckPacking(scene, PackDirection::kUnpack); }},
      {"C1", "gathering", 40, &CheckGathering}};
  for (const DataType type : kEachType) {
    checks.push_back({"C2", fmt::format("bits of the host: {}", sync::NameOf(type)), 40,
                      [type](const CheckScene& scene) { return CheckManyValues(scene, type); }});
  }
  return checks;
}

}  // namespace lmdbio::test
