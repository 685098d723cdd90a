// tests/support/descriptor_limit.h - lowers the number of descriptors of this process for a while.
#ifndef LMDBIO_TESTS_SUPPORT_DESCRIPTOR_LIMIT_H_
#define LMDBIO_TESTS_SUPPORT_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>

#include <stdexcept>

namespace lmdbio::test {

// As `ulimit -n LIMIT`, until this object ends. Throws std::runtime_error if that is refused.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    struct rlimit low = before_;
    low.rlim_cur = limit;
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) throw std::runtime_error("setrlimit is refused");
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  struct rlimit before_ = {};
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_DESCRIPTOR_LIMIT_H_
