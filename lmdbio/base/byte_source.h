// lmdbio/base/byte_source.h - the bytes of a data file, for parsers that know no files.
//
// The parsers (file/format, file/layout) ask for extents and check the bytes that they get. The
// implementations (file/source, or a buffer in a test) know offsets and nothing of pages. See
// lmdbio/docs/format.md.
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

// The order in which the next reads visit the bytes of a source.
enum class AccessPattern { kSequential, kRandom };

// The bytes that a source has handed out so far.
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

  // The current size. A file may grow or shrink while it is open.
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

  // Performs all of `requests` in any order, as many at once as the source can. After a failure the
  // contents of the destinations are unspecified. The error is that of one failed request.
  // Errors: as Read
  virtual Status ReadMany(std::span<const ReadRequest> requests) const;

  // A hint; costs at most a system call.
  virtual void Advise(AccessPattern pattern) const;

  // A hint that `extent` is read soon. It never makes a system call; a source that would need one
  // ignores the hint.
  virtual void Prefetch(Extent extent) const;

  virtual ReadCounters counters() const = 0;
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_BYTE_SOURCE_H_
