// lmdbio/ranks/group/rank_names.h - the names of ranks in messages.
#ifndef LMDBIO_RANKS_GROUP_RANK_NAMES_H_
#define LMDBIO_RANKS_GROUP_RANK_NAMES_H_

#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

// "rank 3", or "rank 3 on node-7" if the group spans several hosts.
std::string RankName(const Group& group, int rank);

// Collective. [ranks] the names of all ranks, the same on each rank.
// known_as  the number of this rank in messages, if it differs from its rank here; else negative
// Errors: kInternal  MPI failed
Result<std::vector<std::string>> GatherRankNames(Group& group, int known_as);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_RANK_NAMES_H_
