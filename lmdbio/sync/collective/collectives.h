// lmdbio/sync/collective/collectives.h - how bytes of all ranks become the same bytes on all ranks.
//
// One interface, several ways: the shared memory of a host, messages between hosts, MPI. Who calls
// has agreed with the others on what comes next (lmdbio/control); each call says so once more with
// a tag, so that ranks that mean different things find out before a byte has moved, instead of
// adding up what does not belong together.
//
// Threads: one at a time in each rank, but Stop from any.
// Waiting: as WaitMode says; never for ever on a rank that is gone (ranks/health/health.h).
// Source: docs/collectives.md "Calls".
#ifndef LMDBIO_SYNC_COLLECTIVE_COLLECTIVES_H_
#define LMDBIO_SYNC_COLLECTIVE_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// What a rank says when it comes to a call.
struct CallTag {
  uint64_t digest = 0;       // of what the call is about; any number
  bool is_declined = false;  // this rank comes without data, to tell the others that it cannot
};

// The same on every rank.
enum class CallOutcome {
  kDone,
  kDeclined,  // some rank declined, or the digests or sizes differ: nothing was written anywhere
};

// Values of one type, reduced in place.
struct Values {
  std::byte* data = nullptr;  // [count elements]; borrowed until the call returns
  size_t count = 0;           // any; the same on every rank
  sync::DataType type = sync::DataType::kFloat32;
};

// Of Collectives::ample_bytes, where nothing is known.
constexpr uint64_t kUsualAmpleBytes = uint64_t{4} << 20;

// Every call is collective over all ranks, in one order. On kDeclined, and on an error, no output
// has been written, but for an error in the middle of a transfer.
// Errors of every call:
//   kPeerFailed  a rank is gone, silent for too long, or has stopped; names it
//   kInternal    MPI failed, in its words
// After an error only Stop and the destructor may be called.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank's values become the reduction of all of them, scaled once; the same bits on every
  // rank, and in every run with the same values, ranks and options.
  // reduction  the same on every rank
  virtual Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                        const sync::Reduction& reduction) = 0;

  // Rank r gets the reduction of the counts[r] elements that begin at the sum of the counts before,
  // as AllReduce would give it.
  // input   [sum of counts] of `type`
  // output  [counts[rank()]]; may be a part of `input`
  // counts  [size(); the same on every rank]
  virtual Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input,
                                            std::byte* output, std::span<const uint64_t> counts,
                                            const sync::Reduction& reduction) = 0;

  // Everybody's bytes, rank after rank.
  // mine   [part_bytes[rank()]]; may lie at its own place in `all`
  // all    [sum of part_bytes]
  // part_bytes  [size(); the same on every rank]
  virtual Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                        std::span<const uint64_t> part_bytes) = 0;

  // Rank `root`'s bytes become everybody's.
  // bytes  [the same size on every rank]
  virtual Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) = 0;

  // Rank r gets the r-th part of every rank's `send`, rank after rank.
  // send           [sum of send_bytes]
  // send_bytes     [size()] what goes to each rank
  // receive        [sum of receive_bytes]; not `send`
  // receive_bytes  [size()] what comes from each rank: its send_bytes[rank()]
  virtual Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send,
                                       std::span<const uint64_t> send_bytes, MutableBytes receive,
                                       std::span<const uint64_t> receive_bytes) = 0;

  virtual Result<CallOutcome> Barrier(const CallTag& tag) = 0;

  // Memory of this rank, made when this object was, that the others can look into: what is reduced
  // there needs no copy. May be empty. An AllReduce finds the zero-copy way by itself, if all ranks
  // reduce at the same offset of it.
  virtual MutableBytes registered() const { return {}; }

  // An AllReduce of more bytes takes no less time for each of them: who has many to reduce had best
  // do it in pieces of about so many, while they are in caches. The same on every rank.
  virtual uint64_t ample_bytes() const { return kUsualAmpleBytes; }

  // What was chosen, by size, in lines for people. May be empty.
  virtual std::string Description() const { return {}; }

  // Whether a call that has failed goes on, and may still write to what it was about.
  virtual bool writes_after_failure() const { return false; }

  // This rank does not go on: every call of its own and of its peers, now and later, ends with
  // kPeerFailed and these words. Any thread.
  virtual void Stop(const Error& why) = 0;
};

// How a rank waits for others within a call.
enum class WaitMode : uint8_t {
  kSleep,  // look a few times, giving up the core, then sleep until woken: for a helper thread
  kSpin,   // look for some microseconds without giving up the core, then as kSleep: where every
           // rank has a core of its own and latency counts
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_COLLECTIVES_H_
