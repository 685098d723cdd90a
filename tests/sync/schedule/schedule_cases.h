// tests/sync/schedule/schedule_cases.h - random units and networks, and their expected properties.
#ifndef LMDBIO_TESTS_SYNC_SCHEDULE_SCHEDULE_CASES_H_
#define LMDBIO_TESTS_SYNC_SCHEDULE_SCHEDULE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/sync/schedule/transfer_model.h"
#include "lmdbio/sync/schedule/transfer_order.h"
#include "lmdbio/sync/schedule/transfer_units.h"
#include "tests/support/random.h"

namespace lmdbio::sync::test {

using lmdbio::test::ForSeeds;
using lmdbio::test::Random;

// f(x) = a_ns + x * ns_per_line / 64, from 64 bytes on.
TransferModel StraightModel(int64_t a_ns, int64_t ns_per_line);
// Up to 5 points, at random.
TransferModel RandomModel(Random& random);

struct RandomUnits {
  uint64_t count_max = 7;
  uint64_t steps_max = 8;    // of all units
  int64_t grid_ns = 1;       // times are multiples of it
  int64_t time_ns_max = 40;  // of ready times, and twice of due times; in units of the grid
  bool has_needs = true;
};
// Each unit has one tensor.
std::vector<TransferUnit> MakeRandomUnits(Random& random, const RandomUnits& options);

// Tensors with random times, sizes around the threshold, kinds and needs.
std::vector<TimedTensor> MakeRandomTensors(Random& random, size_t count, bool has_needs);

// The error of an order: a byte that is missing or comes twice, slices in a wrong order or of a
// wrong size, or a unit that begins before one that it needs has ended. "" if there is none.
std::string ProblemOfSteps(const std::vector<TransferUnit>& units,
                           const std::vector<TransferStep>& steps);

// The greatest lateness of a unit if the channel makes the steps in this order, each when it can.
int64_t LatenessOf(const std::vector<TransferUnit>& units, const std::vector<TransferStep>& steps,
                   const TransferModel& model);
int64_t LongestStepNs(const std::vector<TransferStep>& steps, const TransferModel& model);

// The least greatest lateness of all orders of the steps of the units, by trying them all.
int64_t LeastLatenessOfAll(const std::vector<TransferUnit>& units, const TransferModel& model);

// A layer of a network, in the order of the forward pass.
struct LayerShape {
  uint64_t madds = 0;  // of a forward pass
  std::vector<uint64_t> tensor_bytes;
};
// ResNet-50 and VGG-16 for images of 224 x 224 in float32.
std::vector<LayerShape> ResNet50Layers();
std::vector<LayerShape> Vgg16Layers();

// A training iteration in which the layers compute one after the other, the backward pass twice as
// long as the forward pass. A layer's tensors are ready at the end of its backward pass, and due
// before its forward pass.
struct TrainingTimes {
  std::vector<TimedTensor> tensors;  // in the order in which they are ready
  int64_t length_ns = 0;
  int64_t backward_end_ns = 0;  // the last one is ready
};
TrainingTimes TimesOfTraining(const std::vector<LayerShape>& layers, int64_t length_ns);

}  // namespace lmdbio::sync::test
#endif  // LMDBIO_TESTS_SYNC_SCHEDULE_SCHEDULE_CASES_H_
