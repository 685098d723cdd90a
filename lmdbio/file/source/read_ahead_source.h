// lmdbio/file/source/read_ahead_source.h - large reads of a data file, for passes in file order.
//
// A scan requests small extents, mostly shortly after the previous one. This source reads 256 KiB
// at a time into a buffer and serves such requests from it: one system call instead of sixty, and
// no map (file/source/map_source.h has the risks of a map). Requests that do not continue a pass go
// to the file directly.
//
// Source: dissertation 5.1.2 (block size) and 5.2.1.
#ifndef LMDBIO_FILE_SOURCE_READ_AHEAD_SOURCE_H_
#define LMDBIO_FILE_SOURCE_READ_AHEAD_SOURCE_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/file/source/file_source.h"

namespace lmdbio::file {

// Threads: as ByteSource. A lock guards the one buffer, so concurrent passes gain nothing.
class ReadAheadSource final : public ByteSource {
 public:
  // Errors: as FileSource::Open
  static Result<std::unique_ptr<ReadAheadSource>> Open(const std::string& data_path);

  const std::string& name() const override { return file_->name(); }
  Result<uint64_t> SizeBytes() const override { return file_->SizeBytes(); }
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;
  Status ReadMany(std::span<const ReadRequest> requests) const override {
    return file_->ReadMany(requests);
  }
  void Advise(AccessPattern pattern) const override { file_->Advise(pattern); }
  ReadCounters counters() const override { return file_->counters(); }

 private:
  explicit ReadAheadSource(std::unique_ptr<FileSource> file) : file_(std::move(file)) {}
  bool Holds(Extent extent) const;
  bool Continues(Extent extent) const;
  Status Fill(uint64_t offset) const;

  std::unique_ptr<FileSource> file_;
  mutable std::mutex mutex_;
  mutable std::vector<std::byte> buffer_;  // guarded by mutex_
  mutable Extent held_;                    // the extent in buffer_; guarded by mutex_
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_READ_AHEAD_SOURCE_H_
