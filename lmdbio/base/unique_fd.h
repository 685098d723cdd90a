// lmdbio/base/unique_fd.h - owns a file descriptor and closes it once.
#ifndef LMDBIO_BASE_UNIQUE_FD_H_
#define LMDBIO_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace lmdbio {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_UNIQUE_FD_H_
