// Goal: ranks that submit tensors of the host and of a GPU in any order get the right sums, and
// nothing hangs. Method: random programs that all ranks know, and a GPU that works in any order.
// Oracle: a loop over all ranks. LMDBIO_TEST_SEEDS=N runs more programs, LMDBIO_TEST_FIRST_SEED=N
// others.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/engine/device_job.h"

namespace lmdbio::sync {
namespace {

using device::DeviceMemory;
using test::DeviceJob;
using test::Good;
using test::Must;
using test::OnDevice;
using test::ProgramOnDevice;
using test::Random;

template <typename T>
T Pick(Random& random, std::initializer_list<T> from) {
  return *(from.begin() + static_cast<ptrdiff_t>(random.Below(from.size())));
}

// A tensor of the program, the same on all ranks.
struct MixedTensor {
  std::string name;
  Operation operation = Operation::kAllReduce;
  int64_t count = 0;
  int root = 0;
  bool is_on_device = false;
  bool is_in_place = false;
  bool is_placed = false;  // on ranks that choose so
};

struct MixedProgram {
  explicit MixedProgram(uint64_t seed) : random(seed) {
    rank_count = Pick(random, {1, 2, 2, 3, 4});
    ranks_per_host = Pick(random, {1, 2, 100, 100});
    options.device = 1;
    options.device_collective = Pick<const char*>(random, {"staged", "auto"});
    options.device_buffer_bytes = Pick<uint64_t>(random, {1000, 30'000, uint64_t{1} << 20});
    options.coordinator = Pick<const char*>(random, {"topo", "topo", "cache", "hierarchical"});
    options.pacing = Pick<const char*>(random, {"event", "event", "cycle"});
    options.fusion_threshold_bytes = Pick<uint64_t>(random, {0, 100, 5000, uint64_t{1} << 20});
    options.num_groups = Pick(random, {0U, 0U, 2U});
    options.plan_patience = std::chrono::milliseconds(Pick(random, {5, 50}));
    options.silence_limit = std::chrono::seconds(60);  // all ranks share two cores
    std::vector<MixedTensor> model = MakeModel();
    for (uint64_t i = random.Between(4, 10); i > 0; --i) {
      if (random.Below(5) == 0) model = MakeModel();
      iterations.push_back(model);
      for (const MixedTensor& tensor : model) options.device_gradient_bytes += PlaceBytes(tensor);
    }
    ends_with_join = random.Below(4) == 0;
  }

  static uint64_t PlaceBytes(const MixedTensor& tensor) {
    if (!tensor.is_placed) return 0;
    return (static_cast<uint64_t>(tensor.count) * sizeof(int32_t) + 63) / 64 * 64;
  }

  std::vector<MixedTensor> MakeModel() {
    std::vector<MixedTensor> model(random.Between(1, 8));
    for (size_t i = 0; i < model.size(); ++i) {
      MixedTensor& tensor = model[i];
      tensor.name = fmt::format("t{}", i);
      tensor.count =
          Pick<int64_t>(random, {0, 1, 17, 1000, 70'000}) + static_cast<int64_t>(random.Below(3));
      tensor.operation = random.Below(6) > 0
                             ? Operation::kAllReduce
                             : Pick(random, {Operation::kBroadcast, Operation::kAllGather});
      tensor.root = static_cast<int>(random.Below(static_cast<uint64_t>(rank_count)));
      tensor.is_on_device = random.Below(3) > 0;
      tensor.is_in_place = random.Below(2) == 0;
      tensor.is_placed = tensor.is_on_device && tensor.is_in_place && random.Below(4) > 0;
    }
    return model;
  }

  Random random;
  SyncOptions options;
  int rank_count = 1;
  int ranks_per_host = 1;
  bool ends_with_join = false;
  std::vector<std::vector<MixedTensor>> iterations;
};

std::vector<int32_t> ValuesOf(const MixedTensor& tensor, int rank, int iteration) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int32_t>(i % 1000) + 7 * rank + 13 * iteration;
  }
  return values;
}

std::string ExpectedOf(const MixedTensor& tensor, int rank_count, int iteration) {
  if (tensor.operation == Operation::kBroadcast) {
    return test::BytesOfAll(ValuesOf(tensor, tensor.root, iteration));
  }
  std::vector<int32_t> expected;
  for (int rank = 0; rank < rank_count; ++rank) {
    const std::vector<int32_t> theirs = ValuesOf(tensor, rank, iteration);
    if (tensor.operation == Operation::kAllGather) {
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    } else if (rank == 0) {
      expected = theirs;
    } else {
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += theirs[i];
    }
  }
  return test::BytesOfAll(expected);
}

// A tensor of an iteration on one rank.
class MixedWork {
 public:
  // place  in placed memory; none: in memory of the program
  MixedWork(ProgramOnDevice& program, const MixedTensor& tensor, int rank, int iteration,
            std::optional<device::DeviceSpan> place)
      : program_(program), tensor_(tensor), input_(ValuesOf(tensor, rank, iteration)) {
    const bool has_values = tensor.operation != Operation::kBroadcast || rank == tensor.root;
    if (!has_values) input_.assign(input_.size(), -1);
    output_.assign(input_.size(), -2);
    if (!tensor.is_on_device) return;
    const std::string bytes = test::BytesOfAll(input_);
    device_input_.emplace(program.Allocate(bytes.size() + 4));
    device_output_.emplace(program.Allocate(bytes.size() + 4));
    from_ = place ? place->begin : device_input_->begin();
    to_ = tensor.is_in_place ? from_ : device_output_->begin();
    program.WriteLater(from_, bytes);
  }

  Submission Submit() {
    void* const output = tensor_.is_in_place ? input_.data() : output_.data();
    Submission submission =
        AllReduceOf(tensor_.name, input_.data(), output, tensor_.count, DataType::kInt32);
    submission.request.operation = tensor_.operation;
    submission.request.root = tensor_.operation == Operation::kBroadcast ? tensor_.root : 0;
    if (!tensor_.is_on_device) return submission;
    return OnDevice(std::move(submission), program_, from_, to_);
  }

  // The result that a program sees after it has waited.
  std::string Result(const Handle& handle) {
    if (tensor_.operation == Operation::kAllGather) {
      const Bytes bytes = handle.result();
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    if (!tensor_.is_on_device) return test::BytesOfAll(tensor_.is_in_place ? input_ : output_);
    return program_.ReadNow(to_, input_.size() * sizeof(int32_t));
  }

 private:
  ProgramOnDevice& program_;
  const MixedTensor& tensor_;
  std::vector<int32_t> input_;
  std::vector<int32_t> output_;
  std::optional<DeviceMemory> device_input_;
  std::optional<DeviceMemory> device_output_;
  device::DeviceAddress from_;
  device::DeviceAddress to_;
};

// Places of the tensors of an iteration, of which each rank uses some.
std::vector<std::optional<device::DeviceSpan>> Place(const std::vector<MixedTensor>& tensors,
                                                     Synchronizer& synchronizer, Random& random) {
  std::vector<std::optional<device::DeviceSpan>> places;
  const bool are_all_used = random.Below(2) == 0;
  for (const MixedTensor& tensor : tensors) {
    places.emplace_back();
    if (!tensor.is_placed) continue;
    const uint64_t size_bytes = static_cast<uint64_t>(tensor.count) * sizeof(int32_t);
    const device::DeviceSpan place = Good(synchronizer.PlaceOnDevice(size_bytes));
    if (are_all_used || random.Below(2) == 0) places.back() = place;
  }
  return places;
}

void Play(DeviceJob& job, const MixedProgram& program, uint64_t seed, Synchronizer& synchronizer,
          ProgramOnDevice& on) {
  const int rank = synchronizer.rank();
  Random random(seed * 31 + static_cast<uint64_t>(rank));
  for (int number = 0; number < static_cast<int>(program.iterations.size()); ++number) {
    const auto& tensors = program.iterations[static_cast<size_t>(number)];
    std::vector<size_t> order(tensors.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    random.Shuffle(order);
    const auto places = Place(tensors, synchronizer, random);
    std::vector<std::unique_ptr<MixedWork>> works(tensors.size());
    std::vector<std::optional<Handle>> handles(tensors.size());
    for (const size_t i : order) {
      works[i] = std::make_unique<MixedWork>(on, tensors[i], rank, number, places[i]);
      handles[i].emplace(Good(synchronizer.Submit(works[i]->Submit())));
    }
    random.Shuffle(order);
    for (const size_t i : order) {
      const std::string what = fmt::format("iteration {}, '{}'", number, tensors[i].name);
      const Status status =
          random.Below(2) == 0 ? handles[i]->WaitOn(on.stream().native()) : handles[i]->Wait();
      if (!job.wrong.Expect(status, rank, what)) return;
      job.wrong.Expect(
          works[i]->Result(*handles[i]) == ExpectedOf(tensors[i], synchronizer.size(), number),
          rank, what + ": other values");
    }
    Must(on.stream().Synchronize());  // the memory of this iteration is freed
  }
  if (!program.ends_with_join) return;
  Submission join;
  join.request.operation = Operation::kJoin;
  job.wrong.Expect(Good(synchronizer.Submit(std::move(join))).Wait(), rank, "join");
}

TEST_CASE("Random programs with tensors of both kinds get the right values", "[device_torture]") {
  const char* const text = std::getenv("LMDBIO_TEST_FIRST_SEED");
  const uint64_t first = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  for (uint64_t seed = first; seed < first + test::SeedCount(25); ++seed) {
    INFO("seed " << seed);
    const MixedProgram program(seed);
    DeviceJob job(program.rank_count, seed);
    job.ranks.ranks_per_host = program.ranks_per_host;
    job.options = program.options;
    job.RunOnDevice([&](Synchronizer& synchronizer, ProgramOnDevice& on) {
      Play(job, program, seed, synchronizer, on);
    });
    CHECK(job.wrong.lines() == std::vector<std::string>());
  }
}

}  // namespace
}  // namespace lmdbio::sync
