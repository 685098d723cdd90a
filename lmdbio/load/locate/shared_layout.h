// lmdbio/load/locate/shared_layout.h - one layout in shared memory for all readers of a host.
//
//   | head | part heads [kPiecesMax] | images of parts ...                                        |
//
// One reader finds the locations of the records and publishes the layout part by part. The other
// readers use the published parts. So a host walks or computes a layout once, and stores it once.
//
// Source: docs/many_hosts.md "A shared walk".
#ifndef LMDBIO_LOAD_LOCATE_SHARED_LAYOUT_H_
#define LMDBIO_LOAD_LOCATE_SHARED_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/layout/layout.h"

namespace lmdbio::load {

// The view of one process. Threads: Publish and End one at a time; Await from any thread.
class SharedLayout {
 public:
  // Enough memory for the layout of `record_count` records, except in extreme databases (Publish
  // then reports no room). Memory that is never touched costs nothing.
  static uint64_t BytesNeeded(uint64_t record_count);

  // memory  [BytesNeeded(...)] zero-filled, shared by the readers of the host; borrowed
  explicit SharedLayout(MutableBytes memory);

  // For the finder: appends a part.
  // Returns: the part in shared memory, or nothing if there is no room. Then all later calls return
  //          nothing too
  std::optional<file::Layout> Publish(uint64_t first_record, const file::Layout& piece);
  // For the finder: no more parts follow, because the layout is complete or `status` failed.
  void End(const Status& status);

  struct Piece {
    uint64_t first_record = 0;
    file::Layout layout;
  };
  // The result of Await for part `index`.
  enum class PartLookup {
    kPiece,
    kEnd,      // the layout has fewer parts
    kNoRoom,   // the memory is full; later parts exist, but are not here
    kStopped,  // `stop` was set
  };
  // Sleeps until part `index` is published or can no longer come, or at most 0.1 s after `stop` is
  // set.
  // Errors: the error that the finder passed to End
  Result<PartLookup> Await(size_t index, const std::atomic<bool>& stop, Piece& piece) const;

 private:
  struct Head;
  struct PieceHead;
  Head& head() const;
  PieceHead& piece_head(size_t index) const;
  MutableBytes images() const;

  MutableBytes memory_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_SHARED_LAYOUT_H_
