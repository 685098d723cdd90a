// tools/make/make_synthetic.h - `lmdbio-make synthetic`: pseudo-random records for measurements and
// tests.
#ifndef LMDBIO_TOOLS_MAKE_MAKE_SYNTHETIC_H_
#define LMDBIO_TOOLS_MAKE_MAKE_SYNTHETIC_H_

#include "tools/cli/cli.h"

namespace lmdbio::tools {

Command SyntheticCommand();

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_MAKE_SYNTHETIC_H_
