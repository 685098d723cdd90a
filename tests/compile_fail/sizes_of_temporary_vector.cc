// A column of sizes keeps a view of them.
#include <vector>

#include "lmdbio/file/provenance/replay.h"

namespace lmdbio::file {

std::vector<uint32_t> MeasureKeys();

uint32_t FirstSize() {
#ifdef LMDBIO_BAD
  const SizeColumn sizes = SizeColumn::Each(MeasureKeys());
#else
  const std::vector<uint32_t> measured = MeasureKeys();
  const SizeColumn sizes = SizeColumn::Each(measured);
#endif
  return sizes[0];
}

}  // namespace lmdbio::file
