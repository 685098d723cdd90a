// tests/file/blocks/engine_fixture.h - a file, memory and blocks for the tests of the block
// engines.
//
//   const EngineFile file(1 << 20);
//   BlockList blocks(1 << 20);
//   blocks.Add(5, 100).AddRandom(random, file.size_bytes(), 20);
//   engine->Start(blocks.reads());
//   CHECK(Drain(*engine).empty());
//   CHECK(blocks.HoldWhat(file));
#ifndef LMDBIO_TESTS_FILE_BLOCKS_ENGINE_FIXTURE_H_
#define LMDBIO_TESTS_FILE_BLOCKS_ENGINE_FIXTURE_H_

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kBlockBytesMax = 3 << 20;

// A file of random bytes. The destructor removes it.
class EngineFile {
 public:
  explicit EngineFile(uint64_t size_bytes) : size_bytes_(size_bytes) {
    test::WriteWholeFile(path(), test::AsBytes(test::Random(1).BytesOf(size_bytes)));
    fd_ = UniqueFd(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
    // Synced, because a direct read of dirty pages would wait for their write each time.
    if (!fd_ || ::fdatasync(fd_.get()) != 0) throw std::runtime_error("cannot open " + path());
  }

  std::string path() const { return dir_.path() / "file"; }
  uint64_t size_bytes() const { return size_bytes_; }
  // The oracle: the bytes that plain pread returns.
  bool ReadTo(uint64_t offset, MutableBytes bytes) const {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    return got == static_cast<ssize_t>(bytes.size());
  }
  bool Holds(uint64_t offset, Bytes expected) const {
    std::vector<std::byte> bytes(expected.size());
    return ReadTo(offset, bytes) && test::AsText(bytes) == test::AsText(expected);
  }

 private:
  test::TempDir dir_;
  uint64_t size_bytes_;
  UniqueFd fd_;
};

// Blocks with destinations in page-aligned memory, with gaps between them. The tag of a block is
// its index in the list.
class BlockList {
 public:
  explicit BlockList(uint64_t memory_bytes)
      : size_bytes_(memory_bytes / kPageBytes * kPageBytes + kPageBytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, size_bytes_)), std::free) {
    Erase();
  }

  void Erase() { std::fill_n(memory_.get(), size_bytes_, kUnwritten); }
  bool IsErased() const { return IsUnwritten(memory()); }

  MutableBytes memory() const { return {memory_.get(), size_bytes_}; }
  const std::vector<BlockRead>& reads() const { return reads_; }
  uint64_t bytes() const { return bytes_; }

  // The destination starts `address_shift` bytes after a page boundary.
  BlockList& Add(uint64_t offset, uint64_t length_bytes, uint64_t address_shift = 0) {
    const uint64_t begin = (end_ / kPageBytes + 1) * kPageBytes + address_shift;
    if (begin + length_bytes > size_bytes_) throw std::runtime_error("too little memory");
    reads_.push_back({offset, memory().subspan(begin, length_bytes), reads_.size()});
    end_ = begin + length_bytes;
    bytes_ += length_bytes;
    return *this;
  }

  // Adds up to `count` blocks while there is memory for them; a few are large, a few are empty.
  // Offset and address are both aligned, both shifted by the same amount, or unrelated.
  BlockList& AddRandom(test::Random& random, uint64_t file_bytes, int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t kind = random.Below(20);
      uint64_t length_bytes = random.Between(1, kind < 2 ? kBlockBytesMax : 20'000);
      if (kind == 2) length_bytes = 0;
      uint64_t offset = random.Below(file_bytes + 1 - std::min(file_bytes, length_bytes));
      if (kind >= 14) offset = offset / kPageBytes * kPageBytes;
      if (kind >= 18) length_bytes = length_bytes / kPageBytes * kPageBytes + kPageBytes;
      length_bytes = std::min(length_bytes, file_bytes - offset);
      const uint64_t shift = kind < 5 ? random.Below(kPageBytes) : offset % kPageBytes;
      if (size_bytes_ - end_ < length_bytes + 2 * kPageBytes) break;
      Add(offset, length_bytes, shift);
    }
    return *this;
  }

  // Whether every block has the bytes of the file, and no gap was written.
  bool HoldWhat(const EngineFile& file) const {
    const std::byte* unwritten = memory_.get();
    for (const BlockRead& block : reads_) {
      const std::byte* begin = block.destination.data();
      if (!IsUnwritten({unwritten, begin})) return false;
      if (!file.Holds(block.offset, block.destination)) return false;
      unwritten = begin + block.destination.size();
    }
    return IsUnwritten({unwritten, memory_.get() + size_bytes_});
  }

 private:
  static constexpr std::byte kUnwritten{0xEE};
  // Compares the first byte, and each byte with its neighbour.
  static bool IsUnwritten(Bytes bytes) {
    if (bytes.empty()) return true;
    const std::string_view text = test::AsText(bytes);
    return bytes[0] == kUnwritten && text.substr(1) == text.substr(0, text.size() - 1);
  }

  uint64_t size_bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  std::vector<BlockRead> reads_;
  uint64_t end_ = 0;  // end of the used memory
  uint64_t bytes_ = 0;
};

inline std::unique_ptr<BlockEngine> OpenOrThrow(const std::string& path,
                                                const EngineOptions& options) {
  auto engine = OpenBlockEngine(path, options);
  if (!engine) throw std::runtime_error(engine.error().message());
  return std::move(*engine);
}

// Waits until no block is outstanding. Returns the messages of failed blocks, by tag.
inline std::map<uint64_t, std::string> Drain(BlockEngine& engine) {
  std::map<uint64_t, std::string> failures;
  while (engine.outstanding() > 0) {
    const uint64_t before = engine.outstanding();
    const Result<std::span<BlockDone>> done = engine.WaitSome();
    if (!done) throw std::runtime_error(done.error().message());
    if (done->empty() || done->size() != before - engine.outstanding()) {
      throw std::runtime_error("blocks were miscounted");
    }
    for (const BlockDone& block : *done) {
      if (!block.status) failures[block.tag] = block.status.error().message();
    }
  }
  return failures;
}

}  // namespace lmdbio::file
#endif  // LMDBIO_TESTS_FILE_BLOCKS_ENGINE_FIXTURE_H_
