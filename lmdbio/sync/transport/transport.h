// lmdbio/sync/transport/transport.h - how ranks make the exchanges that a coordinator asks for.
#ifndef LMDBIO_SYNC_TRANSPORT_TRANSPORT_H_
#define LMDBIO_SYNC_TRANSPORT_TRANSPORT_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/exchange.h"

namespace lmdbio::sync {

enum class WakeOn : uint8_t { kWakeOrRing, kOrPeerCame };

// Threads: one at a time, the helper thread; Wake from any.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual const sync::Ranks& ranks() const = 0;

  // Begins an exchange. Collective over its scope.
  // Requires: none is under way
  // Errors: kPeerFailed  a rank is gone or has given up; names it
  //         kInternal    MPI failed, in its words
  virtual Status Start(sync::Exchange exchange) = 0;

  // Whether the exchange is over; goes on with it, never waits for another rank.
  // Errors: as Start
  virtual Result<bool> Test() = 0;

  // Waits until it is over: asleep, and at most so long, or as MPI waits. Says whether it is.
  // Errors: as Start
  virtual Result<bool> Wait(std::chrono::microseconds limit) = 0;

  // Whether Wait keeps the core, in MPI, instead of sleeping.
  virtual bool blocks_in_wait() const { return false; }

  // Requires: it is over
  virtual sync::Reply TakeReply() = 0;

  // Sleeps until Wake is called here, another rank rings, or the time has passed; at once if one of
  // these has happened since the last call. With kOrPeerCame also when another rank comes to an
  // exchange that this one has not come to, where that can be heard.
  virtual void Sleep(std::chrono::microseconds limit, WakeOn wake_on) = 0;
  // Whether kOrPeerCame and Ring work: the ranks of one host can hear each other.
  virtual bool hears_peers() const = 0;
  // Ends the Sleep under way, or the next one, and does not end a Wait. Any thread.
  virtual void Wake() = 0;

  // Wakes the ranks that have not come to the exchange under way, where that is possible, or all if
  // none is; the next take_ring of theirs says so.
  virtual void Ring() {}
  // Whether another rank has rung since the last call.
  virtual bool take_ring() { return false; }

  // From now on the destructor waits for nobody: some rank is gone.
  virtual void Abandon() {}
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_TRANSPORT_H_
