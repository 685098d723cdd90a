// lmdbio/sync/request/request.h - the request of one rank, and the response that all ranks agreed
// on.
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2; docs/glossary.md "Gradient synchronisation".
#ifndef LMDBIO_SYNC_REQUEST_REQUEST_H_
#define LMDBIO_SYNC_REQUEST_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// The numbers travel between ranks and are append-only.
enum class Operation : uint8_t {
  kAllReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
  kAllToAll = 4,
  kReduceScatter = 5,
  kBarrier = 6,
  kJoin = 7,       // this rank has no more data: from now on it contributes zeros
  kAdoptPlan = 8,  // this rank is ready to follow a plan
};
std::string_view NameOf(Operation operation);
bool IsOperation(uint8_t number);

// The memory that holds the values.
enum class MemoryKind : uint8_t { kHost = 1, kDevice = 2 };
std::string_view NameOf(MemoryKind memory);
bool IsMemoryKind(uint8_t number);

// The fields on which ranks must agree for one tensor. A rank has at most one unanswered request of
// a name.
struct Request {
  std::string name;  // the same on every rank; not empty
  Operation operation = Operation::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  MemoryKind memory = MemoryKind::kHost;
  double prescale = 1;   // of each rank's values before they are reduced
  double postscale = 1;  // of the result: 1/ranks for an average
  // [any number of dimensions] elements. The same on every rank, but for the first dimension of
  // kAllGather and kAllToAll. Empty: one element.
  std::vector<int64_t> shape;
  int32_t root = 0;             // kBroadcast
  std::vector<int64_t> splits;  // [ranks] kAllToAll: rows of the first dimension for each rank
  // "" or: these tensors are ready together and fused together. kLearnedGroup and a number: the
  // group was made from an iteration (sync/graph/grouping.h)
  std::string group;
  uint32_t group_size = 0;       // tensors of the group
  std::vector<std::byte> extra;  // kAdoptPlan: the proposal (sync/graph/plan_learner.h)

  uint64_t element_count() const;
  uint64_t byte_count() const;         // of all elements
  uint64_t row_element_count() const;  // of all dimensions but the first
  friend bool operator==(const Request&, const Request&) = default;
};

// The group names that programs cannot give.
constexpr std::string_view kLearnedGroup = "lmdbio.group.";
bool IsInLearnedGroup(const Request& request);
// The tensor is ready, and fused, without the others of its group.
void LeaveGroup(Request& request);

// The next operation of all ranks. All ranks execute responses in the same order.
struct Response {
  // One tensor, or several of one fused kAllReduce.
  std::vector<Request> tensors;  // the request of the first rank; `extra` merged for kAdoptPlan
  // "", or the reason for which these tensors fail on every rank. It names the tensor, the
  // difference and the ranks.
  std::string error;
  // kAllGather: [ranks] rows of the first dimension of each rank; kAllToAll:
  // [ranks * ranks] rows from rank (i / ranks) to rank (i % ranks); else empty.
  std::vector<int64_t> rows;
  int32_t last_joined = -1;  // kJoin: the rank that joined last

  uint64_t digest() const;  // of all of the above
  friend bool operator==(const Response&, const Response&) = default;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REQUEST_REQUEST_H_
