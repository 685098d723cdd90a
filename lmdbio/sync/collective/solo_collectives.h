// lmdbio/sync/collective/solo_collectives.h - the collectives of one rank, who has nobody to ask.
#ifndef LMDBIO_SYNC_COLLECTIVE_SOLO_COLLECTIVES_H_
#define LMDBIO_SYNC_COLLECTIVE_SOLO_COLLECTIVES_H_

#include <memory>

#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

std::unique_ptr<Collectives> SoloCollectives();

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_COLLECTIVE_SOLO_COLLECTIVES_H_
