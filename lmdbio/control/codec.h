// lmdbio/control/codec.h - the messages of a round as bytes.
//
// Bytes of a peer are not trusted. A decoder reads nothing behind their end, allocates in
// proportion to their number, and refuses bytes that no encoder writes. Encoding a decoded message
// gives the same bytes.
//
// Source: docs/coordinators.md "Messages".
#ifndef LMDBIO_CONTROL_CODEC_H_
#define LMDBIO_CONTROL_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

// A request, and the ranks that have it.
struct Ask {
  Request request;
  std::vector<int32_t> ranks;  // the ranks with exactly this request: one or more, ascending
  uint64_t group_digest = 0;   // of the names of all tensors of the group; 0: no group
  friend bool operator==(const Ask&, const Ask&) = default;
};

// The message to rank 0, or to the root of a host.
struct AskList {
  bool is_ending = false;            // one of the sending ranks ends
  std::vector<Ask> asks;             // in the order in which they became known
  std::vector<std::string> stalled;  // names of stalled tensors
  friend bool operator==(const AskList&, const AskList&) = default;
};

// The answer of rank 0.
struct ResponseList {
  bool is_ended = false;  // some rank ends
  std::vector<Response> responses;
  friend bool operator==(const ResponseList&, const ResponseList&) = default;
};

std::vector<std::byte> Encode(const AskList& list);
std::vector<std::byte> Encode(const ResponseList& list);

// Errors: kInternal  malformed bytes; names the offset. The caller adds the sender
Result<AskList> DecodeAsks(Bytes bytes, int rank_count);
Result<ResponseList> DecodeResponses(Bytes bytes, int rank_count);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_CODEC_H_
