// lmdbio/sync/collective/wire.h - bytes from one rank to another, for collectives.
//
// Messages between two ranks arrive in the order in which they were sent. Any number may be in
// flight, to and from any ranks. All of them progress while this rank waits for one. So two ranks
// can send each other messages of any size at the same time, without a deadlock.
//
// Threads: one at a time, except Stop.
// Source: docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_COLLECTIVE_WIRE_H_
#define LMDBIO_SYNC_COLLECTIVE_WIRE_H_

#include <span>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::sync {

// The receiver knows the size of each message. A message without bytes is not sent.
// Errors of every call:
//   kPeerFailed  a rank is gone, silent for too long, or has called Stop; names it
//   kInternal    MPI failed; has the message of MPI
// After an error every call of this rank fails with it, and so do the calls of the other ranks as
// soon as they learn of it.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to send, or to receive, a message.
  // bytes     borrowed until the message was awaited
  // to, from  [another rank]
  // Errors: as above
  virtual Status StartSend(int to, Bytes bytes) = 0;
  virtual Status StartReceive(int from, MutableBytes bytes) = 0;

  // Begins to send several messages to the same rank, in this order. They may travel together.
  // Errors: as above
  virtual Status StartSendAll(int to, std::span<const Bytes> messages) {
    for (const Bytes message : messages) LMDBIO_TRY_VOID(StartSend(to, message));
    return {};
  }

  // Waits for the oldest message to, or from, that rank that was not awaited yet.
  // Requires: there is one
  // Errors: as above
  virtual Status AwaitSend(int to) = 0;
  virtual Status AwaitReceive(int from) = 0;

  // Whether AwaitSend, or AwaitReceive, would return at once. All messages progress. Does not wait.
  // Requires: there is a message that was not awaited yet
  // Errors: as above
  virtual Result<bool> IsSent(int to) = 0;
  virtual Result<bool> IsReceived(int from) = 0;

  // Whether messages that were begun before a failure may still write to their memory.
  virtual bool writes_after_failure() const { return false; }

  // Ends all calls of this rank and of its peers, now and later, with kPeerFailed and this message.
  // Threads: any
  virtual void Stop(const Error& why) = 0;

  // Sends and receives one message each.
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
