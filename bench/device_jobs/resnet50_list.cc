#include "bench/device_jobs/resnet50_list.h"

namespace lmdbio::figures {
namespace {

class GradientList {
 public:
  // A convolution, or a matrix, whose weights are used at each place of its result.
  void AddWeights(uint64_t count, uint64_t places) {
    gradients_.push_back({count, static_cast<double>(count * places)});
  }
  void AddSmall(uint64_t count) { gradients_.push_back({count, 0}); }
  // With the scale and the shift of the normalization behind it.
  void AddConvolution(uint64_t in, uint64_t out, uint64_t extent, uint64_t places) {
    AddWeights(in * out * extent * extent, places);
    AddSmall(out);
    AddSmall(out);
  }

  std::vector<EmulatedGradient> Take() {
    double sum = 0;
    for (const EmulatedGradient& one : gradients_) sum += one.cost;
    for (EmulatedGradient& one : gradients_) one.cost /= sum;
    return std::move(gradients_);
  }

 private:
  std::vector<EmulatedGradient> gradients_;
};

}  // namespace

std::vector<EmulatedGradient> Resnet50Gradients() {
  struct Stage {
    int blocks;
    uint64_t width;
    uint64_t extent;  // of its results
  };
  GradientList list;
  list.AddConvolution(3, 64, 7, 112 * 112);
  uint64_t in = 64;
  uint64_t places_in = 56 * 56;
  for (const Stage& stage : {Stage{3, 64, 56}, {4, 128, 28}, {6, 256, 14}, {3, 512, 7}}) {
    const uint64_t places = stage.extent * stage.extent;
    const uint64_t out = 4 * stage.width;
    for (int block = 0; block < stage.blocks; ++block) {
      list.AddConvolution(in, stage.width, 1, places_in);
      list.AddConvolution(stage.width, stage.width, 3, places);
      list.AddConvolution(stage.width, out, 1, places);
      if (block == 0) list.AddConvolution(in, out, 1, places);
      in = out;
      places_in = places;
    }
  }
  list.AddWeights(in * 1000, 1);
  list.AddSmall(1000);
  return list.Take();
}

}  // namespace lmdbio::figures
