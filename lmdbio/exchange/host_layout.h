// lmdbio/exchange/host_layout.h - the layout that all readers of a host look into.
//
//   | head | piece heads [kPiecesMax] | images of pieces ...                                      |
//
// One reader finds where records lie and puts the pieces of layout here as they come; the others
// find them. So a host walks, or computes, a layout once, and keeps it once.
//
// Source: docs/many_hosts.md "A shared walk".
#ifndef LMDBIO_EXCHANGE_HOST_LAYOUT_H_
#define LMDBIO_EXCHANGE_HOST_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/layout/layout.h"

namespace lmdbio::exchange {

// One process's view. Threads: Publish and End one at a time; Await any.
class HostLayout {
 public:
  // Room for what a layout of so many records takes in all but the strangest databases. Memory that
  // is never touched costs nothing.
  static uint64_t BytesNeeded(uint64_t record_count);

  // memory  [BytesNeeded(...)] zero-filled, shared by the readers of the host; borrowed
  explicit HostLayout(MutableBytes memory);

  // The finder's: puts a piece behind those that are there already.
  // Returns: the piece as it lies here, or nothing if there is no room, now and from then on
  std::optional<layout::Layout> Publish(uint64_t first_record, const layout::Layout& piece);
  // The finder's: no more pieces come.
  void End(const Status& status);

  struct Piece {
    uint64_t first_record = 0;
    layout::Layout layout;
  };
  // What a user learns of piece `index`.
  enum class Found {
    kPiece,
    kEnd,      // there are fewer pieces
    kNoRoom,   // there would be more, but not here
    kStopped,  // `stop` was set
  };
  // Sleeps until piece `index` is here or will never be, or soon after `stop` is set.
  // Errors: of the finder, with its words
  Result<Found> Await(size_t index, const std::atomic<bool>& stop, Piece& piece) const;

 private:
  struct Head;
  struct PieceHead;
  Head& head() const;
  PieceHead& piece_head(size_t index) const;
  MutableBytes images() const;

  MutableBytes memory_;
};

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_HOST_LAYOUT_H_
