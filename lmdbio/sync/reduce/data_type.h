// lmdbio/sync/reduce/data_type.h - the types of values, and the reductions.
#ifndef LMDBIO_SYNC_REDUCE_DATA_TYPE_H_
#define LMDBIO_SYNC_REDUCE_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// The numbers travel between ranks and are append-only.
enum class DataType : uint8_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,   // IEEE binary16; reduced in float32
  kBFloat16 = 4,  // the upper half of a float32; reduced in float32
  kInt32 = 5,     // wraps around, as in MPI
  kInt64 = 6,
};

enum class ReduceOp : uint8_t { kSum = 1, kMin = 2, kMax = 3, kProduct = 4 };

// `op` combines several values, then the result is multiplied by `scale`. An average is a sum with
// the scale 1 / count. A ReduceOp converts to a Reduction with the scale 1.
struct Reduction {
  constexpr Reduction(ReduceOp by, double scaled_by = 1) : op(by), scale(scaled_by) {}

  ReduceOp op;
  double scale;  // finite for integers
};

size_t ElementBytes(DataType type);
bool IsFloating(DataType type);

// "float32", ...; "sum", "min", "max", "product"
std::string_view NameOf(DataType type);
std::string_view NameOf(ReduceOp op);

// Errors: kInvalidArgument  unknown name; the message lists the valid ones
Result<DataType> ParseDataType(std::string_view name);
Result<ReduceOp> ParseReduceOp(std::string_view name);

// Whether a number from a peer or a caller is valid.
bool IsDataType(uint8_t number);
bool IsReduceOp(uint8_t number);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REDUCE_DATA_TYPE_H_
