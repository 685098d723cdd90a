// lmdbio/sync/collective/collectives.h - the collective calls: bytes of all ranks become the same
// bytes on all ranks.
//
// One interface has several implementations: the shared memory of a host, messages between hosts,
// MPI. The callers agree on the order of the calls (sync/control). Each call carries a tag, so that
// ranks that make different calls detect it before data moves. Otherwise they would add up values
// of different tensors.
//
// Threads: one at a time in each rank, except Stop.
// Waiting: as WaitMode; a wait ends if a rank fails (ranks/health/health.h).
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

// The identity of a call. All ranks compare their tags before data moves.
struct CallTag {
  uint64_t digest = 0;       // of the tensors and their order; any number
  bool is_declined = false;  // this rank joins the call without data, so all ranks skip it
};

// The same on every rank.
enum class CallOutcome {
  kDone,
  kDeclined,  // a rank declined, or the digests or sizes differ: no output was written
};

// Values of one type, reduced in place.
struct Values {
  std::byte* data = nullptr;  // [count elements]; borrowed until the call returns
  size_t count = 0;           // any; the same on every rank
  DataType type = DataType::kFloat32;
};

// Default of Collectives::ample_bytes.
constexpr uint64_t kUsualAmpleBytes = uint64_t{4} << 20;

// Every call is collective over all ranks, in the same order on all of them. On kDeclined no output
// has been written. After an error in the middle of a transfer, parts of the output may be written.
// Errors of every call:
//   kPeerFailed  a rank is gone, silent for too long, or has called Stop; names it
//   kInternal    MPI failed; has the message of MPI
// After an error only Stop and the destructor may be called.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank's values become the reduction of all of them, scaled once; the same bits on every
  // rank. With is_reproducible they are the same in every run, too.
  // reduction  the same on every rank
  virtual Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                        const Reduction& reduction) = 0;

  // Rank r gets the reduction of the counts[r] elements that begin at the sum of the counts before,
  // as AllReduce would give it.
  // input   [sum of counts] of `type`
  // output  [counts[rank()]]; may be a part of `input`
  // counts  [size(); the same on every rank]
  virtual Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input,
                                            std::byte* output, std::span<const uint64_t> counts,
                                            const Reduction& reduction) = 0;

  // The first half of an AllReduce: afterwards each rank has its part of the reduction within
  // `values`, and the rest of its values are void. GatherParts is the other half, of as many values
  // of the type. Other calls may come between, and the values may move, if none of them changes.
  // The bits may differ from those of AllReduce.
  virtual Result<CallOutcome> ReduceToParts(const CallTag& tag, const Values& values,
                                            const Reduction& reduction);
  virtual Result<CallOutcome> GatherParts(const CallTag& tag, const Values& values);

  // Concatenates the bytes of all ranks, in the order of the ranks.
  // mine   [part_bytes[rank()]]; may be its own part of `all`
  // all    [sum of part_bytes]
  // part_bytes  [size(); the same on every rank]
  virtual Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                        std::span<const uint64_t> part_bytes) = 0;

  // Copies the bytes of rank `root` to all ranks.
  // bytes  [the same size on every rank]
  virtual Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) = 0;

  // Rank r gets the r-th part of `send` of every rank, in the order of the ranks.
  // send           [sum of send_bytes]
  // send_bytes     [size()] size of the part for each rank
  // receive        [sum of receive_bytes]; not `send`
  // receive_bytes  [size()] size of the part from each rank: its send_bytes[rank()]
  virtual Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send,
                                       std::span<const uint64_t> send_bytes, MutableBytes receive,
                                       std::span<const uint64_t> receive_bytes) = 0;

  virtual Result<CallOutcome> Barrier(const CallTag& tag) = 0;

  // Memory of this rank that the other ranks of the host can read. May be empty. An AllReduce in it
  // copies nothing if all ranks reduce at the same offset.
  // Lifetime: as this object
  virtual MutableBytes registered() const { return {}; }

  // Recommended bucket size. Larger calls do not improve throughput, because their bytes leave the
  // caches between two steps. The same on every rank.
  virtual uint64_t ample_bytes() const { return kUsualAmpleBytes; }

  // The chosen algorithms by size, as lines of text. May be empty.
  virtual std::string Description() const { return {}; }

  // Whether a call may still write to its memory after it has failed.
  virtual bool writes_after_failure() const { return false; }

  // Whether the reduction of a value by AllReduce depends on the values of the ranks alone: neither
  // on its place in the call, nor on the size of the call, nor on a trial. So the bits are the same
  // in every run, and with any order, buckets and slices. The sign of a zero by kMin and kMax, and
  // the bits of a NaN, may differ. The same on every rank.
  virtual bool is_reproducible() const { return false; }

  // Ends all calls of this rank and of its peers, now and later, with kPeerFailed and this message.
  // Threads: any
  virtual void Stop(const Error& why) = 0;
};

// How a rank waits for others within a call.
enum class WaitMode : uint8_t {
  kSleep,  // yields the core a few times, then sleeps until woken: for a helper thread
  kSpin,   // polls for some microseconds, then as kSleep: for low latency if every rank has a core
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_COLLECTIVES_H_
