// lmdbio/load/loader/host_member.h - the position of this rank in its job and on its host.
//
// Source: docs/loader.md "Ranks".
#ifndef LMDBIO_LOAD_LOADER_HOST_MEMBER_H_
#define LMDBIO_LOAD_LOADER_HOST_MEMBER_H_

#include <cstddef>
#include <memory>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/slots/slot_planner.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

// Found once, when a loader opens; does not change afterwards.
struct HostMember {
  // Splits the job into hosts, chooses the readers of each host, and gives this rank its cores.
  //
  // notes  gets the remarks of the core placement
  // Errors: kInvalidArgument  options.placement names a core that this process may not use
  //         kPeerFailed       another rank failed; kInternal  MPI failed
  // Collective: over `group`
  static Result<HostMember> Find(ranks::Group& group, const LoaderOptions& options, Notes& notes);

  // A reader has a thread that reads for its host.
  bool is_reader() const { return reader_index >= 0; }

  std::unique_ptr<ranks::Group> host;  // the ranks of this host
  HostRanks ranks;
  int rank = 0;              // among the ranks of all shards
  size_t local_index = 0;    // among the ranks of this host
  int reader_index = -1;     // among the readers of this host; -1: this rank does not read
  int reader_count = 1;      // of this host
  bool is_only_host = true;  // the job has no other host
  Placement placement;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_HOST_MEMBER_H_
