// lmdbio/sync/transport/transport.h - executes the exchanges of a coordinator, and lets the helper
// thread sleep between them.
#ifndef LMDBIO_SYNC_TRANSPORT_TRANSPORT_H_
#define LMDBIO_SYNC_TRANSPORT_TRANSPORT_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/exchange.h"

namespace lmdbio::sync {

// The events that end Transport::Sleep.
enum class WakeOn : uint8_t {
  kWakeOrRing,  // Wake of this rank, or a wake-up that another rank has sent with Ring
  kOrPeerCame,  // also another rank that joins an exchange that this rank has not joined
};

// Threads: one at a time, the helper thread, except Wake.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual const Ranks& ranks() const = 0;

  // Begins an exchange. Collective over its scope.
  // Requires: no exchange is in progress
  // Errors: kPeerFailed  a rank is gone or has given up; names it
  //         kInternal    MPI failed; has the message of MPI
  virtual Status Start(Exchange exchange) = 0;

  // Continues the exchange without waiting. Returns whether it is over.
  // Errors: as Start
  virtual Result<bool> Test() = 0;

  // Waits until the exchange is over, or the limit has passed. Returns whether it is over. The rank
  // sleeps, or waits as MPI does.
  // Errors: as Start
  virtual Result<bool> Wait(std::chrono::microseconds limit) = 0;

  // Whether Wait keeps the core busy instead of sleeping, because MPI does.
  virtual bool blocks_in_wait() const { return false; }

  // Requires: the exchange is over
  virtual Reply TakeReply() = 0;

  // Sleeps until an event of `wake_on`, or until the limit has passed. Returns at once if an event
  // has happened since the last call.
  virtual void Sleep(std::chrono::microseconds limit, WakeOn wake_on) = 0;
  // Whether kOrPeerCame and Ring work between all ranks: they are on one host.
  virtual bool hears_peers() const = 0;
  // Ends the present Sleep, or the next one, and does not end a Wait. Threads: any
  virtual void Wake() = 0;

  // Sends a wake-up to the ranks that have not joined the exchange in progress, or to all ranks if
  // no exchange is in progress. Reaches the ranks of this host only.
  virtual void Ring() {}
  // Whether another rank has sent a wake-up since the last call.
  virtual bool take_ring() { return false; }

  // This rank makes no further exchange. A rank that waits for it in one gets the error `why`, as
  // far as the transport can tell it. The destructor waits for no other rank.
  virtual void Abandon(const Error& /*why*/) {}
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_TRANSPORT_H_
