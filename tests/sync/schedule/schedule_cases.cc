#include "tests/sync/schedule/schedule_cases.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "tests/support/catch.h"

namespace lmdbio::sync::test {
namespace {

// Tries all orders, depth first. An order that is late by as much as the best so far is left.
class OrderSearch {
 public:
  OrderSearch(const std::vector<TransferUnit>& units, const TransferModel& model)
      : units_(units), model_(model), made_(units.size()) {
    for (const TransferUnit& unit : units) left_count_ += unit.step_count();
  }

  int64_t Search() {
    Try(std::numeric_limits<int64_t>::min() / 4, std::numeric_limits<int64_t>::min() / 4);
    return best_;
  }

 private:
  bool IsLegal(size_t unit) const {
    if (made_[unit] == units_[unit].step_count()) return false;
    for (size_t other = 0; static_cast<int64_t>(other) <= units_[unit].needs_up_to; ++other) {
      if (made_[other] < units_[other].step_count()) return false;
    }
    return true;
  }

  void Try(int64_t free_ns, int64_t lateness) {
    if (lateness >= best_) return;
    if (left_count_ == 0) {
      best_ = lateness;
      return;
    }
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!IsLegal(unit)) continue;
      const TransferUnit& one = units_[unit];
      const uint64_t slice = one.slice_bytes == 0 ? one.bytes : one.slice_bytes;
      const uint64_t bytes = std::min(slice, one.bytes - made_[unit] * slice);
      const int64_t end_ns = std::max(free_ns, one.ready_ns) + model_.TimeOf(bytes);
      ++made_[unit];
      --left_count_;
      const bool is_done = made_[unit] == one.step_count();
      Try(end_ns, is_done ? std::max(lateness, end_ns - one.due_ns) : lateness);
      --made_[unit];
      ++left_count_;
    }
  }

  const std::vector<TransferUnit>& units_;
  const TransferModel& model_;
  std::vector<uint64_t> made_;  // [units] steps
  uint64_t left_count_ = 0;     // steps
  int64_t best_ = std::numeric_limits<int64_t>::max();
};

// A convolution with a bias, or with the scale and shift of a normalisation.
LayerShape Convolution(uint64_t in, uint64_t out, uint64_t kernel, uint64_t size, bool is_normed) {
  const uint64_t weights = in * out * kernel * kernel;
  LayerShape layer{weights * size * size, {4 * weights, 4 * out}};
  if (is_normed) layer.tensor_bytes.push_back(4 * out);
  return layer;
}

LayerShape Dense(uint64_t in, uint64_t out) { return {in * out, {4 * in * out, 4 * out}}; }

}  // namespace

TransferModel StraightModel(int64_t a_ns, int64_t ns_per_line) {
  Result<TransferModel> model =
      TransferModel::FromPoints({{64, a_ns + ns_per_line}, {64 * 1000, a_ns + 1000 * ns_per_line}});
  REQUIRE(model);
  return *model;
}

TransferModel RandomModel(Random& random) {
  std::vector<TransferSample> points = {
      {random.Between(1, 200), static_cast<int64_t>(random.Between(1, 30))}};
  for (uint64_t left = random.Between(1, 4); left > 0; --left) {
    points.push_back({points.back().bytes + random.Between(1, 2000),
                      points.back().ns + static_cast<int64_t>(random.Between(1, 100))});
  }
  Result<TransferModel> model = TransferModel::FromPoints(points);
  REQUIRE(model);
  return *model;
}

std::vector<TransferUnit> MakeRandomUnits(Random& random, const RandomUnits& options) {
  std::vector<TransferUnit> units(random.Between(1, options.count_max));
  uint64_t extra_steps = options.steps_max - units.size();
  for (size_t i = 0; i < units.size(); ++i) {
    TransferUnit& unit = units[i];
    const auto time_max = static_cast<uint64_t>(options.time_ns_max);
    unit.tensors = {i};
    unit.ready_ns = static_cast<int64_t>(random.Below(time_max)) * options.grid_ns;
    unit.due_ns = static_cast<int64_t>(random.Below(2 * time_max)) * options.grid_ns;
    const uint64_t steps = 1 + random.Below(std::min<uint64_t>(extra_steps, 3) + 1);
    extra_steps -= steps - 1;
    const uint64_t slice_bytes = 64 * random.Between(1, 20);
    unit.bytes = steps == 1 ? random.Below(1500)
                            : slice_bytes * (steps - 1) + random.Between(1, slice_bytes);
    unit.slice_bytes = steps == 1 ? 0 : slice_bytes;
    const bool has_needs = options.has_needs && random.Below(3) == 0;
    if (has_needs) unit.needs_up_to = static_cast<int64_t>(random.Below(i + 1)) - 1;
  }
  return units;
}

std::vector<TimedTensor> MakeRandomTensors(Random& random, size_t count, bool has_needs) {
  std::vector<TimedTensor> tensors(count);
  const uint64_t kinds = random.Between(1, 3);
  for (size_t i = 0; i < count; ++i) {
    TimedTensor& tensor = tensors[i];
    tensor.ready_ns = static_cast<int64_t>(random.Below(40 * count));
    tensor.due_ns = static_cast<int64_t>(random.Below(100 * count));
    tensor.bytes = random.Below(random.Below(4) == 0 ? 20'000 : 800);
    tensor.kind = static_cast<uint32_t>(random.Below(kinds));
    tensor.may_slice = random.Below(4) != 0;
    const bool needs_some = has_needs && random.Below(3) == 0;
    if (needs_some) tensor.needs_up_to = static_cast<int64_t>(random.Below(i + 1)) - 1;
  }
  return tensors;
}

std::string ProblemOfSteps(const std::vector<TransferUnit>& units,
                           const std::vector<TransferStep>& steps) {
  std::vector<uint64_t> made_bytes(units.size());
  std::vector<uint64_t> step_counts(units.size());
  for (const TransferStep& step : steps) {
    const TransferUnit& unit = units.at(step.unit);
    if (step.begin != made_bytes[step.unit]) return fmt::format("a gap in unit {}", step.unit);
    const bool is_slice = unit.slice_bytes > 0 && step.bytes < unit.bytes;
    if (is_slice && step.bytes > unit.slice_bytes) return "a slice is too large";
    for (size_t other = 0; static_cast<int64_t>(other) <= unit.needs_up_to; ++other) {
      const bool is_done = made_bytes[other] == units[other].bytes && step_counts[other] > 0;
      if (!is_done) return fmt::format("unit {} comes before unit {}", step.unit, other);
    }
    made_bytes[step.unit] += step.bytes;
    ++step_counts[step.unit];
  }
  for (size_t i = 0; i < units.size(); ++i) {
    if (made_bytes[i] != units[i].bytes) return fmt::format("not all of unit {}", i);
    const bool is_whole = step_counts[i] == 1;
    if (!is_whole && step_counts[i] != units[i].step_count()) return fmt::format("unit {}", i);
  }
  return "";
}

int64_t LatenessOf(const std::vector<TransferUnit>& units, const std::vector<TransferStep>& steps,
                   const TransferModel& model) {
  std::vector<int64_t> done_ns(units.size());
  int64_t free_ns = std::numeric_limits<int64_t>::min() / 4;
  for (const TransferStep& step : steps) {
    free_ns = std::max(free_ns, units[step.unit].ready_ns) + model.TimeOf(step.bytes);
    done_ns[step.unit] = free_ns;
  }
  int64_t lateness = std::numeric_limits<int64_t>::min() / 4;
  for (size_t i = 0; i < units.size(); ++i) {
    lateness = std::max(lateness, done_ns[i] - units[i].due_ns);
  }
  return lateness;
}

int64_t LongestStepNs(const std::vector<TransferStep>& steps, const TransferModel& model) {
  int64_t longest_ns = 0;
  for (const TransferStep& step : steps) {
    longest_ns = std::max(longest_ns, model.TimeOf(step.bytes));
  }
  return longest_ns;
}

int64_t LeastLatenessOfAll(const std::vector<TransferUnit>& units, const TransferModel& model) {
  return OrderSearch(units, model).Search();
}

std::vector<LayerShape> ResNet50Layers() {
  std::vector<LayerShape> layers = {Convolution(3, 64, 7, 112, true)};
  uint64_t in = 64;
  uint64_t size = 56;
  for (const auto& [width, blocks] :
       std::vector<std::pair<uint64_t, int>>{{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < blocks; ++block) {
      const uint64_t in_size = block == 0 && width > 64 ? 2 * size : size;
      layers.push_back(Convolution(in, width, 1, in_size, true));
      layers.push_back(Convolution(width, width, 3, size, true));
      layers.push_back(Convolution(width, 4 * width, 1, size, true));
      if (block == 0) layers.push_back(Convolution(in, 4 * width, 1, size, true));
      in = 4 * width;
    }
    size /= 2;
  }
  layers.push_back(Dense(2048, 1000));
  return layers;
}

std::vector<LayerShape> Vgg16Layers() {
  std::vector<LayerShape> layers;
  uint64_t in = 3;
  uint64_t size = 224;
  for (const auto& [width, count] :
       std::vector<std::pair<uint64_t, int>>{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}) {
    for (int i = 0; i < count; ++i) {
      layers.push_back(Convolution(in, width, 3, size, false));
      in = width;
    }
    size /= 2;
  }
  layers.push_back(Dense(size * size * in, 4096));
  layers.push_back(Dense(4096, 4096));
  layers.push_back(Dense(4096, 1000));
  return layers;
}

TrainingTimes TimesOfTraining(const std::vector<LayerShape>& layers, int64_t length_ns) {
  uint64_t madds = 0;
  for (const LayerShape& layer : layers) madds += layer.madds;
  const auto share_of = [&](uint64_t part, int64_t ns) {
    return static_cast<int64_t>(static_cast<double>(part) / static_cast<double>(madds) *
                                static_cast<double>(ns));
  };
  const int64_t forward_ns = length_ns / 3;
  const int64_t first_ns = share_of(layers.back().madds, 2 * forward_ns);
  TrainingTimes training{{}, length_ns, length_ns - forward_ns - first_ns};
  uint64_t left = madds;  // of this layer and those before it
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const uint64_t computed = madds - left + layer->madds;
    left -= layer->madds;
    for (const uint64_t bytes : layer->tensor_bytes) {
      TimedTensor tensor;
      tensor.ready_ns = share_of(computed, 2 * forward_ns) - first_ns;
      tensor.due_ns = training.backward_end_ns + share_of(left, forward_ns);
      tensor.bytes = bytes;
      tensor.may_slice = true;
      training.tensors.push_back(tensor);
    }
  }
  training.backward_end_ns = training.tensors.back().ready_ns;
  return training;
}

}  // namespace lmdbio::sync::test
