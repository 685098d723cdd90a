// bench/on_device/figure_parts.h - the figures that one process and one GPU can measure.
//
// Source: docs/device_figures.md
#ifndef LMDBIO_BENCH_ON_DEVICE_FIGURE_PARTS_H_
#define LMDBIO_BENCH_ON_DEVICE_FIGURE_PARTS_H_

#include <string>

#include "bench/on_device/figure_run.h"

namespace lmdbio::figures {

// D1: kernels that reduce, by the copy of the device.
FigurePart ReduceFigures(const FigureSettings& options);
// D2: tensors of a network into a buffer and out of it.
// networks_folder  has resnet50.json and others, as bench/sync/networks
FigurePart PackFigures(const FigureSettings& options, const std::string& networks_folder);
// D7: what a pointer is, by the cache and by the driver.
FigurePart PointerFigures();
// D8: whole calls of the synchronizer, with the cache of pointers and without.
FigurePart CallFigures(const FigureSettings& settings);

struct FeedTools {
  std::string folder;  // for databases, which are removed
  std::string python;  // the Python that has PyTorch
  std::string script;  // torch_feed.py
};
// D11: batches in the memory of the GPU.
FigurePart FeedFigures(const FeedTools& tools);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_FIGURE_PARTS_H_
