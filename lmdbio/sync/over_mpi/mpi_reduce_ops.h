// lmdbio/sync/over_mpi/mpi_reduce_ops.h - the MPI types and operations for DataType and ReduceOp.
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_REDUCE_OPS_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_REDUCE_OPS_H_

#include <array>
#include <optional>

#include <mpi.h>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// None: MPI has no such type.
std::optional<MPI_Datatype> OwnMpiType(DataType type);

// MPI's own operations are used for integers, and for sums and products of float32 and float64. The
// others are user-defined operations that call sync/reduce: all operations on float16 and bfloat16,
// because MPI has no such types, and minimum and maximum of floats, because of NaN.
//
// Ownership: the user-defined operations belong to this object.
class MpiReduceOps {
 public:
  MpiReduceOps() = default;
  ~MpiReduceOps();
  MpiReduceOps(const MpiReduceOps&) = delete;
  MpiReduceOps& operator=(const MpiReduceOps&) = delete;

  // Requires: MPI is running
  // Errors: kInternal  MPI failed; has the message of MPI
  Status Make();

  // Requires: Make has succeeded
  MPI_Datatype TypeOf(DataType type) const;
  MPI_Op OpOf(DataType type, ReduceOp op) const;

 private:
  static constexpr size_t kTypeCount = 6;
  static constexpr size_t kOpCount = 4;
  std::array<std::array<MPI_Op, kOpCount>, kTypeCount> own_ops_{};  // or MPI_OP_NULL
  MPI_Datatype half_ = MPI_DATATYPE_NULL;                           // of two bytes
  bool is_made_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_REDUCE_OPS_H_
