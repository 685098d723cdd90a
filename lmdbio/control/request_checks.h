// lmdbio/control/request_checks.h - whether a request can be, and whether those of ranks agree.
#ifndef LMDBIO_CONTROL_REQUEST_CHECKS_H_
#define LMDBIO_CONTROL_REQUEST_CHECKS_H_

#include <cstdint>
#include <span>
#include <string>

#include "lmdbio/control/codec.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

// "" or what cannot be in this request alone: "root 9 is none of 4 ranks", ...
std::string WhatIsWrong(const Request& request, int rank_count);

// "" or what differs: "rank 0 has shape [64, 3], rank 2 [64, 4]".
// asks  of one name, together of every rank at most once
std::string WhatDiffers(std::span<const Ask> asks);

// "rank 3", "ranks 0, 1", "ranks 0, 1, ... (12)"
std::string NamesOf(std::span<const int32_t> ranks);

// Rows that a rank brings: the first dimension, 1 of a single element.
int64_t FirstDimension(const Request& request);

// Whether the others can do this while a rank has joined that has not asked for it: it brings zeros
// or no rows, which must mean something.
// Returns: "" or the reason why not
std::string WhyNotWithout(const Request& request, int joined_rank);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_REQUEST_CHECKS_H_
