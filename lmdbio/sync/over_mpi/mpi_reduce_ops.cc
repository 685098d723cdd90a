#include "lmdbio/sync/over_mpi/mpi_reduce_ops.h"

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {
namespace {

// The user function of MPI_Op_create: inout[i] = in[i] op inout[i]. The operations commute. MPI
// passes no user data to an operation, so each pair of type and operation has a function of its
// own.
template <DataType type, ReduceOp op>
void ReduceForMpi(void* in, void* inout, int* count, MPI_Datatype*) {
  Reduce(type, op, static_cast<std::byte*>(inout), static_cast<const std::byte*>(in),
         static_cast<size_t>(*count));
}

struct OwnOp {
  DataType type;
  ReduceOp op;
  MPI_User_function* function;
};
template <DataType type, ReduceOp op>
constexpr OwnOp Own() {
  return {type, op, &ReduceForMpi<type, op>};
}

// The other pairs use operations of MPI; MpiReduceOps gives the reason for each kind.
constexpr std::array kOwnOps{
    Own<DataType::kFloat16, ReduceOp::kSum>(),  Own<DataType::kFloat16, ReduceOp::kProduct>(),
    Own<DataType::kFloat16, ReduceOp::kMin>(),  Own<DataType::kFloat16, ReduceOp::kMax>(),
    Own<DataType::kBFloat16, ReduceOp::kSum>(), Own<DataType::kBFloat16, ReduceOp::kProduct>(),
    Own<DataType::kBFloat16, ReduceOp::kMin>(), Own<DataType::kBFloat16, ReduceOp::kMax>(),
    Own<DataType::kFloat32, ReduceOp::kMin>(),  Own<DataType::kFloat32, ReduceOp::kMax>(),
    Own<DataType::kFloat64, ReduceOp::kMin>(),  Own<DataType::kFloat64, ReduceOp::kMax>(),
};

size_t IndexOf(DataType type) { return static_cast<size_t>(type) - 1; }
size_t IndexOf(ReduceOp op) { return static_cast<size_t>(op) - 1; }

}  // namespace

// float16 and bfloat16 share one MPI type of two bytes. The operation tells them apart.
Status MpiReduceOps::Make() {
  for (auto& of_type : own_ops_) of_type.fill(MPI_OP_NULL);
  // Set first: after a failure below, the destructor frees what was made before.
  is_made_ = true;
  LMDBIO_TRY_VOID(
      ranks::MpiStatus(MPI_Type_contiguous(2, MPI_BYTE, &half_), "MPI_Type_contiguous"));
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Type_commit(&half_), "MPI_Type_commit"));
  for (const OwnOp& own : kOwnOps) {
    LMDBIO_TRY_VOID(ranks::MpiStatus(
        MPI_Op_create(own.function, /*commute=*/1, &own_ops_[IndexOf(own.type)][IndexOf(own.op)]),
        "MPI_Op_create"));
  }
  return {};
}

MpiReduceOps::~MpiReduceOps() {
  // After MPI_Finalize nothing can be freed any more.
  if (!is_made_ || !ranks::IsMpiRunning()) return;
  for (auto& of_type : own_ops_) {
    for (MPI_Op& op : of_type) {
      if (op != MPI_OP_NULL) MPI_Op_free(&op);
    }
  }
  if (half_ != MPI_DATATYPE_NULL) MPI_Type_free(&half_);
}

std::optional<MPI_Datatype> OwnMpiType(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return MPI_FLOAT;
    case DataType::kFloat64:
      return MPI_DOUBLE;
    case DataType::kInt32:
      return MPI_INT32_T;
    case DataType::kInt64:
      return MPI_INT64_T;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      break;
  }
  return std::nullopt;
}

MPI_Datatype MpiReduceOps::TypeOf(DataType type) const { return OwnMpiType(type).value_or(half_); }

MPI_Op MpiReduceOps::OpOf(DataType type, ReduceOp op) const {
  const MPI_Op own = own_ops_[IndexOf(type)][IndexOf(op)];
  if (own != MPI_OP_NULL) return own;
  switch (op) {
    case ReduceOp::kSum:
      return MPI_SUM;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kProduct:
      break;
  }
  return MPI_PROD;
}

}  // namespace lmdbio::sync
