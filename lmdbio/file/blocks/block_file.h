// lmdbio/file/blocks/block_file.h - data files with buffered and direct reads: one, or several side
// by side (block_files.h).
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
#include "lmdbio/file/io/read_queue.h"

namespace lmdbio::file {

// The alignment of direct reads in bytes: of offset and length, and of the memory address.
struct DirectAlignment {
  uint32_t offset_bytes = 4096;
  uint32_t memory_bytes = 4096;
};

// The unit of one system call: a block, or a part of it.
struct BlockPart {
  uint64_t offset = 0;  // in its file
  MutableBytes destination;
  bool is_direct = false;
  size_t file = 0;  // among those of ReadableFiles
};

// The kernel reads at most 2 GiB less one page at once, and registers at most 1 GiB as one buffer.
inline constexpr uint64_t kPartBytesMax = uint64_t{1} << 30;

// Appends the parts of `block` in file order. An empty block has no parts. Without `alignment` no
// part is direct.
void SplitBlock(const ReadRequest& block, const std::optional<DirectAlignment>& alignment,
                std::vector<BlockPart>& parts);

// The alignment of direct reads that the file system of an open file requires; nothing if it allows
// none.
std::optional<DirectAlignment> FindAlignment(int fd);

// Errors: kCorruption  the block ends beyond the largest file offset
// name    of the file, for messages
Status CheckOffset(const BlockRead& block, const std::string& name);

// The data file that the blocks of an engine are read from, or several in one space of offsets.
// Threads: every method may be called by several threads at once.
class ReadableFiles {
 public:
  virtual ~ReadableFiles() = default;

  // Names a file in messages, and the whole in messages of the engine.
  virtual const std::string& path(size_t file) const = 0;
  virtual const std::string& name() const = 0;

  // The policy in use: kBuffered after the first refusal of a direct read.
  virtual CachePolicy policy() const = 0;
  // Whether reads may be direct. After the first refusal this is false.
  virtual bool is_direct() const = 0;

  // SplitBlock with the alignment of the files, or without direct parts after a refusal. Mixed: the
  // runs of the block that are cached are no direct parts.
  // Errors: kCorruption  the block ends beyond the largest file offset
  virtual Status Split(const BlockRead& block, std::vector<BlockPart>& parts) const = 0;

  // Sets `part.fd`, and clears is_direct if a direct read is impossible. The descriptor stays open
  // until Release. False: all descriptors are in use, and one of them by another part of this
  // engine, whose Release comes first. Without such a part, sleeps until one is free.
  // Errors: as OpenFiles::Acquire; a single file has none
  virtual Result<bool> Acquire(PendingRead& part) = 0;
  virtual void Release(const PendingRead& part) = 0;

  // Announces blocks to the kernel, which then requests them from storage together, in file order.
  // Its own read-ahead does neither for a large block, nor for small blocks that several threads
  // read. Does nothing for a small block alone and for direct reads.
  virtual void Announce(std::span<const BlockRead> blocks) const = 0;

  // Records that a direct read was refused. All later reads are buffered, and a note reports it.
  virtual void RefuseDirect(size_t file, int error_number) = 0;

  void AddNote(std::string note);
  std::vector<std::string> TakeNotes();

 private:
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;
};

// One file, open for as long as this object lives.
class BlockFile final : public ReadableFiles {
 public:
  // Opens the file for buffered reads and, if `options.cache` asks for it, a second time for direct
  // reads. If direct reads are refused, all reads are buffered and TakeNotes reports it.
  // options  only `cache` and `reads_ahead` are used
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo
  //         kStale  the file was replaced between the two openings
  static Result<std::unique_ptr<BlockFile>> Open(const std::string& data_path,
                                                 const EngineOptions& options);

  const std::string& path(size_t /*file*/) const override { return path_; }
  const std::string& name() const override { return path_; }
  CachePolicy policy() const override { return is_direct() ? policy_ : CachePolicy::kBuffered; }
  bool is_direct() const override { return is_direct_.load(std::memory_order_relaxed); }
  int buffered_fd() const { return buffered_fd_.get(); }
  int direct_fd() const { return direct_fd_.get(); }  // -1 without direct reads

  Status Split(const BlockRead& block, std::vector<BlockPart>& parts) const override;
  Result<bool> Acquire(PendingRead& part) override;
  void Release(const PendingRead& /*part*/) override {}
  void Announce(std::span<const BlockRead> blocks) const override;
  void RefuseDirect(size_t /*file*/, int error_number) override { RefuseDirect(error_number); }
  void RefuseDirect(int error_number);

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
};

// Announces `blocks` of the file behind `fd`, as ReadableFiles::Announce.
void AnnounceBlocks(int fd, std::span<const BlockRead> blocks);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_FILE_H_
