// lmdbio/load/slots/file_cache.h - a file in memory that host's ranks share, as far as it was read.
//
// Scattered records have most of the file between them. Where memory has room for all of it, what
// is read once stays: the next slots find their pages there, and later epochs read nothing. Unlike
// pages of a map, memory that was filled by explicit reads cannot fault.
//
// Each reader of a host reads the chunks that are its own, whatever slot needs them first; so no
// chunk is read twice and none of them asks another.
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
  // What the memory must have. file_bytes  of the snapshot
  static uint64_t BytesNeeded(uint64_t file_bytes);

  // memory        [BytesNeeded(file_bytes)] page-aligned; borrowed
  // chunk_bytes   read at once; a multiple of 4096
  FileCache(MutableBytes memory, uint64_t file_bytes, uint64_t chunk_bytes, size_t reader_index,
            size_t reader_count);

  // The file's bytes, at their offsets; what was not read is zero.
  MutableBytes memory() const { return memory_; }

  // Adds the chunks of this reader that hold some of `blocks` and that it has not been asked for
  // before. They count as asked for from now on.
  void TakeMissing(std::span<const load::PlannedBlock> blocks, std::vector<Extent>& missing);

  // A chunk could not be read: the next slot that needs it shall try again.
  void Forget(const Extent& chunk) { asked_[chunk.offset / chunk_bytes_] = false; }

 private:
  MutableBytes memory_;
  uint64_t file_bytes_;
  uint64_t chunk_bytes_;
  size_t reader_index_;
  size_t reader_count_;
  std::vector<bool> asked_;  // [chunks]
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_FILE_CACHE_H_
