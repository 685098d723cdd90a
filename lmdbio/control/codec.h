// lmdbio/control/codec.h - what ranks tell each other in a round, as bytes.
//
// Bytes of a peer are not trusted: a decoder reads nothing behind their end, allocates in
// proportion to their number, and refuses what no encoder writes. What decodes, encodes to the same
// bytes.
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

// A request, and who has it.
struct Ask {
  Request request;
  std::vector<int32_t> ranks;  // those that want exactly this: one or more, ascending
  uint64_t group_digest = 0;   // of the names of all tensors of the group; 0: no group
  friend bool operator==(const Ask&, const Ask&) = default;
};

// What goes to rank 0, or to the root of a host.
struct AskList {
  bool is_ending = false;            // one of these ranks does not go on
  std::vector<Ask> asks;             // in the order in which they became known
  std::vector<std::string> stalled;  // names that have been waited for too long
  friend bool operator==(const AskList&, const AskList&) = default;
};

// What comes back.
struct ResponseList {
  bool is_ended = false;  // some rank does not go on
  std::vector<Response> responses;
  friend bool operator==(const ResponseList&, const ResponseList&) = default;
};

std::vector<std::byte> Encode(const AskList& list);
std::vector<std::byte> Encode(const ResponseList& list);

// Errors: kInternal  the bytes are no such list; names the place. The caller adds who sent them
Result<AskList> DecodeAsks(Bytes bytes, int rank_count);
Result<ResponseList> DecodeResponses(Bytes bytes, int rank_count);

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_CODEC_H_
