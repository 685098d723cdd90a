#include "lmdbio/sync/reduce/data_type.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// The rows are in the order of the numbers, which begin at 1. So a row is found by its index.
struct TypeRow {
  DataType type;
  std::string_view name;
  size_t element_bytes;
  bool is_floating;
};
constexpr std::array kTypes{
    TypeRow{DataType::kFloat32, "float32", 4, true},
    TypeRow{DataType::kFloat64, "float64", 8, true},
    TypeRow{DataType::kFloat16, "float16", 2, true},
    TypeRow{DataType::kBFloat16, "bfloat16", 2, true},
    TypeRow{DataType::kInt32, "int32", 4, false},
    TypeRow{DataType::kInt64, "int64", 8, false},
};

struct OpRow {
  ReduceOp op;
  std::string_view name;
};
constexpr std::array kOps{
    OpRow{ReduceOp::kSum, "sum"},
    OpRow{ReduceOp::kMin, "min"},
    OpRow{ReduceOp::kMax, "max"},
    OpRow{ReduceOp::kProduct, "product"},
};

const TypeRow& RowOf(DataType type) {
  LMDBIO_CHECK(IsDataType(static_cast<uint8_t>(type)));
  return kTypes[static_cast<size_t>(type) - 1];
}

template <typename Rows>
std::string Choices(const Rows& rows) {
  std::string choices;
  for (const auto& row : rows)
    choices += fmt::format("{}{}", choices.empty() ? "" : ", ", row.name);
  return choices;
}

}  // namespace

size_t ElementBytes(DataType type) { return RowOf(type).element_bytes; }
bool IsFloating(DataType type) { return RowOf(type).is_floating; }
std::string_view NameOf(DataType type) { return RowOf(type).name; }

std::string_view NameOf(ReduceOp op) {
  LMDBIO_CHECK(IsReduceOp(static_cast<uint8_t>(op)));
  return kOps[static_cast<size_t>(op) - 1].name;
}

Result<DataType> ParseDataType(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("data type '{}' is unknown; expected one of {}", name, Choices(kTypes)));
}

Result<ReduceOp> ParseReduceOp(std::string_view name) {
  for (const OpRow& row : kOps) {
    if (row.name == name) return row.op;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("reduction '{}' is unknown; expected one of {}", name, Choices(kOps)));
}

// Numbers arrive from peers and callers. These two check them before any look-up above, which ends
// the process on an unknown number.
bool IsDataType(uint8_t number) { return number >= 1 && number <= kTypes.size(); }
bool IsReduceOp(uint8_t number) { return number >= 1 && number <= kOps.size(); }

}  // namespace lmdbio::sync
