// tools/make/make_digits.h - `lmdbio-make digits`: 1,797 handwritten digits that are built into the
// program.
#ifndef LMDBIO_TOOLS_MAKE_MAKE_DIGITS_H_
#define LMDBIO_TOOLS_MAKE_MAKE_DIGITS_H_

#include "tools/cli/cli.h"

namespace lmdbio::tools {

Command DigitsCommand();

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_MAKE_DIGITS_H_
