// lmdbio/api/c/launch_group.h - the group of ranks that a launcher has started, for C callers.
#ifndef LMDBIO_API_C_LAUNCH_GROUP_H_
#define LMDBIO_API_C_LAUNCH_GROUP_H_

#include <memory>

#include "lmdbio/api/c/lmdbio.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/launcher/launch.h"

namespace lmdbio::api {

// The rank of this process and the number of ranks.
// launch  null: from the environment
// Errors: kInvalidArgument  as lmdbio_launch_rank; an incomplete struct
//         kUnsupported      a byte is set that this version does not know
Result<ranks::Launch> LaunchOf(const lmdbio_launch* launch);

// Collective. Lets the ranks meet.
// Errors: as LaunchOf, and those of ranks::LaunchedGroup
Result<std::unique_ptr<ranks::Group>> GroupOf(const lmdbio_launch* launch);

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_LAUNCH_GROUP_H_
