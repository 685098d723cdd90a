// lmdbio/file/blocks/block_file.h - a data file with buffered and direct reads.
//
// A direct read must be aligned in the file and in memory. A block is therefore split: its aligned
// part goes around the page cache, the edges before and after it go through the cache.
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

// The alignment of direct reads in bytes: of offset and length, and of the memory address.
struct DirectAlignment {
  uint32_t offset_bytes = 4096;
  uint32_t memory_bytes = 4096;
};

// The unit of one system call: a block, or a part of it.
struct BlockPart {
  uint64_t offset = 0;
  MutableBytes destination;
  bool is_direct = false;
};

// The kernel reads at most 2 GiB less one page at once, and registers at most 1 GiB as one buffer.
inline constexpr uint64_t kPartBytesMax = uint64_t{1} << 30;

// Appends the parts of `block` in file order. An empty block has no parts. Without `alignment` no
// part is direct.
void SplitBlock(const ReadRequest& block, const std::optional<DirectAlignment>& alignment,
                std::vector<BlockPart>& parts);

// Threads: every method may be called by several threads at once.
class BlockFile {
 public:
  // Opens the file for buffered reads and, if `options.cache` asks for it, a second time for direct
  // reads. If direct reads are refused, all reads are buffered and TakeNotes reports it.
  // options  only `cache` and `reads_ahead` are used
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo
  //         kStale  the file was replaced between the two openings
  static Result<std::unique_ptr<BlockFile>> Open(const std::string& data_path,
                                                 const EngineOptions& options);

  const std::string& path() const { return path_; }
  // The policy in use: kBuffered after the first refusal of a direct read.
  CachePolicy policy() const { return is_direct() ? policy_ : CachePolicy::kBuffered; }
  // Whether reads may be direct. After the first refusal this is false.
  bool is_direct() const { return is_direct_.load(std::memory_order_relaxed); }
  int buffered_fd() const { return buffered_fd_.get(); }
  int direct_fd() const { return direct_fd_.get(); }  // -1 without direct reads

  // SplitBlock with the alignment of this file, or without direct parts after a refusal. Mixed: the
  // runs of the block that are cached are no direct parts.
  // Errors: kCorruption  the block ends beyond the largest file offset
  Status Split(const BlockRead& block, std::vector<BlockPart>& parts) const;

  // Announces blocks to the kernel, which then requests them from storage together, in file order.
  // Its own read-ahead does neither for a large block, nor for small blocks that several threads
  // read. Does nothing for a small block alone and for direct reads.
  void Announce(std::span<const BlockRead> blocks) const;

  // Records that a direct read was refused. All later reads are buffered, and a note reports it.
  void RefuseDirect(int error_number);

  void AddNote(std::string note);
  std::vector<std::string> TakeNotes();

 private:
  BlockFile(std::string path, UniqueFd buffered_fd, const EngineOptions& options)
      : path_(std::move(path)),
        buffered_fd_(std::move(buffered_fd)),
        policy_(options.cache),
        reads_ahead_(options.reads_ahead) {}
  Status OpenDirect();
  void SplitByCache(const BlockRead& block, std::vector<BlockPart>& parts) const;

  std::string path_;
  UniqueFd buffered_fd_;
  CachePolicy policy_;
  bool reads_ahead_;
  UniqueFd direct_fd_;
  DirectAlignment alignment_;
  // Selects the descriptor only. It guards no other data, so relaxed order suffices.
  std::atomic<bool> is_direct_{false};
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_FILE_H_
