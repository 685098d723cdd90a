// lmdbio/file/io/open_files.h - the data files of a list, of which few are open at the same time.
//
// A data set of thousands of files would need more descriptors than a process may have. So files
// are opened for their reads, and stay open until others need their descriptors.
//
// Source: docs/many_files.md "One space of offsets".
#ifndef LMDBIO_FILE_IO_OPEN_FILES_H_
#define LMDBIO_FILE_IO_OPEN_FILES_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// How a file is opened.
enum class OpenAs : uint8_t {
  kBuffered,   // through the page cache
  kScattered,  // the same; the kernel does not read ahead
  kDirect,     // around the page cache (O_DIRECT)
};

// Threads: any.
class OpenFiles {
 public:
  // paths     of data files; none is opened yet
  // open_max  the most descriptors that are open at the same time
  OpenFiles(std::vector<std::string> paths, size_t open_max);

  size_t file_count() const { return paths_.size(); }
  size_t open_max() const { return open_max_; }
  // Requires: file < file_count()
  const std::string& path(size_t file) const { return paths_[file]; }

  // Returns a descriptor of the file, which stays open until it is released as often as it was
  // acquired. If all descriptors are in use, sleeps until one is released.
  // Requires: this thread has acquired no other one, or threads that wait here could wait for each
  //           other
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo; by errno with OpenAs::kDirect
  //         kStale  another file has replaced it since it was first opened
  Result<int> Acquire(size_t file, OpenAs as);
  // The same without sleeping: nothing if all descriptors are in use. Errors: as Acquire
  Result<std::optional<int>> TryAcquire(size_t file, OpenAs as);
  void Release(size_t file, OpenAs as);

  // The descriptors that are open now.
  size_t open_count() const;

 private:
  using Key = std::pair<size_t, OpenAs>;
  struct OpenedFd {
    UniqueFd fd;
    size_t use_count = 0;
    std::list<Key>::iterator idle;  // of idle_, if use_count is 0
  };
  struct FileNumber {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const FileNumber&, const FileNumber&) = default;
  };

  Result<UniqueFd> Open(size_t file, OpenAs as);
  Status CheckSame(size_t file, int fd);
  bool CloseOne();
  bool HasRoomFor(const Key& key) const;
  Result<int> AcquireLocked(const Key& key);

  const std::vector<std::string> paths_;
  const size_t open_max_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  // Guarded by mutex_:
  std::map<Key, OpenedFd> open_;
  std::list<Key> idle_;  // the least recently used first
  std::vector<std::optional<FileNumber>> numbers_;
};

// A descriptor for as long as this object lives. Movable.
class OpenFile {
 public:
  // files  must outlive this. Requires: as OpenFiles::Acquire
  // Errors: as OpenFiles::Acquire
  static Result<OpenFile> Of(OpenFiles& files, size_t file, OpenAs as = OpenAs::kBuffered);
  // The same without sleeping, as OpenFiles::TryAcquire.
  // Errors: as OpenFiles::Acquire
  static Result<std::optional<OpenFile>> TryOf(OpenFiles& files, size_t file, OpenAs as);
  OpenFile(OpenFile&& other) noexcept
      : files_(std::exchange(other.files_, nullptr)),
        file_(other.file_),
        as_(other.as_),
        fd_(other.fd_) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (files_ != nullptr) files_->Release(file_, as_);
  }

  int fd() const { return fd_; }

 private:
  OpenFile(OpenFiles& files, size_t file, OpenAs as, int fd)
      : files_(&files), file_(file), as_(as), fd_(fd) {}

  OpenFiles* files_;
  size_t file_;
  OpenAs as_;
  int fd_;
};

// The number of descriptors for an option open_files_max: the option itself, or a quarter of those
// that the process may have if it is 0, at most 1,024. At least 2.
size_t OpenFilesMax(uint64_t option);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_OPEN_FILES_H_
