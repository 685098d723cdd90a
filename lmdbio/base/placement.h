// lmdbio/base/placement.h - which cores compute, which read, and which synchronise.
//
// A static partition of the cores that this process may use, so that the threads of one part do
// not take the cores of another. One text says it, the same on every rank:
//
//   ""                             nothing is pinned
//   "scp"                          of this rank's cores the last one synchronises, the one before
//                                  reads, all others compute
//   "compute=0-5,input=6,sync=7"   as it says; a part that is left out runs anywhere
//   "compute=0-2,sync=3;compute=4-6,sync=7"   a group for each rank of a host, in their order
//
// A core that is given away is lost to the others also while its threads sleep.
//
// Source: dissertation 6.3.3 (SCP).
#ifndef LMDBIO_BASE_PLACEMENT_H_
#define LMDBIO_BASE_PLACEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio {

// In ascending order, each once. As the kernel numbers them.
using CoreList = std::vector<int>;

// "0-5,8"; "" for none.
std::string CoresText(std::span<const int> cores);

// Errors: kInvalidArgument  no list of numbers and ranges, as "0-5,8"
Result<CoreList> ParseCores(std::string_view text);

// What a process finds on its host.
struct HostCores {
  CoreList allowed;  // that this process may use, as by a launcher's binding
  int count = 0;     // that the host has; their numbers are below
};

// Of the process, as they were when this was first called: threads that were pinned since inherit
// their cores to those they start.
// Errors: kInternal  the kernel does not say
Result<HostCores> ProcessCores();

// The ranks of a host that may use the same cores share them. Ranks that a launcher has bound to
// cores of their own have no part in that.
struct CoreShare {
  int rank_on_host = 0;  // among all ranks of the host
  int ranks_on_host = 1;
  int rank_on_cores = 0;  // among those ranks of the host that may use the same cores
  int ranks_on_cores = 1;
};

// A number for a set of cores, to tell the other ranks of the host.
uint64_t CoresDigest(std::span<const int> cores);

// digests  [ranks of the host, in their order] of what each may use
// Requires: rank_on_host < digests.size()
CoreShare PlaceAmong(int rank_on_host, std::span<const uint64_t> digests);

// Where the threads of this rank may run. An empty list: anywhere.
struct Placement {
  CoreList compute, input, sync;
  // A line for each compromise: cores that are too few, or that several share.
  std::vector<std::string> notes;

  // "compute on cores 0-5, input on cores 6, sync on any core"; "" where nothing is pinned.
  std::string Describe() const;
};

// text  see above. With fewer cores than "scp" needs, which is three, nothing is pinned, and a
//       note says so: no thread is to starve
// Errors: kInvalidArgument  none of the above; a core that the host does not have or that this
//                           process may not use: names it; another number of groups than one or the
//                           host's ranks
Result<Placement> PlaceThreads(std::string_view text, const HostCores& cores,
                               const CoreShare& place);

// From now on the calling thread, and those it starts, run on these cores only. None: does nothing.
// Errors: kInvalidArgument  the kernel does not allow any of them; names them
Status PinThisThread(std::span<const int> cores);

}  // namespace lmdbio
#endif  // LMDBIO_BASE_PLACEMENT_H_
