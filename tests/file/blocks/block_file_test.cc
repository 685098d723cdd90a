// Goal: the parts of a block cover the block, and direct parts are aligned in file and memory.
// Method: the parts must tile the block; the largest possible part must be direct.
#include "lmdbio/file/blocks/block_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/io/cache_probe.h"
#include "tests/file/blocks/engine_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::file {
namespace {

// Addresses only; the memory is neither read nor written.
class Addresses {
 public:
  static constexpr uint64_t kBytes = uint64_t{4} << 30;

  Addresses() {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    begin_ = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_NONE, flags, -1, 0));
    REQUIRE(begin_ != MAP_FAILED);
  }
  ~Addresses() { ::munmap(begin_, kBytes); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  MutableBytes At(uint64_t shift, uint64_t length_bytes) const {
    return MutableBytes(begin_, kBytes).subspan(shift, length_bytes);
  }

 private:
  std::byte* begin_;
};

// Checks that the parts tile the block. Returns the number of direct bytes.
uint64_t DirectBytes(const ReadRequest& block, const std::vector<BlockPart>& parts,
                     const DirectAlignment& alignment) {
  uint64_t done_bytes = 0;
  uint64_t direct_bytes = 0;
  for (const BlockPart& part : parts) {
    const uint64_t length_bytes = part.destination.size();
    CHECK(part.offset == block.offset + done_bytes);
    CHECK(part.destination.data() == block.destination.data() + done_bytes);
    CHECK(length_bytes > 0);
    CHECK(length_bytes <= kPartBytesMax);
    if (part.is_direct) {
      CHECK(part.offset % alignment.offset_bytes == 0);
      CHECK(length_bytes % alignment.offset_bytes == 0);
      CHECK(reinterpret_cast<uintptr_t>(part.destination.data()) % alignment.memory_bytes == 0);
      direct_bytes += length_bytes;
    }
    done_bytes += length_bytes;
  }
  CHECK(done_bytes == block.destination.size());
  return direct_bytes;
}

TEST_CASE("SplitBlock divides any block", "[io][block-file]") {
  const Addresses addresses;
  test::Random random(3);
  for (const DirectAlignment& alignment :
       {DirectAlignment{512, 4}, DirectAlignment{512, 512}, DirectAlignment{4096, 4096}}) {
    for (int i = 0; i < 2000; ++i) {
      const uint64_t unit = alignment.offset_bytes;
      const uint64_t offset = random.Below(100) * unit + (i % 3 == 0 ? 0 : random.Below(unit));
      const uint64_t length_bytes = random.Below(i % 5 == 0 ? 10 * unit : 2 * unit);
      const uint64_t shift = i % 2 == 0 ? offset : random.Below(10'000);
      INFO("offset " << offset << " length " << length_bytes << " shift " << shift);
      const ReadRequest block{offset, addresses.At(shift, length_bytes)};
      std::vector<BlockPart> parts;
      SplitBlock(block, alignment, parts);
      const uint64_t begin = (offset + unit - 1) / unit * unit;
      const uint64_t end = (offset + length_bytes) / unit * unit;
      const bool is_possible = begin < end && (shift - offset) % alignment.memory_bytes == 0;
      CHECK(DirectBytes(block, parts, alignment) == (is_possible ? end - begin : 0));
      CHECK(parts.size() <= 3);

      parts.clear();
      SplitBlock(block, std::nullopt, parts);
      CHECK(DirectBytes(block, parts, alignment) == 0);
      CHECK(parts.size() == (length_bytes > 0 ? 1 : 0));
    }
  }
}

TEST_CASE("SplitBlock divides a block that is too large for one read", "[io][block-file]") {
  const Addresses addresses;
  const uint64_t large_bytes = 3 * kPartBytesMax + 100;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{4096}, uint64_t{4000}}) {
    INFO("offset " << offset);
    const ReadRequest block{offset, addresses.At(offset, large_bytes)};
    std::vector<BlockPart> parts;
    SplitBlock(block, DirectAlignment{}, parts);
    CHECK(DirectBytes(block, parts, {}) / 4096 == 3 * kPartBytesMax / 4096);
    parts.clear();
    SplitBlock(block, std::nullopt, parts);
    CHECK(DirectBytes(block, parts, {}) == 0);
    CHECK(parts.size() == 4);
  }
}

// Oracle: the kernel's count of cached pages of the file.
TEST_CASE("Announced blocks come into the page cache without a read", "[io][block-file]") {
  constexpr uint64_t kBytes = 8 << 20;
  for (const bool reads_ahead : {false, true}) {
    INFO((reads_ahead ? "may read ahead" : "must not read ahead"));
    const EngineFile file(kBytes);
    const UniqueFd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    if (ProbeCache(file.path())->share > 0) {
      WARN("this file system cannot drop the cached pages of a file");
      return;
    }
    EngineOptions options{EngineKind::kPread, CachePolicy::kBuffered, 1, {}};
    options.reads_ahead = reads_ahead;
    const auto blocks = BlockFile::Open(file.path(), options);
    REQUIRE(blocks);
    std::vector<std::byte> memory(kBytes);
    const auto block = [&](uint64_t offset, uint64_t length_bytes) {
      return BlockRead{offset, MutableBytes(memory).subspan(offset, length_bytes), 0};
    };
    // A large block alone, small ones that follow each other, and a small one alone.
    const Extent large{1 << 20, 1 << 20};
    const Extent small{4 << 20, 3 * 4096};
    const Extent alone{6 << 20, 4096};
    const std::vector<BlockRead> reads = {
        block(large.offset, large.length_bytes), block(small.offset, 4096),
        block(small.offset + 4096, 4096), block(small.offset + 8192, 4096),
        block(alone.offset, alone.length_bytes)};
    (*blocks)->Announce(reads);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto is_there = [&](const Extent& extent) { return IsCached(fd.get(), kBytes, extent); };
    while (!(is_there(large) && is_there(small)) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(is_there(large));
    CHECK(is_there(small));
    CHECK_FALSE(is_there(alone));
  }
}

}  // namespace
}  // namespace lmdbio::file
