// bench/sync/wire/paced_wire.h - a wire that is as slow as a network of a given rate and delay.
//
// Each rank counts as a host of its own. Its network sends one message after the other at the rate,
// and receives so, too. A message arrives a set time after it was sent. Another wire carries the
// messages as fast as it can, each behind the time at which it leaves. The paced wire keeps back
// the news that a message was sent, or has arrived, until its time.
//
// No thread belongs to it: time passes in the calls, asleep, while the other wire goes on. So all
// ranks must have one clock: they run on one machine, also if as emulated hosts. And the other wire
// must be faster than the paced one.
#ifndef LMDBIO_BENCH_SYNC_WIRE_PACED_WIRE_H_
#define LMDBIO_BENCH_SYNC_WIRE_PACED_WIRE_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/collective/wire.h"

namespace lmdbio::bench {

struct WirePace {
  double bits_per_s = 0;  // of each rank, each way; 0: no limit
  std::chrono::nanoseconds delay{0};
};

// One direction of the network of a host.
class PacedLink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit PacedLink(double bits_per_s) : bits_per_s_(bits_per_s) {}

  struct Passage {
    Time begin;
    Time end;
  };
  // The next time in which so many bytes pass, behind all before, and not before `earliest`.
  Passage Reserve(Time earliest, uint64_t bytes);

 private:
  const double bits_per_s_;
  Time free_;
};

// Threads: as the inner wire
std::unique_ptr<sync::Wire> MakePacedWire(std::unique_ptr<sync::Wire> inner, const WirePace& pace);

// Measured times of a wire.
struct WireFigures {
  double ping_us = 0;     // of 8 bytes from a rank to the next one
  double bits_per_s = 0;  // of each rank, each way, in messages of 256 KiB while all ranks send
};

// Collective over the ranks of the wire. Requires: at least 2 of them
// Errors: as Wire
Result<WireFigures> MeasureWire(sync::Wire& wire);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_WIRE_PACED_WIRE_H_
