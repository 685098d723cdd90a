// lmdbio/sync/request/fusion.h - decides the tensors that share a fusion buffer.
//
// Source: dissertation 6.2.2 and 6.3.4 (fusion buffers of at most 64 MB); Romero et al. 3.2
// (groups); docs/sync.md "Fusion".
#ifndef LMDBIO_SYNC_REQUEST_FUSION_H_
#define LMDBIO_SYNC_REQUEST_FUSION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

struct FusionOptions {
  uint64_t threshold_bytes = uint64_t{64} << 20;  // of one fusion buffer; 0: nothing is fused
};

// The properties that are equal for all tensors of a fusion buffer. Scales are compared bitwise.
struct FusionKind {
  DataType type = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  MemoryKind memory = MemoryKind::kHost;
  uint64_t prescale_bits = 0;
  uint64_t postscale_bits = 0;
  friend auto operator<=>(const FusionKind&, const FusionKind&) = default;
};
FusionKind FusionKindOf(const Request& tensor);

// Whether two tensors may lie in one fusion buffer: both kAllReduce, of one kind.
bool MayFuse(const Request& a, const Request& b);

// The size of a tensor in a fusion buffer: its bytes, rounded up to a multiple of 64.
uint64_t FusedBytes(const Request& tensor);

// The offsets of the tensors of a fusion buffer, and its size. Each tensor begins at a multiple of
// 64 bytes, so that it can be reduced and copied in whole cache lines.
struct FusedOffsets {
  std::vector<uint64_t> offsets;  // [tensors] bytes
  uint64_t size_bytes = 0;        // the sum of FusedBytes: a multiple of 64
};
FusedOffsets PlacesOf(std::span<const Request> tensors);

// Fuses responses: first fit, in the order of the list. Each tensor joins the first buffer of its
// kind in which it fits, or begins a new buffer at its own position. So the first tensors of
// buffers keep their order, and so do the tensors of a buffer. Tensors of one group and kind are
// never separated, even above the threshold; they take the position of the first of them. Responses
// with an error and other operations are unchanged, at their positions among those first tensors.
// The result is the same on every rank, because the list is.
// responses  of one tensor each, or already fused; fused ones stay together
// Cost: O(n log n) for n tensors
std::vector<Response> Fuse(std::vector<Response> responses, const FusionOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REQUEST_FUSION_H_
