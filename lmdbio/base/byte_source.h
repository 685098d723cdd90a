// lmdbio/base/byte_source.h - where bytes of a data file come from, for code that knows no files.
//
// The parsers above (format, layout) ask for extents and check what they get; the implementations
// (lmdbio/io, or a buffer in a test) know offsets and nothing of pages. See lmdbio/docs/format.md.
#ifndef LMDBIO_BASE_BYTE_SOURCE_H_
#define LMDBIO_BASE_BYTE_SOURCE_H_

#include <cstdint>
#include <span>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio {

// One read of a batch: `destination.size()` bytes from `offset`, owned by the caller.
struct ReadRequest {
  uint64_t offset = 0;  // bytes from the start of the source
  MutableBytes destination;
};

// How the next reads will walk through a source.
enum class AccessPattern { kSequential, kRandom };

// What a source has handed out so far.
struct ReadCounters {
  uint64_t request_count = 0;
  uint64_t bytes = 0;
};

// Threads: every method may be called by several threads at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Names the source in messages: the path of a file.
  virtual const std::string& name() const = 0;

  // The size right now. A file may grow or shrink while it is open.
  // Errors: kIo
  virtual Result<uint64_t> SizeBytes() const = 0;

  // Reads `extent` and returns exactly extent.length_bytes bytes.
  //
  // scratch  [>= extent.length_bytes] filled if the source has no memory of its own to point into
  // Returns: bytes in `scratch` or in the source
  // Errors:  kIo          the storage failed: offset and errno
  //          kCorruption  the source ends before the extent does
  // Lifetime: until `scratch` is written again or the source is destroyed
  virtual Result<Bytes> Read(Extent extent, MutableBytes scratch) const = 0;

  // Performs all of `requests`, in any order and as many at once as the source can. On failure the
  // contents of the destinations are unspecified and the error is that of one failed request.
  // Errors: as Read
  virtual Status ReadMany(std::span<const ReadRequest> requests) const;

  // A hint; costs at most a system call.
  virtual void Advise(AccessPattern pattern) const;

  // `extent` will be read soon. Costs no system call; ignored where that would take one.
  virtual void Prefetch(Extent extent) const;

  virtual ReadCounters counters() const = 0;
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_BYTE_SOURCE_H_
