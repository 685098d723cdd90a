// lmdbio/file/format/load.h - unaligned reads of the writer's native integers.
//
// Structures inside LMDB pages are unaligned when a key has an odd size. So every number is copied
// out with memcpy, and no pointer into a page is cast.
#ifndef LMDBIO_FILE_FORMAT_LOAD_H_
#define LMDBIO_FILE_FORMAT_LOAD_H_

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

#include "lmdbio/base/check.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

static_assert(std::endian::native == std::endian::little || std::endian::native == std::endian::big,
              "LMDB stores native integers; hosts with mixed byte order are not supported");

// Requires: offset + sizeof(T) <= bytes.size()
template <std::unsigned_integral T>
T Load(Bytes bytes, size_t offset) {
  LMDBIO_DCHECK(offset <= bytes.size() && sizeof(T) <= bytes.size() - offset);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_LOAD_H_
