// A ByteReader keeps a view of its bytes.
#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::file {

uint32_t FirstNumber(ByteWriter& out) {
#ifdef LMDBIO_BAD
  ByteReader in(out.Take());
#else
  const std::vector<std::byte> bytes = out.Take();
  ByteReader in(bytes);
#endif
  return in.Get<uint32_t>();
}

}  // namespace lmdbio::file
