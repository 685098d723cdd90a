// lmdbio/collective/solo_collectives.h - the collectives of one rank, who has nobody to ask.
#ifndef LMDBIO_COLLECTIVE_SOLO_COLLECTIVES_H_
#define LMDBIO_COLLECTIVE_SOLO_COLLECTIVES_H_

#include <memory>

#include "lmdbio/collective/collectives.h"

namespace lmdbio::collective {

std::unique_ptr<Collectives> SoloCollectives();

}  // namespace lmdbio::collective
#endif  // LMDBIO_COLLECTIVE_SOLO_COLLECTIVES_H_
