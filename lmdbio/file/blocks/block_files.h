// lmdbio/file/blocks/block_files.h - several data files side by side, read as one.
//
// Blocks count in the space of all files (file/io/file_space.h). A block is cut at the ends of the
// files, and each part is read from its own file. The files are opened for their reads.
//
// Source: docs/many_files.md "One space of offsets".
#ifndef LMDBIO_FILE_BLOCKS_BLOCK_FILES_H_
#define LMDBIO_FILE_BLOCKS_BLOCK_FILES_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/file/blocks/block_file.h"
#include "lmdbio/file/io/file_space.h"
#include "lmdbio/file/io/open_files.h"

namespace lmdbio::file {

class BlockFiles final : public ReadableFiles {
 public:
  // Opens the first file to see whether direct reads are possible, if `options.cache` asks for
  // them. Limits options.queue_depth, so that the descriptors of all reads in flight fit.
  // files   borrowed
  // Errors: as OpenFiles::Acquire
  static Result<std::unique_ptr<BlockFiles>> Open(const JoinedFiles& files, EngineOptions& options);
  // Releases the descriptors of reads that no caller took back, as after a failure of the engine.
  ~BlockFiles() override;

  const std::string& path(size_t file) const override { return files_.path(file); }
  const std::string& name() const override { return name_; }
  CachePolicy policy() const override { return is_direct() ? policy_ : CachePolicy::kBuffered; }
  bool is_direct() const override { return is_direct_.load(std::memory_order_relaxed); }
  // Bytes that belong to no file have no part.
  Status Split(const BlockRead& block, std::vector<BlockPart>& parts) const override;
  Result<bool> Acquire(PendingRead& part) override;
  void Release(const PendingRead& part) override;
  // Only if all files may be open at the same time.
  void Announce(std::span<const BlockRead> blocks) const override;
  void RefuseDirect(size_t file, int error_number) override;

 private:
  BlockFiles(const JoinedFiles& files, const EngineOptions& options);
  Status LookForDirect();
  Result<bool> AcquireAs(PendingRead& part, OpenAs as);
  OpenAs BufferedAs() const;
  void SplitPart(const FileSpace::FilePart& piece, MutableBytes destination, int cached_fd,
                 std::vector<BlockPart>& parts) const;

  OpenFiles& files_;
  const FileSpace& space_;
  std::string name_;
  CachePolicy policy_;
  bool reads_ahead_;
  DirectAlignment alignment_;  // of all files, as the first one has it
  std::atomic<bool> is_direct_{false};
  std::atomic<bool> has_refused_{false};  // a note reports it
  std::mutex mutex_;
  std::vector<std::pair<size_t, OpenAs>> held_;  // by reads in flight; guarded by mutex_
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_FILES_H_
