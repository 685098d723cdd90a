// bench/device_jobs/resnet50_list.h - the gradients of ResNet-50, with the work that each needs.
//
// The program has the list in itself, because a machine with a GPU often has nothing else of it.
//
// The shapes are those of bench/sync/networks/resnet50.json, which names its source.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_RESNET50_LIST_H_
#define LMDBIO_BENCH_DEVICE_JOBS_RESNET50_LIST_H_

#include <cstdint>
#include <vector>

namespace lmdbio::figures {

struct EmulatedGradient {
  uint64_t count = 0;  // elements
  double cost = 0;     // its share of the work of a backward pass; all together: 1
};

// [161] in forward order.
std::vector<EmulatedGradient> Resnet50Gradients();

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_RESNET50_LIST_H_
