// lmdbio/sync/request/message_codec.h - the messages of a round as bytes.
//
// Bytes of a peer are not trusted. A decoder reads nothing behind their end, allocates in
// proportion to their number, and refuses bytes that no encoder writes. Encoding a decoded message
// gives the same bytes.
//
// Source: docs/coordinators.md "Messages".
#ifndef LMDBIO_SYNC_REQUEST_MESSAGE_CODEC_H_
#define LMDBIO_SYNC_REQUEST_MESSAGE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// A request, and the ranks that have it.
struct RequestEntry {
  Request request;
  std::vector<int32_t> ranks;  // the ranks with exactly this request: one or more, ascending
  uint64_t group_digest = 0;   // of the names of all tensors of the group; 0: no group
  friend bool operator==(const RequestEntry&, const RequestEntry&) = default;
};

// The message to rank 0, or to the root of a host.
struct RequestList {
  bool is_ending = false;            // one of the sending ranks ends
  std::vector<RequestEntry> asks;    // in the order in which they became known
  std::vector<std::string> stalled;  // names of stalled tensors
  friend bool operator==(const RequestList&, const RequestList&) = default;
};

// The answer of rank 0.
struct ResponseList {
  bool is_ended = false;  // some rank ends
  std::vector<Response> responses;
  friend bool operator==(const ResponseList&, const ResponseList&) = default;
};

std::vector<std::byte> Encode(const RequestList& list);
std::vector<std::byte> Encode(const ResponseList& list);

// Errors: kInternal  malformed bytes; names the offset. The caller adds the sender
Result<RequestList> DecodeAsks(Bytes bytes, int rank_count);
Result<ResponseList> DecodeResponses(Bytes bytes, int rank_count);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_REQUEST_MESSAGE_CODEC_H_
