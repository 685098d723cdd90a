// lmdbio/sync/request/request_checks.h - checks a single request, and whether those of all ranks
// agree.
#ifndef LMDBIO_SYNC_REQUEST_REQUEST_CHECKS_H_
#define LMDBIO_SYNC_REQUEST_REQUEST_CHECKS_H_

#include <cstdint>
#include <span>
#include <string>

#include "lmdbio/sync/request/message_codec.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// "" or the error in this request alone: "root 9 is out of range; expected 0 to 3", ...
std::string WhatIsWrong(const Request& request, int rank_count);

// "" or the first difference: "rank 0 has shape [64, 3], rank 2 [64, 4]".
// asks  of one name; each rank is in one of them at most
std::string WhatDiffers(std::span<const RequestEntry> asks);

// "rank 3", "ranks 0, 1", "ranks 0, 1, ... (12)"
std::string NamesOf(std::span<const int32_t> ranks);

// Rows of a request: the first dimension, or 1 for a single element.
int64_t FirstDimension(const Request& request);

// Whether the other ranks can execute a request that a joined rank has not made. The joined rank
// contributes zeros or no rows, which is not possible for every operation.
// Returns: "" or the reason against it
std::string WhyNotWithout(const Request& request, int joined_rank);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REQUEST_REQUEST_CHECKS_H_
