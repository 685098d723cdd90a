// A Synchronizer of sync_bench for programs in Python (replay_rank.py), by the name of its variant:
// also with MPI's blocking collectives, which Python's own interface does not have.
//
// The functions are for ctypes. An `error` has room for `error_bytes`, of which a failed call fills
// the first ones with one line. One thread at a time uses a handle. Errors: those of MakeSync
// (gradient_sync.h).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/layers/layer_network.h"
#include "bench/sync/workload.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/mpi/mpi_group.h"

namespace lmdbio::bench {
namespace {

// Members are destroyed from the last to the first: the synchronizer before what it uses.
struct LibraryVariant {
  explicit LibraryVariant(LayerNetwork of) : network(std::move(of)), gradients(network) {}

  std::unique_ptr<ranks::Group> group;
  LayerNetwork network;
  Gradients gradients;
  std::unique_ptr<SyncContext> context;
  std::unique_ptr<GradientSync> sync;
  std::string description;
};

Result<std::unique_ptr<LibraryVariant>> Open(const std::string& name, const std::string& path,
                                             double scale) {
  LMDBIO_TRY(LayerNetwork network, ReadNetwork(path, scale));
  auto variant = std::make_unique<LibraryVariant>(std::move(network));
  LMDBIO_TRY(variant->group, ranks::MpiGroup(MPI_COMM_WORLD));
  variant->context = std::make_unique<SyncContext>(
      SyncContext{*variant->group, MPI_COMM_WORLD, variant->network, variant->gradients, {}});
  LMDBIO_TRY(variant->sync, MakeSynchronizerSync(name, *variant->context));
  variant->description = fmt::format("{}", fmt::join(variant->sync->Description(), "; "));
  return variant;
}

// Returns whether there was no failure.
bool Told(const Status& status, char* error, size_t error_bytes) {
  if (status || error_bytes == 0) return status.has_value();
  const std::string& message = status.error().message();
  const size_t length = std::min(message.size(), error_bytes - 1);
  std::memcpy(error, message.data(), length);
  error[length] = '\0';
  return false;
}

}  // namespace
}  // namespace lmdbio::bench

using lmdbio::bench::LibraryVariant;

extern "C" {

// Collective over MPI_COMM_WORLD. Returns null after a failure.
// name  of a variant of sync_bench: "lmdbio:..."
// path  of the network's file
LibraryVariant* lmdbio_bench_open(const char* name, const char* path, double scale, char* error,
                                  size_t error_bytes) {
  auto variant = lmdbio::bench::Open(name, path, scale);
  if (variant) return variant->release();
  lmdbio::bench::Told(lmdbio::Fail(std::move(variant).error()), error, error_bytes);
  return nullptr;
}

// Sets the memory of a tensor: `count` values that outlive the handle. Returns 0 if the network has
// no such tensor or another count.
int lmdbio_bench_set_values(LibraryVariant* variant, uint32_t index, float* values,
                            uint64_t count) {
  if (index >= variant->network.tensors.size()) return 0;
  if (variant->network.tensors[index].count != count) return 0;
  variant->gradients.Move(index, values);
  return 1;
}

void lmdbio_bench_submit(LibraryVariant* variant, uint32_t index) { variant->sync->Submit(index); }

// Waits for all tensors of an iteration. Returns 0 after a failure.
int lmdbio_bench_wait_all(LibraryVariant* variant, char* error, size_t error_bytes) {
  return lmdbio::bench::Told(variant->sync->WaitAll(), error, error_bytes) ? 1 : 0;
}

// Valid as long as the handle.
const char* lmdbio_bench_description(const LibraryVariant* variant) {
  return variant->description.c_str();
}

// Collective. Returns 0 after a failure; the handle ends in any case.
int lmdbio_bench_close(LibraryVariant* variant, char* error, size_t error_bytes) {
  const std::unique_ptr<LibraryVariant> owned(variant);
  return lmdbio::bench::Told(owned->sync->Finish(), error, error_bytes) ? 1 : 0;
}

}  // extern "C"
