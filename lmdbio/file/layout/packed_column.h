// lmdbio/file/layout/packed_column.h - a compressed column of numbers with random access.
//
// Numbers are stored in blocks of 128. A block holds a straight line (base + j * stride, j = i mod
// 128) and, for each number, its residual: the distance above the line. All residuals of a block
// have the same width in bits. The offsets of an ordered load lie on the line except for few jumps,
// and sizes are often constant, so these columns need few bits or none. Random numbers need as many
// bits as their range.
//
//   value(i) = base + (i mod 128) * stride + (residual(i) << shift)
#ifndef LMDBIO_FILE_LAYOUT_PACKED_COLUMN_H_
#define LMDBIO_FILE_LAYOUT_PACKED_COLUMN_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

// Copies share their memory. Threads: const; any number of readers.
class PackedColumn {
 public:
  uint64_t size() const { return size_; }

  // Requires: i < size()
  uint64_t operator[](uint64_t i) const {
    LMDBIO_DCHECK(i < size_);
    const PackedBlock& block = blocks_[i / kBlockSize];
    const uint64_t place = i % kBlockSize;
    const uint64_t line = block.base + place * block.stride;
    if (block.width == 0) return line;
    return line + (Bits(block.first_bit + place * block.width, block.width) << block.shift);
  }

  uint64_t memory_bytes() const { return blocks_.size_bytes() + bits_.size_bytes(); }

  // The size of the column as bytes, for other processes of this host that run the same program.
  uint64_t image_bytes() const;  // a multiple of 8
  // memory  [image_bytes()] 8-aligned
  void WriteImage(MutableBytes memory) const;
  // A view of the column in `image`.
  // image     [>= image_bytes()] 8-aligned; bytes behind the column are ignored
  // Requires: WriteImage wrote `image`
  // Lifetime: `image` must outlive the column and its copies
  static PackedColumn OfImage(Bytes image);
  static PackedColumn OfImage(TemporaryContainer auto&& image) = delete;

 private:
  friend class PackedColumnBuilder;
  static constexpr uint64_t kBlockSize = 128;

  struct PackedBlock {
    uint64_t base = 0;
    uint64_t stride = 0;  // modulo 2^64, so that a falling line is possible
    uint64_t first_bit = 0;
    uint8_t width = 0;  // bits of each residual, 0 to 64
    uint8_t shift = 0;  // low bits that all residuals have 0
  };

  uint64_t Bits(uint64_t at, uint32_t width) const {
    const uint64_t word = at / 64;
    const uint32_t low = at % 64;
    uint64_t value = bits_[word] >> low;
    if (low + width > 64) value |= bits_[word + 1] << (64 - low);
    return width == 64 ? value : value & ((uint64_t{1} << width) - 1);
  }

  struct Owned {
    std::vector<PackedBlock> blocks;
    std::vector<uint64_t> bits;
  };
  // Starts an image; the blocks and the words of residual bits follow.
  struct ImageHead {
    uint64_t size = 0;
    uint64_t block_count = 0;
    uint64_t word_count = 0;
  };

  uint64_t size_ = 0;
  std::span<const PackedBlock> blocks_;
  std::span<const uint64_t> bits_;
  std::shared_ptr<const Owned> owned_;  // holds the memory of both spans; null for an image
};

class PackedColumnBuilder {
 public:
  void Append(uint64_t value) {
    pending_[pending_count_++] = value;
    if (pending_count_ == PackedColumn::kBlockSize) Flush();
  }
  // The same for several values: values[i].*member of each.
  template <typename Item>
  void AppendAll(std::span<const Item> items, uint64_t Item::*member) {
    while (!items.empty()) {
      const auto room = static_cast<size_t>(PackedColumn::kBlockSize - pending_count_);
      const std::span<const Item> now = items.first(std::min(items.size(), room));
      for (const Item& item : now) pending_[pending_count_++] = item.*member;
      if (pending_count_ == PackedColumn::kBlockSize) Flush();
      items = items.subspan(now.size());
    }
  }
  uint64_t size() const { return size_ + pending_count_; }

  // The column; the builder is empty afterwards.
  PackedColumn Finish();

 private:
  void Flush();
  uint64_t StrideOfPending() const;
  void PackResiduals(const PackedColumn::PackedBlock& block);

  PackedColumn::Owned column_;
  uint64_t size_ = 0;
  uint64_t bit_count_ = 0;
  std::array<uint64_t, PackedColumn::kBlockSize> pending_{};
  uint32_t pending_count_ = 0;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_PACKED_COLUMN_H_
