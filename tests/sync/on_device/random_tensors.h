// tests/sync/on_device/random_tensors.h - tensors of random sizes on a device of the stand-in, and
// what a call must make of them.
#ifndef LMDBIO_TESTS_SYNC_ON_DEVICE_RANDOM_TENSORS_H_
#define LMDBIO_TESTS_SYNC_ON_DEVICE_RANDOM_TENSORS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/sync/on_device/staged_work.h"
#include "tests/support/random.h"
#include "tests/sync/on_device/tensors_on_device.h"

namespace lmdbio::test {

// Tensors of floats that a program writes on its stream, and what their outputs must be.
struct RandomTensors {
  // result_of  of a value that the call gets
  RandomTensors(ProgramOnDevice& of_program, sync::EventPool& events, Random& random,
                uint64_t its_chunk_bytes, const std::function<float(float)>& result_of)
      : program(of_program), chunk_bytes(its_chunk_bytes) {
    const auto count = static_cast<size_t>(random.Between(1, 6));
    uint64_t end = 0;
    prescale = random.Below(2) == 0 ? 1 : 0.5;
    for (size_t i = 0; i < count; ++i) {
      std::vector<float> values(random.Below(4) == 0 ? 0 : random.Below(400));
      for (float& value : values) value = static_cast<float>(random.Below(1000));
      const std::string bytes = BytesOfAll(values);
      inputs.push_back(program.Allocate(bytes.size() + 64));
      outputs.push_back(program.Allocate(bytes.size() + 64));
      program.WriteLater(inputs.back().begin(), bytes);
      const uint64_t kind = random.Below(5);
      const bool is_in_place = kind == 0;
      const bool has_input = kind != 1;
      const bool has_output = kind != 2;
      sync::StagedTensor tensor;
      if (has_input) tensor.input = {inputs.back().begin(), bytes.size()};
      if (has_output) {
        tensor.output = {(is_in_place ? inputs : outputs).back().begin(), bytes.size()};
      }
      if (!has_input) std::fill(values.begin(), values.end(), 0.0F);
      for (float& value : values) value = result_of(static_cast<float>(value * prescale));
      expected.push_back(has_output ? BytesOfAll(values) : "");
      sizes.push_back(bytes.size());
      offsets.push_back(end);
      end = (end + bytes.size() + 63) / 64 * 64;
      tensors.push_back(tensor);
    }
    auto ready = Good(events.Take());
    Must(program.stream().Record(*ready));
    tensors.back().ready = std::move(ready);
  }

  sync::StagedWork Work() const {
    return {tensors, sync::StagedChunks(offsets, sizes, chunk_bytes), sync::DataType::kFloat32,
            prescale};
  }

  // Whether work that the program enqueues behind `is_in` sees the results, and nothing else has
  // changed.
  bool AreRight(const sync::EventPtr& is_in) {
    Must(program.stream().Await(*is_in));
    bool are_right = true;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const ::lmdbio::device::DeviceSpan output = tensors[i].output;
      if (output.size_bytes == 0) continue;
      const std::string found = program.ReadNow(output.begin, output.size_bytes + 64);
      are_right = are_right && found == expected[i] + std::string(64, '\0');
    }
    return are_right;
  }

  ProgramOnDevice& program;
  uint64_t chunk_bytes;
  double prescale = 1;
  std::vector<::lmdbio::device::DeviceMemory> inputs;
  std::vector<::lmdbio::device::DeviceMemory> outputs;
  std::vector<sync::StagedTensor> tensors;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes;
  std::vector<std::string> expected;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ON_DEVICE_RANDOM_TENSORS_H_
