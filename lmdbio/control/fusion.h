// lmdbio/control/fusion.h - which tensors travel together.
//
// Source: dissertation 6.2.2 and 6.3.4 (fusion buffers of at most 64 MB); Romero et al. 3.2
// (groups); docs/sync.md "Fusion".
#ifndef LMDBIO_CONTROL_FUSION_H_
#define LMDBIO_CONTROL_FUSION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/control/request.h"

namespace lmdbio::control {

struct FusionOptions {
  uint64_t threshold_bytes = uint64_t{64} << 20;  // of one fusion buffer; 0: nothing is fused
};

// What tensors of one fusion buffer have in common. Scales are compared bit by bit.
struct FusionKind {
  reduce::DataType type = reduce::DataType::kFloat32;
  reduce::ReduceOp reduce_op = reduce::ReduceOp::kSum;
  MemoryKind memory = MemoryKind::kHost;
  uint64_t prescale_bits = 0;
  uint64_t postscale_bits = 0;
  friend auto operator<=>(const FusionKind&, const FusionKind&) = default;
};
FusionKind FusionKindOf(const Request& tensor);

// Whether two tensors may lie in one fusion buffer: both kAllReduce, of one kind.
bool MayFuse(const Request& a, const Request& b);

// What a tensor takes of a fusion buffer: its bytes, rounded up to a multiple of 64.
uint64_t FusedBytes(const Request& tensor);

// Where each tensor of a fusion buffer begins, and how long the buffer is. Each begins at a
// multiple of 64 bytes, so that it can be reduced and copied in whole cache lines.
struct FusedPlaces {
  std::vector<uint64_t> offsets;  // [tensors] bytes
  uint64_t size_bytes = 0;        // the sum of FusedBytes: a multiple of 64
};
FusedPlaces PlacesOf(std::span<const Request> tensors);

// Puts responses that may be fused together. Greedy, in the order of the list: each tensor joins
// the first buffer of its kind in which it fits, or begins a new one in its own place. So the first
// tensors of buffers keep their order, and so do the tensors of a buffer. Tensors of one group and
// kind are never parted, however large, and stand where the first of them stood. Responses with an
// error and other operations stay as they are, in their places between those first tensors.
// The same on every rank, since the list is.
// responses  of one tensor each, or fused already: then they stay together
// Cost: O(n log n) for n tensors
std::vector<Response> Fuse(std::vector<Response> responses, const FusionOptions& options);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_FUSION_H_
