// lmdbio/file/blocks/block_file.h - a data file as engines read it: through the page cache and
// around it.
//
// A direct read must be aligned in the file and in memory. A block is therefore split: what is
// aligned in both goes around the page cache, the edges before and behind it go through.
#ifndef LMDBIO_FILE_BLOCKS_BLOCK_FILE_H_
#define LMDBIO_FILE_BLOCKS_BLOCK_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/blocks/block_engine.h"

namespace lmdbio::file {

// What a direct read must be a multiple of, in bytes: its offset and length, and its address.
struct DirectAlignment {
  uint32_t offset_bytes = 4096;
  uint32_t memory_bytes = 4096;
};

// What one call of the system reads: a block, or a piece of it.
struct BlockPart {
  uint64_t offset = 0;
  MutableBytes destination;
  bool is_direct = false;
};

// The kernel reads at most 2 GiB less one page at once, and registers at most 1 GiB as one buffer.
inline constexpr uint64_t kPartBytesMax = uint64_t{1} << 30;

// Appends the parts of `block` in the order of the file, none for an empty one. Without `alignment`
// none of them is direct.
void SplitBlock(const ReadRequest& block, const std::optional<DirectAlignment>& alignment,
                std::vector<BlockPart>& parts);

// Threads: every method may be called by several threads at once.
class BlockFile {
 public:
  // Opens the file for buffered reads and, if `options.cache` asks for it, once more for direct
  // ones. Where those are refused there is a note, and all reads are buffered.
  // options  of which `cache` and `reads_ahead` count
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo
  //         kStale  another file took the place of this one meanwhile
  static Result<std::unique_ptr<BlockFile>> Open(const std::string& data_path,
                                                 const EngineOptions& options);

  const std::string& path() const { return path_; }
  // Whether direct reads are still made: once one is refused, none are.
  bool is_direct() const { return is_direct_.load(std::memory_order_relaxed); }
  int buffered_fd() const { return buffered_fd_.get(); }
  int direct_fd() const { return direct_fd_.get(); }  // -1 if there is none

  // SplitBlock, as direct as the file allows now.
  // Errors: kCorruption  no file is long enough for the block
  Status Split(const BlockRead& block, std::vector<BlockPart>& parts) const;

  // Tells the kernel of blocks that follow each other, where it reads nothing ahead by itself: it
  // then asks the storage for them together. Does nothing for single blocks and direct reads.
  void Announce(std::span<const BlockRead> blocks) const;

  // A direct read was refused: from now on none are made, and there is a note.
  void RefuseDirect(int error_number);

  void AddNote(std::string note);
  std::vector<std::string> TakeNotes();

 private:
  BlockFile(std::string path, UniqueFd buffered_fd, bool reads_ahead)
      : path_(std::move(path)), buffered_fd_(std::move(buffered_fd)), reads_ahead_(reads_ahead) {}
  Status OpenDirect();

  std::string path_;
  UniqueFd buffered_fd_;
  bool reads_ahead_;
  UniqueFd direct_fd_;
  DirectAlignment alignment_;
  // Says which descriptor to use and guards no data, so nothing needs to be ordered by it.
  std::atomic<bool> is_direct_{false};
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_FILE_H_
