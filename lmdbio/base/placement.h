// lmdbio/base/placement.h - the partition of the cores among computing, input and synchronisation.
//
// The partition is static, so threads of one part do not take cores of another. One text describes
// it. All ranks pass the same text:
//
//   ""                             nothing is pinned
//   "scp"                          the last core of the rank synchronises, the last but one reads,
//                                  all others compute
//   "compute=0-5,input=6,sync=7"   explicit cores; a part that is left out runs on any core
//   "compute=core:0-5,sync=core:7" whole cores, with all of their hyperthreads
//   "compute=numa:0,input=numa:1"  the cores of NUMA nodes
//   "compute=core:0-5,sync=near"   a free core of the NUMA node of compute
//   "compute=0-2,sync=3;compute=4-6,sync=7"   one group for each rank of a host, in rank order
//
// Numbers without a word are those of the kernel, which numbers hyperthreads. The words need the
// topology of the host, which comes from hwloc. A core that belongs to one part stays idle while
// the threads of that part sleep.
//
// Source: dissertation 6.3.3 (SCP); docs/sync.md "Cores".
#ifndef LMDBIO_BASE_PLACEMENT_H_
#define LMDBIO_BASE_PLACEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio {

// Numbers of the kernel, ascending and without repetition: of cores, or with hyperthreading of the
// hardware threads of cores.
using CoreList = std::vector<int>;

// "0-5,8"; "" for none.
std::string CoresText(std::span<const int> cores);

// Errors: kInvalidArgument  no list of numbers and ranges, as "0-5,8"
Result<CoreList> ParseCores(std::string_view text);

// One hardware thread of the host.
struct HardwareThread {
  int number = 0;  // the kernel's, as in a CoreList
  int core = 0;    // of core:N, counted through the host as lstopo does (L#)
  int node = -1;   // of numa:N, the kernel's number of the memory beside the core; -1: unknown
  friend bool operator==(const HardwareThread&, const HardwareThread&) = default;
};

// The cores that a process sees on its host.
struct HostCores {
  CoreList allowed;  // cores that this process may use, for example by a launcher's binding
  int count = 0;     // cores of the host; all core numbers are below it
  // All hardware threads. Those of a core are adjacent, and so are the cores of a NUMA node. Empty
  // if the topology is unknown.
  std::vector<HardwareThread> topology = {};
  std::string why_no_topology = {};
};

// The cores of the process at the time of the first call. Later calls return the same answer,
// because a thread that was pinned meanwhile would report only its own cores.
// Errors: kInternal  the kernel does not report the cores
Result<HostCores> ProcessCores();

// As ProcessCores, and the topology with them.
// Errors: kInternal  the kernel does not report the cores. A topology that is unknown is no error
// Cost: some tens of milliseconds for the first call
Result<HostCores> ProcessTopology();

// The topology of the host by hwloc. HWLOC_XMLFILE and HWLOC_SYNTHETIC in the environment replace
// it, as in every program that uses hwloc.
// Errors: kUnsupported  this lmdbio was built without hwloc; kInternal  hwloc failed
Result<std::vector<HardwareThread>> ReadTopology();

// The share of one rank in the cores of its host. Ranks that may use the same cores divide them.
// Ranks that a launcher has bound to other cores are not counted.
struct CoreShare {
  int rank_on_host = 0;  // among all ranks of the host
  int ranks_on_host = 1;
  int rank_on_cores = 0;  // among the ranks of the host that may use the same cores
  int ranks_on_cores = 1;
};

// A number for a set of cores, which the ranks of a host exchange.
uint64_t CoresDigest(std::span<const int> cores);

// digests  [ranks of the host, in rank order] CoresDigest of the cores that each may use
// Requires: rank_on_host < digests.size()
CoreShare PlaceAmong(int rank_on_host, std::span<const uint64_t> digests);

// The cores on which the threads of this rank may run. An empty list means any core.
struct Placement {
  CoreList compute, input, sync;
  // One line for each compromise: too few cores, cores that several parts share, parts that are far
  // from each other.
  std::vector<std::string> notes;
  // The place of each part in the topology, as "core:6, numa:0"; "" if unknown.
  std::string compute_at = {}, input_at = {}, sync_at = {};

  // "compute on cores 0-5 (core:0-5, numa:0), input on cores 6 (core:6, numa:0), sync on any core",
  // without the brackets if the topology is unknown; "" if nothing is pinned.
  std::string Describe() const;
};

// text  see above. "scp" needs three cores a rank; with fewer, three hyperthreads. With fewer of
//       these, too, nothing is pinned, so that no thread starves. A note reports either. A word
//       stands for the hardware threads that this process may use. "near" takes the last core of
//       the node that is in no other part of any group
// Errors: kInvalidArgument  malformed text; a core or node that the host does not have or that this
//                           process may not use (the message names it); near without compute, or
//                           without a free core; a number of groups that is neither one nor the
//                           number of ranks of the host
//         kUnsupported      a word, but no topology: the message says why
Result<Placement> PlaceThreads(std::string_view text, const HostCores& cores,
                               const CoreShare& place);

// Pins the calling thread, and the threads that it starts later, to `cores`. An empty list changes
// nothing.
// Errors: kInvalidArgument  the kernel allows none of the cores; the message names them
Status PinThisThread(std::span<const int> cores);

}  // namespace lmdbio
#endif  // LMDBIO_BASE_PLACEMENT_H_
