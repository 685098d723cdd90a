// lmdbio/sync/over_mpi/mpi_reduce_ops.h - our types and reductions in MPI's words.
#ifndef LMDBIO_SYNC_OVER_MPI_MPI_REDUCE_OPS_H_
#define LMDBIO_SYNC_OVER_MPI_MPI_REDUCE_OPS_H_

#include <array>

#include <mpi.h>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// MPI's own reductions where they mean the same: sums and products of what MPI has types for, and
// whatever is made of integers. The rest is made with lmdbio/reduce: float16 and bfloat16, for
// which MPI has no types, and the least and the greatest of numbers that may be NaN.
//
// The reductions that are made so belong to this object; MPI's types and reductions to MPI.
class MpiReduceOps {
 public:
  MpiReduceOps() = default;
  ~MpiReduceOps();
  MpiReduceOps(const MpiReduceOps&) = delete;
  MpiReduceOps& operator=(const MpiReduceOps&) = delete;

  // Requires: MPI is running
  // Errors: kInternal  MPI failed, in its words
  Status Make();

  // Requires: Make has succeeded
  MPI_Datatype TypeOf(sync::DataType type) const;
  MPI_Op OpOf(sync::DataType type, sync::ReduceOp op) const;

 private:
  static constexpr size_t kTypeCount = 6;
  static constexpr size_t kOpCount = 4;
  std::array<std::array<MPI_Op, kOpCount>, kTypeCount> own_ops_{};  // or MPI_OP_NULL
  MPI_Datatype half_ = MPI_DATATYPE_NULL;                           // of two bytes
  bool is_made_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MPI_MPI_REDUCE_OPS_H_
