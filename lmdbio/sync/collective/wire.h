// lmdbio/sync/collective/wire.h - bytes from one rank to another, for collectives.
//
// Pieces between two ranks arrive in the order in which they were sent. Any number may be under
// way, to and from any ranks; all of them go on while this rank waits for one. So ranks that send
// to each other at the same time do not wait for each other for ever, whatever the sizes.
//
// Threads: one at a time, but Stop from any.
// Source: docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_COLLECTIVE_WIRE_H_
#define LMDBIO_SYNC_COLLECTIVE_WIRE_H_

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::sync {

// A piece of no bytes is done as soon as it begins, and does not travel. Sizes of a piece are the
// same at both ends.
// Errors of every call:
//   kPeerFailed  a rank is gone, silent for too long, or has stopped; names it
//   kInternal    MPI failed, in its words
// After an error every call fails with it, here and, as soon as they hear of it, on the others.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to send, or to receive, a piece. `bytes` stays untouched until the piece was awaited.
  // to, from  [another rank]
  // Errors: as above
  virtual Status StartSend(int to, Bytes bytes) = 0;
  virtual Status StartReceive(int from, MutableBytes bytes) = 0;

  // Waits for the oldest piece to, or from, that rank that was not awaited yet.
  // Requires: there is one
  // Errors: as above
  virtual Status AwaitSend(int to) = 0;
  virtual Status AwaitReceive(int from) = 0;

  // Ends every call, now and later, here and on all others, with kPeerFailed and these words. Any
  // thread.
  virtual void Stop(const Error& why) = 0;

  // Sends and receives one piece each.
  // Errors: as above
  Status Exchange(int to, Bytes send, int from, MutableBytes receive) {
    LMDBIO_TRY_VOID(StartReceive(from, receive));
    LMDBIO_TRY_VOID(StartSend(to, send));
    LMDBIO_TRY_VOID(AwaitReceive(from));
    return AwaitSend(to);
  }
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_WIRE_H_
