// Gradients through MPI's own collective, after the backward pass: nothing is overlapped.
#include <cstring>
#include <limits>
#include <utility>

#include "bench/sync/gradient_sync.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"

namespace lmdbio::bench {
namespace {

// MPI counts in int.
constexpr size_t kCallFloatsMax = size_t{1} << 28;

// Adds up `values` over all ranks in place.
Status AllReduce(MPI_Comm communicator, std::span<float> values, Traffic& traffic) {
  while (!values.empty()) {
    const std::span<float> part = values.first(std::min(values.size(), kCallFloatsMax));
    LMDBIO_TRY_VOID(
        ranks::MpiStatus(MPI_Allreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()),
                                       MPI_FLOAT, MPI_SUM, communicator),
                         "MPI_Allreduce"));
    ++traffic.collectives;
    traffic.collective_bytes += part.size_bytes();
    ++traffic.sizes[part.size_bytes()];
    values = values.subspan(part.size());
  }
  return {};
}

// In backward order, one call for each tensor. A reduction at the end needs no common order of
// readiness.
class MpiSync final : public GradientSync {
 public:
  explicit MpiSync(const SyncContext& context) : context_(context) {}

  // Nothing is reduced before the backward pass is over.
  void Submit(uint32_t) override {}

  Status WaitAll() override {
    for (uint32_t i = context_.gradients.tensor_count(); i-- > 0;) {
      LMDBIO_TRY_VOID(AllReduce(context_.communicator, context_.gradients.tensor(i), traffic_));
    }
    return {};
  }

  Traffic traffic() override { return traffic_; }

 private:
  const SyncContext context_;
  Traffic traffic_;
};

// Packs all gradients, reduces them in one call and unpacks them, as a trainer must whose gradients
// are not contiguous.
class FusedMpiSync final : public GradientSync {
 public:
  explicit FusedMpiSync(const SyncContext& context) : context_(context) {
    buffer_.resize(context.network.gradient_bytes() / sizeof(float));
  }

  void Submit(uint32_t) override {}

  Status WaitAll() override {
    float* place = buffer_.data();
    for (uint32_t i = 0; i < context_.gradients.tensor_count(); ++i) {
      const std::span<float> tensor = context_.gradients.tensor(i);
      std::memcpy(place, tensor.data(), tensor.size_bytes());
      place += tensor.size();
    }
    LMDBIO_TRY_VOID(AllReduce(context_.communicator, buffer_, traffic_));
    place = buffer_.data();
    for (uint32_t i = 0; i < context_.gradients.tensor_count(); ++i) {
      const std::span<float> tensor = context_.gradients.tensor(i);
      std::memcpy(tensor.data(), place, tensor.size_bytes());
      place += tensor.size();
    }
    return {};
  }

  Traffic traffic() override { return traffic_; }

 private:
  const SyncContext context_;
  std::vector<float> buffer_;
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<GradientSync> MakeMpiSync(const SyncContext& context) {
  return std::make_unique<MpiSync>(context);
}

std::unique_ptr<GradientSync> MakeFusedMpiSync(const SyncContext& context) {
  return std::make_unique<FusedMpiSync>(context);
}

}  // namespace lmdbio::bench
