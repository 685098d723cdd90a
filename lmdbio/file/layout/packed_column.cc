#include "lmdbio/file/layout/packed_column.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace lmdbio::file {
namespace {

struct Line {
  uint64_t base = 0;
  uint64_t stride = 0;
  uint32_t width = 64;
  uint32_t shift = 0;
};

// The highest line of the given stride that has no value below it, and the width and shift of the
// residuals: `shift` counts the low bits that are 0 in all residuals, `width` the bits above them.
Line FitLine(std::span<const uint64_t> values, uint64_t stride) {
  Line line{values[0], stride, 0, 0};
  uint64_t any = 0;
  uint64_t on_line = line.base;
  for (const uint64_t value : values) {
    any |= value - on_line;
    on_line += stride;
  }
  // Distances are signed numbers, because offsets and sizes are far below 2^63. Usually no value
  // lies below the line through the first one.
  if (static_cast<int64_t>(any) < 0) {
    int64_t lowest = 0;
    for (uint64_t i = 0; i < values.size(); ++i) {
      lowest = std::min(lowest, static_cast<int64_t>(values[i] - (line.base + i * stride)));
    }
    line.base += static_cast<uint64_t>(lowest);
    any = 0;
    for (uint64_t i = 0; i < values.size(); ++i) any |= values[i] - (line.base + i * stride);
  }
  if (any != 0) {
    line.shift = static_cast<uint32_t>(std::countr_zero(any));
    line.width = static_cast<uint32_t>(std::bit_width(any)) - line.shift;
  }
  return line;
}

// The least width that a level line can have: its residuals span the distance of any two values,
// and this distance has at least the low zero bits of all residuals.
uint32_t LevelWidthMin(std::span<const uint64_t> values) {
  const auto distance = [](uint64_t a, uint64_t b) { return a < b ? b - a : a - b; };
  const uint64_t span = distance(values.front(), values.back());
  const uint64_t step = distance(values[0], values[1]);
  const auto zeros = static_cast<uint32_t>(std::countr_zero(step));
  const auto bits = static_cast<uint32_t>(std::bit_width(span));
  return bits > zeros ? bits - zeros : 0;
}

}  // namespace

// The stride of the block: the difference of neighbours that occurs more often than all others
// together, which a few jumps do not change. Without such a one, the mean difference, rounded down
// so that residuals keep the low zero bits that all differences have.
uint64_t PackedColumnBuilder::StrideOfPending() const {
  if (pending_count_ < 2) return 0;
  const uint32_t step_count = pending_count_ - 1;
  const auto step_at = [this](uint32_t i) { return pending_[i + 1] - pending_[i]; };
  for (const uint64_t step : {step_at(0), step_at(step_count - 1)}) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < step_count; ++i) count += step_at(i) == step ? 1 : 0;
    if (2 * count > step_count) return step;
  }
  uint64_t any = 0;
  for (uint32_t i = 0; i < step_count; ++i) any |= step_at(i);
  if (any == 0) return 0;
  const int zeros = std::countr_zero(any);
  const auto rise = static_cast<int64_t>(pending_[step_count] - pending_[0]);
  return static_cast<uint64_t>(rise / static_cast<int64_t>(step_count) >> zeros) << zeros;
}

// Encodes the pending block. A line through the values with their own stride is tried first. If
// its residuals are not all zero, a level line (stride 0) is tried too, because random values have
// a smaller range around a constant than around a slope. The narrower encoding wins. Residuals are
// packed without padding and may cross a word boundary.
void PackedColumnBuilder::Flush() {
  if (pending_count_ == 0) return;
  const std::span<const uint64_t> values(pending_.data(), pending_count_);
  Line line = FitLine(values, StrideOfPending());
  if (line.width > 0 && line.stride != 0 && LevelWidthMin(values) <= line.width) {
    const Line level = FitLine(values, 0);
    if (level.width <= line.width) line = level;
  }
  PackedColumn::PackedBlock block;
  block.base = line.base;
  block.stride = line.stride;
  block.first_bit = bit_count_;
  block.width = static_cast<uint8_t>(line.width);
  block.shift = static_cast<uint8_t>(line.shift);
  column_.blocks.push_back(block);
  if (line.width > 0) PackResiduals(block);
  size_ += pending_count_;
  pending_count_ = 0;
}

// Appends the residuals of the pending values. The new words are 0, so bits can be combined with
// `or`.
void PackedColumnBuilder::PackResiduals(const PackedColumn::PackedBlock& block) {
  const uint32_t width = block.width;
  column_.bits.resize((bit_count_ + uint64_t{pending_count_} * width + 63) / 64);
  uint64_t* word = &column_.bits[bit_count_ / 64];
  uint32_t low = bit_count_ % 64;
  uint64_t bits = *word;
  uint64_t on_line = block.base;
  for (uint32_t i = 0; i < pending_count_; ++i, on_line += block.stride) {
    const uint64_t residual = (pending_[i] - on_line) >> block.shift;
    bits |= residual << low;
    low += width;
    if (low < 64) continue;
    *word++ = bits;
    low -= 64;
    // The rest of a residual that crosses into the next word. A shift by its own 64 bits is none.
    bits = low > 0 ? residual >> (width - low) : 0;
  }
  if (low > 0) *word = bits;
  bit_count_ += uint64_t{pending_count_} * width;
}

PackedColumn PackedColumnBuilder::Finish() {
  Flush();
  // A layout lives as long as its loader, so the spare capacity of growing vectors is returned.
  column_.blocks.shrink_to_fit();
  column_.bits.shrink_to_fit();
  bit_count_ = 0;
  PackedColumn column;
  column.size_ = std::exchange(size_, 0);
  column.owned_ = std::make_shared<const PackedColumn::Owned>(std::exchange(column_, {}));
  column.blocks_ = column.owned_->blocks;
  column.bits_ = column.owned_->bits;
  return column;
}

uint64_t PackedColumn::image_bytes() const {
  return sizeof(ImageHead) + blocks_.size_bytes() + bits_.size_bytes();
}

void PackedColumn::WriteImage(MutableBytes memory) const {
  LMDBIO_CHECK(memory.size() == image_bytes());
  const ImageHead head{size_, blocks_.size(), bits_.size()};
  std::memcpy(memory.data(), &head, sizeof head);
  const Bytes blocks = std::as_bytes(blocks_);
  const Bytes bits = std::as_bytes(bits_);
  std::copy(blocks.begin(), blocks.end(), memory.begin() + sizeof head);
  std::copy(bits.begin(), bits.end(),
            memory.begin() + static_cast<std::ptrdiff_t>(sizeof head + blocks.size()));
}

// The blocks and words are used where they lie. The checks find defects of this program, not forged
// sizes: the image was written by the same program on this host, in memory of the job.
PackedColumn PackedColumn::OfImage(Bytes image) {
  static_assert(std::is_trivially_copyable_v<PackedBlock> && alignof(PackedBlock) <= 8);
  ImageHead head;
  LMDBIO_CHECK(image.size() >= sizeof head);
  std::memcpy(&head, image.data(), sizeof head);
  const uint64_t blocks_bytes = head.block_count * sizeof(PackedBlock);
  LMDBIO_CHECK(image.size() >= sizeof head + blocks_bytes + head.word_count * sizeof(uint64_t));
  PackedColumn column;
  column.size_ = head.size;
  column.blocks_ = {reinterpret_cast<const PackedBlock*>(image.data() + sizeof head),
                    head.block_count};
  column.bits_ = {reinterpret_cast<const uint64_t*>(image.data() + sizeof head + blocks_bytes),
                  head.word_count};
  return column;
}

}  // namespace lmdbio::file
