#include "lmdbio/base/byte_source.h"

#include <cstring>

namespace lmdbio {

// The default: one read after the other. FileSource overlaps them.
Status ByteSource::ReadMany(std::span<const ReadRequest> requests) const {
  for (const ReadRequest& request : requests) {
    LMDBIO_TRY(const Bytes bytes,
               Read({request.offset, request.destination.size()}, request.destination));
    // A source with memory of its own returns a pointer into it.
    if (!bytes.empty() && bytes.data() != request.destination.data()) {
      std::memcpy(request.destination.data(), bytes.data(), bytes.size());
    }
  }
  return {};
}

// Hints; a source that cannot use them ignores them.
void ByteSource::Prefetch(Extent /*extent*/) const {}

void ByteSource::Advise(AccessPattern /*pattern*/) const {}

}  // namespace lmdbio
