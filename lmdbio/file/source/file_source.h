// lmdbio/file/source/file_source.h - a data file read with pread, many extents at once through
// io_uring.
//
// A truncated, replaced or failing file gives an Error, never a signal, because nothing is mapped.
//
// Source: dissertation 5.2.1 (explicit reads instead of mmap); docs/architecture.md "Sources".
#ifndef LMDBIO_FILE_SOURCE_FILE_SOURCE_H_
#define LMDBIO_FILE_SOURCE_FILE_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// Threads: as ByteSource; every method from any number of threads.
class FileSource final : public ByteSource {
 public:
  // Opens a data file for reading. The lock file is neither read nor written.
  // data_path  the path of the file itself (file/io/data_path.h finds it)
  // Errors: kNotFound, kPermission, kIo; the message names the path
  static Result<std::unique_ptr<FileSource>> Open(const std::string& data_path);

  const std::string& name() const override { return path_; }
  Result<uint64_t> SizeBytes() const override;

  // Copies into `scratch`. A transient failure (EINTR, EAGAIN, EIO) is retried a few times.
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;

  // Keeps up to kReadsInFlight reads in flight through io_uring. If the kernel or a container
  // refuses io_uring, reads one extent after another.
  Status ReadMany(std::span<const ReadRequest> requests) const override;

  void Advise(AccessPattern pattern) const override;
  ReadCounters counters() const override;

  static constexpr uint32_t kReadsInFlight = 128;

 private:
  FileSource(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void Count(uint64_t bytes) const;

  std::string path_;
  UniqueFd fd_;
  mutable std::atomic<uint64_t> request_count_{0};
  mutable std::atomic<uint64_t> bytes_{0};
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_FILE_SOURCE_H_
