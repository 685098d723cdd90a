// lmdbio/file/blocks/mmap_engine.h - blocks copied from a map of the file.
//
// LMDB reads this way. With a queue depth of 1 the engine measures the cost of it: the copying
// thread takes a fault for every few pages that are not in the page cache, one after another. The
// kernel gets no hint and reads ahead by its own rules.
//
// With a deeper queue the engine announces the next blocks to the kernel (MADV_WILLNEED), so many
// MiB ahead, in runs of nearby blocks. It sleeps for the last page of a run before it touches the
// first. So it sleeps once for some MiB instead of once for each read-ahead window of the kernel.
//
// Source: dissertation 5.1.1.
#ifndef LMDBIO_FILE_BLOCKS_MMAP_ENGINE_H_
#define LMDBIO_FILE_BLOCKS_MMAP_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/blocks/block_file.h"
#include "lmdbio/file/blocks/done_list.h"
#include "lmdbio/file/map/file_map.h"

namespace lmdbio::file {

// Nothing happens outside a call: each WaitSome or Poll copies one block and takes as long as the
// storage does.
//
// The engine looks up the file size after each Start and after each MiB, and reports a truncated
// file as kCorruption. The map is guarded (docs/guarded_maps.md): if a block is copied when the
// file has been truncated between two checks, or when the storage fails, this copy is an error, and
// so are all later ones.
//
// Threads: one at a time.
class MmapEngine final : public BlockEngine {
 public:
  // Maps the current bytes of the file; bytes appended later cannot be read. The queue depth is the
  // number of MiB announced to the kernel in advance (1: none). Direct reads are impossible; a
  // request for them yields a note.
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo
  static Result<std::unique_ptr<BlockEngine>> Open(const std::string& data_path,
                                                   const EngineOptions& options);

  std::string Describe() const override { return "mmap, buffered"; }
  Status Start(std::span<const BlockRead> blocks) override;
  Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds /*limit*/) override {
    return Poll();
  }
  Result<std::span<BlockDone>> Poll() override;
  uint64_t outstanding() const override { return waiting_.size(); }
  EngineCounters counters() const override { return counters_; }
  std::vector<std::string> TakeNotes() override { return file_->TakeNotes(); }

 private:
  MmapEngine(std::unique_ptr<BlockFile> file, FileMap map, uint32_t queue_depth)
      : file_(std::move(file)), map_(std::move(map)), ahead_bytes_max_(AheadBytes(queue_depth)) {}
  static uint64_t AheadBytes(uint32_t queue_depth);
  Status Copy(const BlockRead& block);
  Status CheckSize(uint64_t offset, uint64_t length_bytes);
  void Announce();
  void AwaitRun();

  std::unique_ptr<BlockFile> file_;
  FileMap map_;
  uint64_t ahead_bytes_max_;
  std::deque<BlockRead> waiting_;
  size_t announced_count_ = 0;    // announced blocks at the front of waiting_
  uint64_t announced_bytes_ = 0;  // bytes of these blocks
  std::deque<Extent> runs_;       // announced, and not yet awaited
  uint64_t known_bytes_ = 0;      // the file size at the last check, at most the map's size
  uint64_t unchecked_bytes_ = 0;  // bytes copied since that check
  DoneList done_;
  EngineCounters counters_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_MMAP_ENGINE_H_
