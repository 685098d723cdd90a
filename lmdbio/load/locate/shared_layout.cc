#include "lmdbio/load/locate/shared_layout.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/event_count.h"
#include "lmdbio/ranks/shm/failure_cell.h"

namespace lmdbio::load {
namespace {

// Most parts hold 1,024 leaf pages.
constexpr size_t kPiecesMax = 1 << 16;

// Ordered loads take about one byte for each record, random order three and a half.
constexpr uint64_t kBytesPerRecord = 16;
constexpr uint64_t kBytesAtLeast = 1 << 20;

// The longest delay between `stop` and the return of Await.
constexpr auto kNap = std::chrono::milliseconds(100);

// The finder's rank is not in its error: all readers of the host get the error as it is.
constexpr int kNoRank = -1;

// Zero is the first state, because new shared memory is zero-filled.
enum PartState : uint32_t { kGrowing, kEnded, kFull, kFailed };

constexpr uint64_t kAlignBytes = 8;

}  // namespace

// Only the finder writes the layout. Fields that another process may read early are atomic; the
// others are read after piece_count or state has shown that they are complete.
struct SharedLayout::Head {
  ranks::EventCount changed;  // state or piece_count
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> piece_count;
  uint64_t used_bytes;  // of the images
  ranks::FailureCell failure;
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

// The image and its head are written before piece_count grows, so a reader that sees the count can
// use the part.
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
  here.changed.Notify();
  if (here.state.load() == kFull) return std::nullopt;
  const PieceHead& at = piece_head(index);
  return file::Layout::OfImage(images().subspan(at.at, at.length_bytes));
}

void SharedLayout::End(const Status& status) {
  Head& here = head();
  if (!status) {
    here.failure.Record(status.error(), kNoRank);
    here.state.store(kFailed);
  } else if (here.state.load() != kFull) {
    here.state.store(kEnded);
  }
  here.changed.Notify();
}

Result<SharedLayout::PartLookup> SharedLayout::Await(size_t index, const std::atomic<bool>& stop,
                                                     Piece& piece) const {
  Head& here = head();
  const auto is_known = [&] {
    return here.state.load() != kGrowing || index < here.piece_count.load();
  };
  while (!stop.load()) {
    // The state first: once the layout has ended, the count is final.
    const uint32_t state = here.state.load();
    if (index < here.piece_count.load()) {
      const PieceHead& at = piece_head(index);
      piece = {at.first_record, file::Layout::OfImage(images().subspan(at.at, at.length_bytes))};
      return PartLookup::kPiece;
    }
    if (state == kEnded) return PartLookup::kEnd;
    if (state == kFull) return PartLookup::kNoRoom;
    if (state == kFailed) {
      // The finder records its failure before it changes the state.
      const std::optional<ranks::RecordedFailure> failure = here.failure.Find();
      LMDBIO_CHECK(failure);
      return Fail(failure->code, failure->text, failure->error_number);
    }
    // `stop` belongs to this process and notifies nobody, so the sleep is short.
    here.changed.WaitUnless(is_known, kNap);
  }
  return PartLookup::kStopped;
}

}  // namespace lmdbio::load
