#include "lmdbio/load/locate/shared_layout.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/futex.h"

namespace lmdbio::load {
namespace {

// Most parts hold 1,024 leaf pages.
constexpr size_t kPiecesMax = 1 << 16;

// Ordered loads take about one byte for each record, random order three and a half.
constexpr uint64_t kBytesPerRecord = 16;
constexpr uint64_t kBytesAtLeast = 1 << 20;

// The longest delay between `stop` and the return of Await.
constexpr auto kNap = std::chrono::milliseconds(100);

constexpr size_t kTextBytesMax = 1024;

enum PartState : uint32_t { kGrowing, kEnded, kFull, kFailed };

constexpr uint64_t kAlignBytes = 8;

}  // namespace

struct SharedLayout::Head {
  std::atomic<uint32_t> changes;  // the futex word: counts publications and the end
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> piece_count;
  uint64_t used_bytes;  // of the images
  int32_t error_code;
  int32_t error_number;
  std::array<char, kTextBytesMax> error_text;
};

struct SharedLayout::PieceHead {
  uint64_t first_record;
  uint64_t at;  // in the images
  uint64_t length_bytes;
};

uint64_t SharedLayout::BytesNeeded(uint64_t record_count) {
  return AlignUp(sizeof(Head), kAlignBytes) + kPiecesMax * sizeof(PieceHead) +
         std::max(kBytesAtLeast, record_count * kBytesPerRecord);
}

SharedLayout::SharedLayout(MutableBytes memory) : memory_(memory) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  LMDBIO_CHECK(memory_.size() >= BytesNeeded(0));
}

SharedLayout::Head& SharedLayout::head() const {
  return *std::launder(reinterpret_cast<Head*>(memory_.data()));
}

SharedLayout::PieceHead& SharedLayout::piece_head(size_t index) const {
  auto* heads = reinterpret_cast<PieceHead*>(memory_.data() + AlignUp(sizeof(Head), kAlignBytes));
  return *std::launder(heads + index);
}

MutableBytes SharedLayout::images() const {
  return memory_.subspan(AlignUp(sizeof(Head), kAlignBytes) + kPiecesMax * sizeof(PieceHead));
}

// The image and its head are written before piece_count grows, and `changes` grows last. A reader
// reads `changes` first and the state after it. So it either sees the new part, or its FutexWait
// returns at once because `changes` differs.
std::optional<file::Layout> SharedLayout::Publish(uint64_t first_record,
                                                  const file::Layout& piece) {
  Head& here = head();
  const uint64_t index = here.piece_count.load();
  const uint64_t length_bytes = piece.image_bytes();
  if (here.state.load() == kFull) return std::nullopt;
  if (index == kPiecesMax || length_bytes > images().size() - here.used_bytes) {
    here.state.store(kFull);
  } else {
    const MutableBytes image = images().subspan(here.used_bytes, length_bytes);
    piece.WriteImage(image);
    piece_head(index) = {first_record, here.used_bytes, length_bytes};
    here.used_bytes += AlignUp(length_bytes, kAlignBytes);
    here.piece_count.store(index + 1);
  }
  here.changes.fetch_add(1);
  FutexWake(here.changes);
  if (here.state.load() == kFull) return std::nullopt;
  const PieceHead& at = piece_head(index);
  return file::Layout::OfImage(images().subspan(at.at, at.length_bytes));
}

void SharedLayout::End(const Status& status) {
  Head& here = head();
  if (!status) {
    const std::string& text = status.error().message();
    here.error_code = static_cast<int32_t>(status.error().code());
    here.error_number = status.error().error_number();
    text.copy(here.error_text.data(), kTextBytesMax - 1);
    here.state.store(kFailed);
  } else if (here.state.load() != kFull) {
    here.state.store(kEnded);
  }
  here.changes.fetch_add(1);
  FutexWake(here.changes);
}

Result<SharedLayout::PartLookup> SharedLayout::Await(size_t index, const std::atomic<bool>& stop,
                                                     Piece& piece) const {
  const Head& here = head();
  while (!stop.load()) {
    const uint32_t seen = here.changes.load();
    const uint32_t state = here.state.load();
    if (index < here.piece_count.load()) {
      const PieceHead& at = piece_head(index);
      piece = {at.first_record, file::Layout::OfImage(images().subspan(at.at, at.length_bytes))};
      return PartLookup::kPiece;
    }
    switch (state) {
      case kEnded:
        return PartLookup::kEnd;
      case kFull:
        return PartLookup::kNoRoom;
      case kFailed:
        return Fail(static_cast<ErrorCode>(here.error_code), std::string(here.error_text.data()),
                    here.error_number);
      default:
        FutexWait(here.changes, seen, kNap);
    }
  }
  return PartLookup::kStopped;
}

}  // namespace lmdbio::load
