// lmdbio/load/slots/file_cache.h - memory of a host that keeps every chunk of the file that was
// read.
//
// Scattered records have most of the file between them. If the memory of the host has room for the
// whole file, chunks stay there: later slots find their pages, and later epochs read nothing. Pages
// that explicit reads have filled cannot fault, unlike pages of a map.
//
// Each chunk belongs to one reader of the host. The reader reads it for the first slot that needs
// it. So no chunk is read twice, and readers exchange no messages.
//
// Source: docs/order.md "Reads".
#ifndef LMDBIO_LOAD_SLOTS_FILE_CACHE_H_
#define LMDBIO_LOAD_SLOTS_FILE_CACHE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {

// One reader's view. Threads: one at a time; memory() from any.
class FileCache {
 public:
  // The bytes of memory that a file cache needs.
  // file_bytes  of the snapshot
  static uint64_t BytesNeeded(uint64_t file_bytes);

  // memory        [BytesNeeded(file_bytes)] page-aligned; borrowed
  // chunk_bytes   read at once; a multiple of 4096
  FileCache(MutableBytes memory, uint64_t file_bytes, uint64_t chunk_bytes, size_t reader_index,
            size_t reader_count);

  // The bytes of the file at their offsets; zero if they were not read.
  MutableBytes memory() const { return memory_; }

  // Adds this reader's chunks that overlap `blocks` and were not requested before. They count as
  // requested from now on.
  void TakeMissing(std::span<const PlannedBlock> blocks, std::vector<Extent>& missing);

  // A chunk could not be read. The next slot that needs it requests it again.
  void Forget(const Extent& chunk) { requested_[chunk.offset / chunk_bytes_] = false; }

 private:
  MutableBytes memory_;
  uint64_t file_bytes_;
  uint64_t chunk_bytes_;
  size_t reader_index_;
  size_t reader_count_;
  std::vector<bool> requested_;  // [chunks]
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_FILE_CACHE_H_
