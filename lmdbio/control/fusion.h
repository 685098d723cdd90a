// lmdbio/control/fusion.h - which tensors travel together.
//
// Source: dissertation 6.2.2 and 6.3.4 (fusion buffers of at most 64 MB); Romero et al. 3.2
// (groups); docs/sync.md "Fusion".
#ifndef LMDBIO_CONTROL_FUSION_H_
#define LMDBIO_CONTROL_FUSION_H_

#include <cstdint>
#include <vector>

#include "lmdbio/control/request.h"

namespace lmdbio::control {

struct FusionOptions {
  uint64_t threshold_bytes = uint64_t{64} << 20;  // of one fusion buffer; 0: nothing is fused
};

// Whether two tensors may lie in one fusion buffer: both kAllReduce, of one type, reduction, memory
// and scale.
bool MayFuse(const Request& a, const Request& b);

// Where each tensor of a fusion buffer begins, and how long the buffer is. Each begins at a
// multiple of 64 bytes, so that it can be reduced and copied in whole cache lines.
struct FusedPlaces {
  std::vector<uint64_t> offsets;  // [tensors] bytes
  uint64_t size_bytes = 0;
};
FusedPlaces PlacesOf(const std::vector<Request>& tensors);

// Puts responses that may be fused together: greedy, in the order of the list, looking past those
// that do not fit, so that the order of the first tensors stays. Tensors of one group are never
// parted, however large. The same on every rank, since the list is.
std::vector<Response> Fuse(std::vector<Response> responses, const FusionOptions& options);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_FUSION_H_
