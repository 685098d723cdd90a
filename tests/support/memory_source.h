// tests/support/memory_source.h - a data file in memory that counts requests and injects faults.
#ifndef TESTS_SUPPORT_MEMORY_SOURCE_H_
#define TESTS_SUPPORT_MEMORY_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lmdbio/base/byte_source.h"

namespace lmdbio::test {

// The memory that Read returns: a copy in the caller's scratch (as pread; the sanitizers then
// detect an access beyond the extent), or the memory of the source (as a map).
enum class MemoryReads { kCopied, kBorrowed };

// Threads: reads may run in parallel; set the faults before them.
class MemorySource : public ByteSource {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  explicit MemorySource(std::vector<std::byte> content, std::string name = "memory",
                        MemoryReads reads = MemoryReads::kCopied);

  const std::string& name() const override { return name_; }
  Result<uint64_t> SizeBytes() const override { return content_.size(); }
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;
  ReadCounters counters() const override;

  // The `index`-th Read since construction (0 is the first) fails with kIo; kNever: none fails.
  void FailNthRead(uint64_t index) { fail_index_ = index; }
  // Reads behind `size_bytes` fail with kCorruption, although SizeBytes returns more: a file that
  // was truncated after its size was read.
  void LatentTruncate(uint64_t size_bytes) { readable_bytes_ = size_bytes; }

  // Number of injected faults so far. 0 after a whole run: the fault is behind the last read.
  uint64_t faults_delivered() const { return faults_delivered_.load(); }

  // The file itself, for tests that damage it between reads.
  std::vector<std::byte>& content() { return content_; }

 private:
  std::vector<std::byte> content_;
  std::string name_;
  MemoryReads reads_;
  uint64_t fail_index_ = kNever;
  uint64_t readable_bytes_ = kNever;
  mutable std::atomic<uint64_t> request_count_ = 0;
  mutable std::atomic<uint64_t> bytes_ = 0;
  mutable std::atomic<uint64_t> faults_delivered_ = 0;
};

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_MEMORY_SOURCE_H_
