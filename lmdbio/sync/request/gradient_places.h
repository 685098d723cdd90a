// lmdbio/sync/request/gradient_places.h - memory for gradients, handed out in parts, and the
// buckets of tensors that lie there as in a fusion buffer.
//
//   | part 0         | gap | part 1 | gap | part 2 |      each begins at a multiple of 64 bytes
//
// Pure: it knows addresses of the host or of a GPU, and touches no memory.
//
// Source: docs/sync.md "Placed gradients".
#ifndef LMDBIO_SYNC_REQUEST_GRADIENT_PLACES_H_
#define LMDBIO_SYNC_REQUEST_GRADIENT_PLACES_H_

#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_set>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Threads: any
class GradientPlaces {
 public:
  // begin   [a multiple of 64] address
  // option  has the size of the memory, for errors; outlives this
  GradientPlaces(uint64_t begin, uint64_t size_bytes, std::string_view option)
      : begin_(begin), size_bytes_(size_bytes), option_(option) {}

  // The address of the next part.
  // Errors: kResourceExhausted  less is left; names the option
  Result<uint64_t> Take(uint64_t size_bytes);

  // Whether the tensors of a bucket lie here exactly as in a fusion buffer. Then they can be
  // reduced where they are. The call also reduces the gaps between them. So a gap must be unused:
  // it must begin at the end of a part. Otherwise it may contain other values of the program.
  // addresses  [requests, > 0] of the values
  // offsets    [requests] of the tensors in a fusion buffer
  bool Hold(std::span<const Request> requests, std::span<const uint64_t> addresses,
            std::span<const uint64_t> offsets) const;

 private:
  const uint64_t begin_;
  const uint64_t size_bytes_;
  const std::string_view option_;
  mutable std::mutex mutex_;  // of the members below
  uint64_t taken_bytes_ = 0;
  std::unordered_set<uint64_t> ends_;  // of parts
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REQUEST_GRADIENT_PLACES_H_
