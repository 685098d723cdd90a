// tools/make/digits_data.h - the handwritten digits that are built into the program.
#ifndef LMDBIO_TOOLS_MAKE_DIGITS_DATA_H_
#define LMDBIO_TOOLS_MAKE_DIGITS_DATA_H_

#include <cstddef>

namespace lmdbio::tools {

// The bytes of tests/data/digits/digits.csv.gz. tools/make/embed_file.cmake embeds them.
extern const unsigned char kDigitsData[];
extern const size_t kDigitsDataBytes;

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_DIGITS_DATA_H_
