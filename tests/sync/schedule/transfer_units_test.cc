// Goal: small tensors travel together while the channel is busy, large ones in slices; no unit
// contains a tensor that needs another one of the unit or of a later one.
#include "lmdbio/sync/schedule/transfer_units.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "tests/support/catch.h"
#include "tests/sync/schedule/schedule_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::MakeRandomTensors;
using test::Random;
using test::RandomModel;
using test::StraightModel;
using Tensors = std::vector<TimedTensor>;
using Units = std::vector<TransferUnit>;
using Positions = std::vector<std::vector<size_t>>;

TimedTensor TensorAt(int64_t ready_ns, uint64_t bytes, uint32_t kind = 0) {
  TimedTensor tensor;
  tensor.ready_ns = ready_ns;
  tensor.due_ns = 1000 - ready_ns;
  tensor.bytes = bytes;
  tensor.kind = kind;
  tensor.may_slice = true;
  return tensor;
}

UnitOptions OptionsOf(uint64_t threshold_bytes) {
  UnitOptions options;
  options.threshold_bytes = threshold_bytes;
  options.length_ns = 1000;
  return options;
}

Positions PositionsOf(const Units& units) {
  Positions positions;
  for (const TransferUnit& unit : units) positions.push_back(unit.tensors);
  return positions;
}

// A call takes 10 ns, and 1 ns a line.
Positions BatchesOf(const Tensors& tensors, const UnitOptions& options = OptionsOf(640)) {
  return PositionsOf(MakeUnits(tensors, StraightModel(10, 1), options));
}

TEST_CASE("Small tensors are batched while the channel is busy", "[schedule]") {
  CHECK(BatchesOf({}).empty());
  // The first one travels at once, until 11; the next two meanwhile become ready; then it is idle.
  CHECK(BatchesOf({TensorAt(0, 64), TensorAt(5, 64), TensorAt(9, 64), TensorAt(40, 64)}) ==
        Positions{{0}, {1, 2}, {3}});
  // The channel is free again when the second one is ready.
  CHECK(BatchesOf({TensorAt(0, 64), TensorAt(11, 64)}) == Positions{{0}, {1}});
  // Tensors that are ready at one time share a unit, also if the channel is idle.
  CHECK(BatchesOf({TensorAt(0, 64), TensorAt(0, 64), TensorAt(0, 64)}) == Positions{{0, 1, 2}});
}

TEST_CASE("A batch is closed at the threshold, and a large tensor travels alone", "[schedule]") {
  CHECK(BatchesOf({TensorAt(0, 320), TensorAt(0, 256), TensorAt(0, 64), TensorAt(0, 64)}) ==
        Positions{{0, 1, 2}, {3}});
  CHECK(BatchesOf({TensorAt(0, 64), TensorAt(0, 640), TensorAt(0, 64)}) == Positions{{0, 2}, {1}});
  CHECK(BatchesOf({TensorAt(0, 640), TensorAt(0, 639), TensorAt(0, 64)}) == Positions{{0}, {1, 2}});
  // A large tensor keeps the channel busy until 110.
  CHECK(BatchesOf({TensorAt(0, 6400), TensorAt(50, 64), TensorAt(100, 64), TensorAt(111, 64)}) ==
        Positions{{0}, {1, 2}, {3}});
  // Without a threshold of its own, that of the model: 1.5 a / b is 960 bytes.
  CHECK(BatchesOf({TensorAt(0, 960), TensorAt(0, 64)}, OptionsOf(0)) == Positions{{0, 1}});
  CHECK(BatchesOf({TensorAt(0, 1024), TensorAt(0, 64)}, OptionsOf(0)) == Positions{{0}, {1}});
}

TEST_CASE("Kinds have a batch each, and a batch has whole lines up to a limit", "[schedule]") {
  CHECK(BatchesOf({TensorAt(0, 64, 7), TensorAt(0, 64, 8), TensorAt(0, 64, 7)}) ==
        Positions{{0, 2}, {1}});
  UnitOptions options = OptionsOf(640);
  options.bucket_bytes_max = 256;
  const Tensors tensors = {TensorAt(0, 65), TensorAt(0, 1), TensorAt(0, 64), TensorAt(0, 1)};
  const Units units = MakeUnits(tensors, StraightModel(10, 1), options);
  CHECK(PositionsOf(units) == Positions{{0, 1, 2}, {3}});
  CHECK(units[0].bytes == 256);
  CHECK(units[1].bytes == 1);
  // One tensor may be larger than the limit.
  CHECK(BatchesOf({TensorAt(0, 300), TensorAt(0, 64)}, options) == Positions{{0}, {1}});
}

TEST_CASE("A unit is ready with its last tensor and due with its first one", "[schedule]") {
  Tensors tensors = {TensorAt(5, 64), TensorAt(3, 64), TensorAt(4, 64), TensorAt(0, 64)};
  tensors[2].due_ns = 50;
  const Units units = MakeUnits(tensors, StraightModel(10, 1), OptionsOf(640));
  REQUIRE(PositionsOf(units) == Positions{{3}, {1, 2, 0}});
  CHECK(units[1].ready_ns == 5);
  CHECK(units[1].due_ns == 50);
  CHECK(units[0].due_ns == 1000);
}

TEST_CASE("No unit crosses a dependency", "[schedule]") {
  Tensors tensors(4, TensorAt(0, 64));
  CHECK(BatchesOf(tensors) == Positions{{0, 1, 2, 3}});
  tensors[2].needs_up_to = 0;
  const Units units = MakeUnits(tensors, StraightModel(10, 1), OptionsOf(640));
  CHECK(PositionsOf(units) == Positions{{0, 1}, {2, 3}});
  CHECK(units[0].needs_up_to == -1);
  CHECK(units[1].needs_up_to == 0);
  // A tensor is not ready before one that it needs.
  tensors[0].ready_ns = 100;
  const Units late = MakeUnits(tensors, StraightModel(10, 1), OptionsOf(640));
  CHECK(PositionsOf(late) == Positions{{1, 3}, {0}, {2}});
  CHECK(late[2].ready_ns == 100);
  CHECK(late[2].needs_up_to == 1);
  // The batch that tensor 2 needs is closed, of whatever kind, so that it waits for no others.
  tensors = {TensorAt(0, 64, 1), TensorAt(0, 64, 2), TensorAt(0, 64, 1)};
  tensors[1].needs_up_to = 0;
  CHECK(BatchesOf(tensors) == Positions{{0}, {1}, {2}});
}

// Slices of a call of `bytes`.
uint64_t SliceBytesOf(uint64_t bytes, uint64_t slice_bytes, int64_t length_ns = 1000) {
  UnitOptions options = OptionsOf(640);
  options.slice_bytes = slice_bytes;
  options.length_ns = length_ns;
  return MakeUnits(Tensors{TensorAt(0, bytes)}, StraightModel(10, 1), options)[0].slice_bytes;
}

TEST_CASE("Large tensors are cut into equal slices of whole lines", "[schedule]") {
  CHECK(SliceBytesOf(1279, 640) == 0);
  CHECK(SliceBytesOf(1280, 640) == 640);
  CHECK(SliceBytesOf(1919, 640) == 960);
  CHECK(SliceBytesOf(64'000, 640) == 640);
  CHECK(SliceBytesOf(64'001, 640) == 704);
  CHECK(SliceBytesOf(100, 1) == 64);
  CHECK(SliceBytesOf(64, 1) == 0);
  CHECK(SliceBytesOf(64 * 5120, 64) == 640);  // 512 slices
  // By the model: the threshold, or the bytes that take 1/100 of the iteration.
  CHECK(SliceBytesOf(6400, 0, 1000) == 640);
  CHECK(SliceBytesOf(6400, 0, 3000) == 1280);     // 30 ns: 20 lines
  CHECK(SliceBytesOf(640'000, 0, 0) == 64 * 91);  // 10,010 ns for all of it: 90 lines and more
  Tensors tensors = {TensorAt(0, 6400)};
  tensors[0].may_slice = false;
  CHECK(MakeUnits(tensors, StraightModel(10, 1), OptionsOf(640))[0].slice_bytes == 0);
  // Batches are whole.
  tensors = {TensorAt(0, 600), TensorAt(0, 600)};
  UnitOptions options = OptionsOf(640);
  options.slice_bytes = 64;
  CHECK(MakeUnits(tensors, StraightModel(10, 1), options)[0].slice_bytes == 0);
  CHECK(TransferUnit{{0}, 0, 0, 100, -1, 64}.step_count() == 2);
  CHECK(TransferUnit{{0}, 0, 0, 128, -1, 64}.step_count() == 2);
  CHECK(TransferUnit{{0}, 0, 0, 0, -1, 0}.step_count() == 1);
}

std::string ProblemOfUnits(const Tensors& tensors, const Units& units) {
  std::vector<size_t> unit_of(tensors.size(), units.size());
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (const size_t i : units[unit].tensors) {
      if (unit_of.at(i) != units.size()) return fmt::format("tensor {} comes twice", i);
      unit_of[i] = unit;
    }
  }
  std::vector<int64_t> ready_ns(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (unit_of[i] == units.size()) return fmt::format("no tensor {}", i);
    ready_ns[i] = tensors[i].ready_ns;
    const int64_t needs = units[unit_of[i]].needs_up_to;
    if (needs >= static_cast<int64_t>(unit_of[i])) return "a unit needs a later one";
    for (size_t other = 0; static_cast<int64_t>(other) <= tensors[i].needs_up_to; ++other) {
      ready_ns[i] = std::max(ready_ns[i], ready_ns[other]);
      if (static_cast<int64_t>(unit_of[other]) > needs) return fmt::format("needs of {}", i);
    }
  }
  for (const TransferUnit& unit : units) {
    int64_t latest_ns = std::numeric_limits<int64_t>::min();
    int64_t due_ns = std::numeric_limits<int64_t>::max();
    for (const size_t i : unit.tensors) {
      latest_ns = std::max(latest_ns, ready_ns[i]);
      due_ns = std::min(due_ns, tensors[i].due_ns);
      if (tensors[i].kind != tensors[unit.tensors[0]].kind) return "kinds are mixed";
    }
    if (unit.ready_ns != latest_ns) return "ready";
    if (unit.due_ns != due_ns) return "due";
    uint64_t bytes = tensors[unit.tensors[0]].bytes;
    if (unit.tensors.size() > 1) {
      bytes = 0;
      for (const size_t i : unit.tensors) bytes += AlignUp(tensors[i].bytes, kCacheLineBytes);
    }
    if (unit.bytes != bytes) return "bytes";
  }
  return "";
}

// The rule of 4.2, written anew for tensors that are sorted, of one kind and without needs.
Positions PaperBatches(const Tensors& tensors, const TransferModel& model, uint64_t threshold) {
  Positions batches;
  int64_t free_ns = 0;
  std::vector<size_t> open;
  uint64_t open_bytes = 0;
  const auto send = [&](const std::vector<size_t>& batch, uint64_t bytes) {
    free_ns = std::max(free_ns, tensors[batch.back()].ready_ns) + model.TimeOf(bytes);
    batches.push_back(batch);
  };
  const auto close = [&] {
    if (!open.empty()) send(open, open_bytes);
    open.clear();
    open_bytes = 0;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool was_idle = !open.empty() && free_ns < tensors[i].ready_ns &&
                          tensors[open.back()].ready_ns < tensors[i].ready_ns;
    if (was_idle) close();
    if (tensors[i].bytes >= threshold) {
      send({i}, tensors[i].bytes);
      continue;
    }
    open.push_back(i);
    open_bytes = open.size() == 1 ? tensors[i].bytes
                                  : AlignUp(open_bytes, 64) + AlignUp(tensors[i].bytes, 64);
    if (open_bytes >= threshold) close();
  }
  close();
  std::sort(batches.begin(), batches.end());
  return batches;
}

TEST_CASE("Random tensors are in units as they must be", "[schedule]") {
  ForSeeds(3'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    const bool has_needs = random.Below(2) == 0;
    Tensors tensors = MakeRandomTensors(random, random.Between(1, 30), has_needs);
    UnitOptions options = OptionsOf(random.Below(2) * 2000);
    if (random.Below(3) == 0) options.bucket_bytes_max = random.Between(64, 4000);
    if (random.Below(3) == 0) options.slice_bytes = random.Between(1, 5000);
    const Units units = MakeUnits(tensors, model, options);
    if (std::string problem = ProblemOfUnits(tensors, units); !problem.empty()) return problem;
    const uint64_t threshold =
        options.threshold_bytes > 0 ? options.threshold_bytes : model.Threshold();
    for (const TransferUnit& unit : units) {
      const bool is_batch = unit.tensors.size() > 1;
      if (is_batch && unit.bytes > options.bucket_bytes_max) return "a bucket is too large";
      for (const size_t i : unit.tensors) {
        if (is_batch && tensors[i].bytes >= threshold) return "a large tensor is in a batch";
      }
      if (unit.slice_bytes == 0) continue;
      if (is_batch || !tensors[unit.tensors[0]].may_slice) return "slices of the wrong unit";
      if (unit.slice_bytes % 64 != 0 || unit.step_count() > kSlicesMax) return "slices";
      const uint64_t slice_min = options.slice_bytes > 0 ? options.slice_bytes : threshold;
      if (unit.slice_bytes < slice_min) return "a slice is too small";
      if (unit.slice_bytes >= unit.bytes) return "one slice";
    }
    return "";
  });
}

TEST_CASE("Batches are those of the paper's rule", "[schedule]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    Tensors tensors = MakeRandomTensors(random, random.Between(1, 30), false);
    for (TimedTensor& tensor : tensors) tensor.kind = 0;
    std::sort(tensors.begin(), tensors.end(),
              [](const TimedTensor& a, const TimedTensor& b) { return a.ready_ns < b.ready_ns; });
    const uint64_t threshold = random.Between(1, 3000);
    Positions batches = PositionsOf(MakeUnits(tensors, model, OptionsOf(threshold)));
    std::sort(batches.begin(), batches.end());
    return batches == PaperBatches(tensors, model, threshold) ? "" : "other batches";
  });
}

TEST_CASE("Tensors in another order make the same units", "[schedule]") {
  ForSeeds(500, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    Tensors tensors = MakeRandomTensors(random, random.Between(1, 20), false);
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].ready_ns = 32 * tensors[i].ready_ns + static_cast<int64_t>(i);
    }
    std::vector<size_t> places(tensors.size());
    std::iota(places.begin(), places.end(), size_t{0});
    random.Shuffle(places);
    Tensors moved(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) moved[places[i]] = tensors[i];
    Positions units = PositionsOf(MakeUnits(tensors, model, OptionsOf(0)));
    for (std::vector<size_t>& unit : units) {
      for (size_t& position : unit) position = places[position];
    }
    return units == PositionsOf(MakeUnits(moved, model, OptionsOf(0))) ? "" : "other units";
  });
}

TEST_CASE("Buckets of a plan become units", "[schedule]") {
  Tensors tensors = {TensorAt(0, 65), TensorAt(30, 64), TensorAt(10, 1000)};
  tensors[2].needs_up_to = 0;
  const Units units = UnitsOfBuckets(tensors, {{1, 0}, {2}});
  REQUIRE(units.size() == 2);
  CHECK(ProblemOfUnits(tensors, units).empty());
  CHECK(units[0].bytes == 192);
  CHECK(units[0].ready_ns == 30);
  CHECK(units[0].due_ns == 970);
  CHECK(units[0].needs_up_to == -1);
  CHECK(units[1].needs_up_to == 0);
  CHECK(units[1].slice_bytes == 0);
}

// Time at which the channel has made all units, each whole, in the order in which they are ready.
int64_t EndOf(Units units, const TransferModel& model) {
  std::stable_sort(units.begin(), units.end(), [](const TransferUnit& a, const TransferUnit& b) {
    return a.ready_ns < b.ready_ns;
  });
  int64_t free_ns = 0;
  for (const TransferUnit& unit : units) {
    free_ns = std::max(free_ns, unit.ready_ns) + model.TimeOf(unit.bytes);
  }
  return free_ns;
}

// The earliest end of all ways to cut a chain into batches, by dynamic programming.
// tensors  in the order of their ready times
int64_t EarliestEnd(const Tensors& tensors, const TransferModel& model) {
  std::vector<int64_t> ends_ns = {0};  // of the first tensors
  for (size_t end = 1; end <= tensors.size(); ++end) {
    int64_t earliest_ns = std::numeric_limits<int64_t>::max();
    uint64_t lines_bytes = 0;
    for (size_t begin = end; begin-- > 0;) {
      lines_bytes += AlignUp(tensors[begin].bytes, kCacheLineBytes);
      const uint64_t bytes = end - begin == 1 ? tensors[begin].bytes : lines_bytes;
      const int64_t start_ns = std::max(ends_ns[begin], tensors[end - 1].ready_ns);
      earliest_ns = std::min(earliest_ns, start_ns + model.TimeOf(bytes));
    }
    ends_ns.push_back(earliest_ns);
  }
  return ends_ns.back();
}

double EndRatio(const Tensors& tensors, const TransferModel& model) {
  const int64_t end_ns = EndOf(MakeUnits(tensors, model, OptionsOf(0)), model);
  return static_cast<double>(end_ns) / static_cast<double>(EarliestEnd(tensors, model));
}

// A rule that does not know the tensors to come may send one just before another one is ready, so
// it is not always near the best. Here a call takes 10 to 200 ns, a tensor 1 to 300 ns, and the
// next one is ready after 0 to 400 ns.
TEST_CASE("Batches of a chain end as early as the best ones, or 5 % later on average",
          "[schedule]") {
  constexpr int kChains = 1000;
  double sum = 0;
  int near_count = 0;
  for (uint64_t seed = 0; seed < kChains; ++seed) {
    Random random(seed);
    const TransferModel model = StraightModel(static_cast<int64_t>(random.Between(10, 200)), 1);
    Tensors tensors(random.Between(1, 10));
    int64_t ready_ns = 0;
    for (TimedTensor& tensor : tensors) {
      tensor = TensorAt(ready_ns, 64 * random.Between(1, 300));
      ready_ns += static_cast<int64_t>(random.Below(400));
    }
    const double ratio = EndRatio(tensors, model);
    CAPTURE(seed);
    CHECK(ratio >= 1);
    CHECK(ratio <= 2);
    sum += ratio;
    if (ratio <= 1.05) ++near_count;
  }
  CHECK(sum / kChains <= 1.06);
  CHECK(near_count >= kChains * 6 / 10);
}

// Calls of 20 and 200 us, and of 1 ms, which is 1/300 of an iteration.
TEST_CASE("Batches of a network end 5 % later than the best ones at most", "[schedule]") {
  constexpr int64_t kIterationNs = 300'000'000;
  for (const auto& layers : {test::ResNet50Layers(), test::Vgg16Layers()}) {
    const test::TrainingTimes training = test::TimesOfTraining(layers, kIterationNs);
    uint64_t bytes = 0;
    for (const TimedTensor& tensor : training.tensors) bytes += tensor.bytes;
    for (const int64_t percent : {25, 50, 100, 200}) {  // of the iteration, for all bytes
      for (const int64_t call_ns : {20'000, 200'000, 1'000'000}) {
        const int64_t channel_ns = kIterationNs * percent / 100;
        const Result<TransferModel> model =
            TransferModel::FromPoints({{1, call_ns}, {bytes, call_ns + channel_ns}});
        REQUIRE(model);
        CAPTURE(training.tensors.size(), percent, call_ns);
        const double ratio = EndRatio(training.tensors, *model);
        CHECK(ratio >= 1);
        CHECK(ratio <= (call_ns < 1'000'000 ? 1.05 : 1.13));
      }
    }
  }
}

}  // namespace
}  // namespace lmdbio::sync
