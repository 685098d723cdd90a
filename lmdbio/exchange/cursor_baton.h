// lmdbio/exchange/cursor_baton.h - the one cursor that the readers of several hosts hand round.
//
// Records of a batch are shared out host after host, so whoever has walked over its own records
// stands where the next host's begin: it sends its cursor there, and nobody walks over what is not
// its own. From the last host the cursor goes to the first, for the next batch.
//
// Our cursor is a stack of page numbers and indices and means the same everywhere; the dissertation
// had to map the file at one address on all hosts, because LMDB's holds pointers.
//
// Source: dissertation 4.2.1, Figure 4.3; docs/many_hosts.md "Cursor hand-off".
#ifndef LMDBIO_EXCHANGE_CURSOR_BATON_H_
#define LMDBIO_EXCHANGE_CURSOR_BATON_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "lmdbio/comm/group.h"
#include "lmdbio/comm/peer_links.h"
#include "lmdbio/layout/cursor.h"

namespace lmdbio::exchange {

// Where the cursor stands.
struct HandedCursor {
  uint64_t record = 0;
  bool is_standing = false;  // false: nobody has walked yet
  layout::CursorPosition position;
};

// Threads: one at a time, but Stop from any.
class CursorBaton {
 public:
  // Collective over `readers`, one reader of each host in the order of their ranks; at least two.
  // known_as  this process in messages: its rank in the whole job
  // Errors: kIo  the readers cannot reach each other
  static Result<std::unique_ptr<CursorBaton>> Create(comm::Group& readers, int known_as);

  // Whether Take would return at once. Errors: none; a failure is Take's to tell
  bool IsHere();

  // Sleeps until the cursor is here; nothing after Stop.
  // Errors: kPeerFailed  the host before this one is gone, or has failed; kCorruption
  Result<std::optional<HandedCursor>> Take();

  // Errors: kPeerFailed  the next host is gone
  Status HandOn(const HandedCursor& cursor);

  // Tells the next host, and so all, that this one cannot go on.
  void HandOnFailure(const Error& error);

  void Stop() { links_->Stop(); }

 private:
  CursorBaton(std::unique_ptr<comm::PeerLinks> links, const comm::Group& readers);

  std::unique_ptr<comm::PeerLinks> links_;
  int before_;
  int behind_;
  bool begins_;  // has the cursor at first without being sent it
};

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_CURSOR_BATON_H_
