// A provenance file in memory owns its lists of sizes.
#include "lmdbio/file/provenance/provenance.h"

namespace lmdbio::file {

Provenance DecodeIt();

size_t PackedBytes() {
#ifdef LMDBIO_BAD
  const SizeDescription& sizes = DecodeIt().key_sizes();
#else
  const Provenance provenance = DecodeIt();
  const SizeDescription& sizes = provenance.key_sizes();
#endif
  return sizes.packed.size();
}

}  // namespace lmdbio::file
