// lmdbio/load/locate/cursor_handoff.h - cursor hand-off: the readers of several hosts share one
// cursor.
//
// The records of a batch are divided host after host. So a reader that has walked over its own
// records has its cursor at the first record of the next host. It sends the cursor there, and no
// reader walks over records of another host. The last host sends the cursor to the first, for the
// next batch.
//
// The cursor is a stack of page numbers and indices, which means the same on every host. (LMDB's
// cursor holds pointers; so the dissertation maps the file at one address on all hosts.)
//
// Source: dissertation 4.2.1, Figure 4.3; docs/many_hosts.md "Cursor hand-off".
#ifndef LMDBIO_LOAD_LOCATE_CURSOR_HANDOFF_H_
#define LMDBIO_LOAD_LOCATE_CURSOR_HANDOFF_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::load {

// The message: the cursor and the number of its record.
struct HandedCursor {
  uint64_t record = 0;
  bool is_standing = false;  // false: no reader has walked yet
  file::CursorPosition position;
};

// The cursor in a message of another reader. Its position is still to be compared with the tree
// (file::Cursor::SeekPosition).
// Errors: kCorruption  the bytes are none
Result<HandedCursor> HandedCursorIn(Bytes message);

// Threads: one at a time; Stop from any thread.
class CursorHandoff {
 public:
  // readers   one reader of each host, in the order of their ranks; at least two
  // known_as  the rank of this process in the whole job, for messages
  // Errors:     kIo  the readers cannot reach each other
  // Collective: over `readers`
  static Result<std::unique_ptr<CursorHandoff>> Create(ranks::Group& readers, int known_as);

  // Whether Take would return at once. Errors: none; Take returns a failure
  bool IsHere();

  // Sleeps until the cursor arrives; returns nothing after Stop.
  // Errors: kPeerFailed  the previous host is gone, or has failed; kCorruption
  Result<std::optional<HandedCursor>> Take();

  // Errors: kPeerFailed  the next host is gone
  Status HandOn(const HandedCursor& cursor);

  // Sends the failure of this host to the next host, which forwards it.
  void HandOnFailure(const Error& error);

  void Stop() { links_->Stop(); }

 private:
  CursorHandoff(std::unique_ptr<ranks::PeerLinks> links, const ranks::Group& readers);

  std::unique_ptr<ranks::PeerLinks> links_;
  int before_;
  int behind_;
  bool begins_;  // the first host starts with the cursor
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_CURSOR_HANDOFF_H_
