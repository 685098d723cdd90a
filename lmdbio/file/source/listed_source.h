// lmdbio/file/source/listed_source.h - a file of a list as a source, opened for each read, and the
// whole list as one source.
//
// Source: docs/many_files.md "One space of offsets".
#ifndef LMDBIO_FILE_SOURCE_LISTED_SOURCE_H_
#define LMDBIO_FILE_SOURCE_LISTED_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/file/io/file_space.h"
#include "lmdbio/file/io/open_files.h"

namespace lmdbio::file {

// One file of `OpenFiles`, as FileSource reads it. Every call acquires its descriptor.
// Threads: as ByteSource; every method from any number of threads.
class ListedSource final : public ByteSource {
 public:
  // files  must outlive this. Requires: file < files.file_count()
  ListedSource(OpenFiles& files, size_t file) : files_(files), file_(file) {}

  const std::string& name() const override { return files_.path(file_); }
  Result<uint64_t> SizeBytes() const override;
  // Errors: also those of OpenFiles::Acquire
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;
  Status ReadMany(std::span<const ReadRequest> requests) const override;
  ReadCounters counters() const override;

 private:
  void Count(uint64_t bytes) const;

  OpenFiles& files_;
  size_t file_;
  mutable std::atomic<uint64_t> request_count_{0};
  mutable std::atomic<uint64_t> bytes_{0};
};

// Reads in the space of several files. Bytes between two files are not changed in `scratch`.
// Threads: as its sources.
class JoinedSource final : public ByteSource {
 public:
  // space    of the files; borrowed
  // sources  [space.file_count()] borrowed
  JoinedSource(const FileSpace& space, std::vector<const ByteSource*> sources);

  // "FIRST and N more files"; the path of a single file.
  const std::string& name() const override { return name_; }
  Result<uint64_t> SizeBytes() const override { return space_.end(); }
  // Errors: as those of the sources; they name the file if there are several
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;
  ReadCounters counters() const override;

 private:
  const FileSpace& space_;
  std::vector<const ByteSource*> sources_;
  std::string name_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_LISTED_SOURCE_H_
