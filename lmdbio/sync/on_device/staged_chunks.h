// lmdbio/sync/on_device/staged_chunks.h - the chunks in which tensors pass through pinned memory.
//
//   tensors in a space of bytes   | tensor 0 | gap | tensor 1           | gap | tensor 2 |
//   chunks of equal size          | chunk 0         | chunk 1         | chunk 2          |
//
// Pure: no device, no memory.
#ifndef LMDBIO_SYNC_ON_DEVICE_STAGED_CHUNKS_H_
#define LMDBIO_SYNC_ON_DEVICE_STAGED_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::sync {

// A part of a tensor that lies in one chunk.
struct StagedPart {
  size_t tensor = 0;
  uint64_t tensor_offset = 0;
  uint64_t chunk_offset = 0;
  uint64_t size_bytes = 0;  // > 0
  friend bool operator==(const StagedPart&, const StagedPart&) = default;
};

class StagedChunks {
 public:
  // offsets      [tensors] in the space of bytes; ascending, tensors are apart
  // sizes        [tensors] bytes
  // chunk_bytes  [> 0]
  StagedChunks(std::vector<uint64_t> offsets, std::vector<uint64_t> sizes, uint64_t chunk_bytes);

  // At least 1: tensors without bytes make a call, too.
  uint64_t count() const;
  // Without the gap behind the last tensor.
  uint64_t BytesOf(uint64_t chunk) const;
  // In the order of the tensors.
  // Cost: O(log tensors + parts)
  std::vector<StagedPart> PartsOf(uint64_t chunk) const;

 private:
  std::vector<uint64_t> offsets_;
  std::vector<uint64_t> sizes_;
  uint64_t chunk_bytes_;
  uint64_t total_bytes_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_STAGED_CHUNKS_H_
