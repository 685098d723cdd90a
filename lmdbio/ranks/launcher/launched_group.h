// lmdbio/ranks/launcher/launched_group.h - ranks that a launcher has started, as a group, without
// MPI.
//
// The ranks find each other (meeting_place.h) and connect along a tree. Collective calls go over
// these links; ranks of one host share memory without a name (group/host_memory.h). A rank that is
// killed is an error on all others.
//
// Ranks are on one host if they run under one kernel, in one network namespace and as one user:
// only such ranks can pass memory to each other.
//
// Source: docs/launchers.md.
#ifndef LMDBIO_RANKS_LAUNCHER_LAUNCHED_GROUP_H_
#define LMDBIO_RANKS_LAUNCHER_LAUNCHED_GROUP_H_

#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/launcher/launch.h"
#include "lmdbio/ranks/launcher/store_meeting.h"

namespace lmdbio::ranks {

// Collective over the ranks of the job. They meet at a port of rank 0.
// Lifetime: as of all groups. Collective calls on different groups of one process may run at the
//           same time
// Errors: kInvalidArgument    the ranks expect different numbers of ranks, or two processes have
//                             one number
//         kPeerFailed         ranks have not come within launch.limit, or have ended; names them
//         kIo                 the meeting point cannot be reached, or rank 0 can listen nowhere
//         kResourceExhausted  no descriptors, no thread
Result<std::unique_ptr<Group>> LaunchedGroup(const Launch& launch);

// As LaunchedGroup, but the ranks meet in a store of the program.
// launch  rank, size, meeting and limit count
// Errors: as above, and those of the store
Result<std::unique_ptr<Group>> LaunchedGroup(const Launch& launch, KeyValueStore store);

// The number of the next meeting of this process, from 0. All ranks of a job call it equally often.
// Threads: any
uint64_t NextMeetingNumber();

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_LAUNCHED_GROUP_H_
