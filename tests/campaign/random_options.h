// tests/campaign/random_options.h - options of a loader, drawn at random: most are valid together,
// some contradict each other and must be refused.
#ifndef LMDBIO_TESTS_CAMPAIGN_RANDOM_OPTIONS_H_
#define LMDBIO_TESTS_CAMPAIGN_RANDOM_OPTIONS_H_

#include "lmdbio/load/plan/options.h"
#include "tests/support/random.h"

namespace lmdbio::test {

// Options that say nothing of the work, such as placement, keep their defaults, and so do those
// that may write: layout_cache is "off".
load::LoaderOptions RandomOptions(Random& random);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_RANDOM_OPTIONS_H_
