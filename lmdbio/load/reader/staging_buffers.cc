#include "lmdbio/load/reader/staging_buffers.h"

#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::load {

// A read waits only while all buffers are in use, so there is always another read in flight whose
// end frees a buffer.
Status StagingBuffers::Start(ReadEngine& engine) {
  if (waiting_.empty()) return {};
  if (!memory_) {
    LMDBIO_TRY(memory_, ranks::AllocateAnonymous(kBufferCount * buffer_bytes_));
    for (uint64_t i = 0; i < kBufferCount; ++i) free_.push_back(i);
  }
  reads_.clear();
  while (!waiting_.empty() && !free_.empty()) {
    const auto [block, tag] = waiting_.front();
    waiting_.pop_front();
    const uint64_t index = free_.back();
    free_.pop_back();
    buffer_of_[tag] = index;
    reads_.push_back({block.offset, Buffer(index).first(block.length_bytes), tag});
  }
  return engine.Start(reads_);
}

void StagingBuffers::Release(uint64_t tag) {
  const auto found = buffer_of_.find(tag);
  free_.push_back(found->second);
  buffer_of_.erase(found);
}

}  // namespace lmdbio::load
