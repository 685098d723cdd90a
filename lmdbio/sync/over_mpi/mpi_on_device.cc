#include "lmdbio/sync/over_mpi/mpi_on_device.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_mpi/mpi_reduce_ops.h"

namespace lmdbio::sync {
namespace {

// None: that of MPI may give another result. MPI does not say which of a number and a NaN is less.
std::optional<MPI_Op> OpOnDevice(DataType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return MPI_SUM;
    case ReduceOp::kProduct:
      return MPI_PROD;
    case ReduceOp::kMin:
      if (IsFloating(type)) break;
      return MPI_MIN;
    case ReduceOp::kMax:
      if (IsFloating(type)) break;
      return MPI_MAX;
  }
  return std::nullopt;
}

class OnDevice final : public BlockingLibrary {
 public:
  // Takes ownership of the communicator.
  OnDevice(MPI_Comm communicator, uint64_t piece_bytes_max)
      : communicator_(communicator), piece_bytes_max_(piece_bytes_max) {}
  ~OnDevice() override {
    if (ranks::IsMpiRunning()) MPI_Comm_free(&communicator_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  bool Reduces(DataType type, ReduceOp op) const override {
    return OwnMpiType(type) && OpOnDevice(type, op);
  }

  Status AllReduce(const DeviceArray& values, ReduceOp op) override {
    LMDBIO_CHECK(Reduces(values.type, op));
    const uint64_t element_bytes = ElementBytes(values.type);
    const uint64_t piece_count = piece_bytes_max_ / element_bytes;
    for (uint64_t at = 0; at < values.count; at += piece_count) {
      const auto count = static_cast<int>(std::min(piece_count, values.count - at));
      LMDBIO_TRY_VOID(ranks::MpiStatus(
          MPI_Allreduce(MPI_IN_PLACE, PointerTo(values.begin + at * element_bytes), count,
                        *OwnMpiType(values.type), *OpOnDevice(values.type, op), communicator_),
          "MPI_Allreduce"));
    }
    return {};
  }

  Status Broadcast(const device::DeviceSpan& bytes, int root) override {
    for (uint64_t at = 0; at < bytes.size_bytes; at += piece_bytes_max_) {
      const auto count = static_cast<int>(std::min(piece_bytes_max_, bytes.size_bytes - at));
      LMDBIO_TRY_VOID(ranks::MpiStatus(
          MPI_Bcast(PointerTo(bytes.begin + at), count, MPI_BYTE, root, communicator_),
          "MPI_Bcast"));
    }
    return {};
  }

  std::string_view name() const override { return "MPI"; }
  std::string_view refused_values() const override {
    return "float16, bfloat16, and minima and maxima of floats";
  }

 private:
  static void* PointerTo(device::DeviceAddress address) {
    return std::bit_cast<void*>(address.value);
  }

  MPI_Comm communicator_;
  const uint64_t piece_bytes_max_;
};

}  // namespace

Result<std::unique_ptr<BlockingLibrary>> MpiOnDevice(MPI_Comm communicator,
                                                     uint64_t piece_bytes_max) {
  LMDBIO_CHECK(piece_bytes_max >= 8 && piece_bytes_max <= ranks::kPieceBytesMax);
  MPI_Comm duplicate = MPI_COMM_NULL;
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Comm_dup(communicator, &duplicate), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);
  return std::make_unique<OnDevice>(duplicate, piece_bytes_max);
}

}  // namespace lmdbio::sync
