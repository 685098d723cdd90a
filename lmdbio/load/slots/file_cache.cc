#include "lmdbio/load/slots/file_cache.h"

#include <algorithm>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::load {

uint64_t FileCache::BytesNeeded(uint64_t file_bytes) {
  return AlignUp(file_bytes, kStretchAlignBytes);
}

FileCache::FileCache(MutableBytes memory, uint64_t file_bytes, uint64_t chunk_bytes,
                     size_t reader_index, size_t reader_count)
    : memory_(memory),
      file_bytes_(file_bytes),
      chunk_bytes_(chunk_bytes),
      reader_index_(reader_index),
      reader_count_(reader_count),
      requested_((file_bytes + chunk_bytes - 1) / chunk_bytes, false) {
  LMDBIO_CHECK(memory.size() >= BytesNeeded(file_bytes));
}

// Chunk c belongs to reader c mod readers. All readers see the same slots, so each chunk is
// requested once and no message is needed.
void FileCache::TakeMissing(std::span<const PlannedBlock> blocks, std::vector<Extent>& missing) {
  for (const PlannedBlock& block : blocks) {
    const uint64_t end = block.file.offset + block.file.length_bytes;
    for (uint64_t chunk = block.file.offset / chunk_bytes_; chunk * chunk_bytes_ < end; ++chunk) {
      if (requested_[chunk] || chunk % reader_count_ != reader_index_) continue;
      requested_[chunk] = true;
      const uint64_t offset = chunk * chunk_bytes_;
      missing.push_back({offset, std::min(chunk_bytes_, file_bytes_ - offset)});
    }
  }
}

}  // namespace lmdbio::load
