// lmdbio/file/format/key_order.h - the key orders that LMDB can sort by.
//
// A program can install its own comparison function, which the file does not record. Iteration and
// record numbers do not depend on the order; the lookup of a key does.
//
// Source: docs/format.md section 6.
#ifndef LMDBIO_FILE_FORMAT_KEY_ORDER_H_
#define LMDBIO_FILE_FORMAT_KEY_ORDER_H_

#include <compare>
#include <cstdint>

#include "lmdbio/base/types.h"

namespace lmdbio::file {

enum class KeyOrder : uint8_t {
  kLexical,  // memcmp; a key comes before its own extensions
  kReverse,  // the same, from the last byte backwards
  kInteger,  // native unsigned integers, both of 4 or both of 8 bytes
};

// The order of the keys, and of the duplicates of one key, from the database's persistent flags.
KeyOrder KeyOrderOf(uint16_t database_flags);
KeyOrder DuplicateOrderOf(uint16_t database_flags);

// In kInteger order LMDB requires keys of one size, 4 or 8 bytes, but does not enforce it. This
// function orders keys of different sizes by size.
std::strong_ordering CompareKeys(KeyOrder order, Bytes a, Bytes b);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_KEY_ORDER_H_
