// lmdbio/load/reader/staging_buffers.h - memory for blocks with gaps.
//
// A block with gaps joins wanted parts of the file and the bytes between them into one request. It
// cannot be read into the window, where the parts lie side by side. So it is read into a buffer,
// and the wanted parts are copied from there. The number of buffers is fixed: further blocks wait
// until a buffer is free.
//
// Source: docs/order.md "Reads".
#ifndef LMDBIO_LOAD_READER_STAGING_BUFFERS_H_
#define LMDBIO_LOAD_READER_STAGING_BUFFERS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/reader/read_engine.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::load {

// Threads: one at a time.
class StagingBuffers {
 public:
  static constexpr uint64_t kBufferCount = 16;

  // buffer_bytes  of the largest block
  explicit StagingBuffers(uint64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  // Adds a read that waits for a buffer.
  // tag  of the read; not in use
  void Add(const Extent& block, uint64_t tag) { waiting_.push_back({block, tag}); }

  // Starts the waiting reads, as far as there are buffers. Allocates these with the first read.
  // Errors: kResourceExhausted  no memory; as ReadEngine::Start
  Status Start(ReadEngine& engine);

  // The buffer of a read that was started. Lifetime: until Release
  MutableBytes At(uint64_t tag) const { return Buffer(buffer_of_.at(tag)); }

  // The buffer of this read is free again. Requires: the read is complete
  void Release(uint64_t tag);

 private:
  struct WaitingRead {
    Extent block;
    uint64_t tag = 0;
  };
  MutableBytes Buffer(uint64_t index) const {
    return memory_->bytes().subspan(index * buffer_bytes_, buffer_bytes_);
  }

  uint64_t buffer_bytes_;
  std::unique_ptr<ranks::SharedMemory> memory_;       // of this process alone
  std::vector<uint64_t> free_;                        // indices of buffers
  std::unordered_map<uint64_t, uint64_t> buffer_of_;  // by tag
  std::deque<WaitingRead> waiting_;
  std::vector<file::BlockRead> reads_;  // of Start
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_STAGING_BUFFERS_H_
