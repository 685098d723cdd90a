#include "lmdbio/sync/request/request.h"

#include <bit>
#include <span>

#include <xxhash.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// The input of a digest: every field with its length, so that different requests differ as bytes.
// Each value is hashed with the digest so far as its seed, so the order of the values counts, too.
class Digest {
 public:
  void Add(uint64_t number) { value_ = XXH3_64bits_withSeed(&number, sizeof number, value_); }
  void Add(double number) { Add(std::bit_cast<uint64_t>(number)); }
  template <typename T>
  void AddAll(std::span<const T> values) {
    Add(uint64_t{values.size()});
    value_ = XXH3_64bits_withSeed(values.data(), values.size_bytes(), value_);
  }
  void Add(const std::string& text) { AddAll(std::span(text.data(), text.size())); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// Every field that ranks agree on. A call is tagged with this digest, so ranks that would reduce
// different tensors detect it before data moves.
void AddRequest(Digest& digest, const Request& request) {
  digest.Add(request.name);
  digest.Add(static_cast<uint64_t>(request.operation));
  digest.Add(static_cast<uint64_t>(request.type));
  digest.Add(static_cast<uint64_t>(request.reduce_op));
  digest.Add(static_cast<uint64_t>(request.memory));
  digest.Add(request.prescale);
  digest.Add(request.postscale);
  digest.AddAll(std::span(request.shape));
  digest.Add(static_cast<uint64_t>(request.root));
  digest.AddAll(std::span(request.splits));
  digest.Add(request.group);
  digest.Add(uint64_t{request.group_size});
  digest.AddAll(std::span(request.extra));
}

// No overflow for a checked request: WhatIsWrong refuses shapes of more than 2^48 elements.
uint64_t ProductOf(std::span<const int64_t> dimensions) {
  uint64_t product = 1;
  for (const int64_t dimension : dimensions) product *= static_cast<uint64_t>(dimension);
  return product;
}

}  // namespace

std::string_view NameOf(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "allreduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "allgather";
    case Operation::kAllToAll:
      return "alltoall";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kJoin:
      return "join";
    case Operation::kAdoptPlan:
      return "adopt-plan";
  }
  LMDBIO_CHECK(false);
}

bool IsOperation(uint8_t number) {
  return number >= static_cast<uint8_t>(Operation::kAllReduce) &&
         number <= static_cast<uint8_t>(Operation::kAdoptPlan);
}

std::string_view NameOf(MemoryKind memory) {
  switch (memory) {
    case MemoryKind::kHost:
      return "host";
    case MemoryKind::kDevice:
      return "GPU";
  }
  LMDBIO_CHECK(false);
}

bool IsMemoryKind(uint8_t number) {
  return number == static_cast<uint8_t>(MemoryKind::kHost) ||
         number == static_cast<uint8_t>(MemoryKind::kDevice);
}

bool IsInLearnedGroup(const Request& request) { return request.group.starts_with(kLearnedGroup); }

void LeaveGroup(Request& request) {
  request.group.clear();
  request.group_size = 0;
}

uint64_t Request::element_count() const { return ProductOf(shape); }

uint64_t Request::byte_count() const { return element_count() * ElementBytes(type); }

uint64_t Request::row_element_count() const {
  return shape.empty() ? 1 : ProductOf(std::span(shape).subspan(1));
}

uint64_t Response::digest() const {
  Digest digest;
  digest.Add(uint64_t{tensors.size()});
  for (const Request& tensor : tensors) AddRequest(digest, tensor);
  digest.Add(error);
  digest.AddAll(std::span(rows));
  digest.Add(static_cast<uint64_t>(last_joined));
  return digest.value();
}

}  // namespace lmdbio::sync
