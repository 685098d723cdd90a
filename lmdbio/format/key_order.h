// lmdbio/format/key_order.h - the orders that LMDB itself can sort by.
//
// A program may have installed an order of its own, which the file does not record. Iteration and
// ordinals do not depend on the order; looking up a key does.
//
// Source: docs/format.md section 6.
#ifndef LMDBIO_FORMAT_KEY_ORDER_H_
#define LMDBIO_FORMAT_KEY_ORDER_H_

#include <compare>
#include <cstdint>

#include "lmdbio/base/types.h"

namespace lmdbio::format {

enum class KeyOrder : uint8_t {
  kLexical,  // memcmp; the shorter of two that agree comes first
  kReverse,  // the same from the last byte backwards
  kInteger,  // native unsigned integers, both of 4 or both of 8 bytes
};

// The order of the keys, and of the duplicates of one key, by a database's persistent flags.
KeyOrder KeyOrderOf(uint16_t database_flags);
KeyOrder DuplicateOrderOf(uint16_t database_flags);

// In kInteger order LMDB asks for keys of one size, 4 or 8 bytes, but does not enforce it; of two
// unequal sizes the shorter comes first here.
std::strong_ordering CompareKeys(KeyOrder order, Bytes a, Bytes b);

}  // namespace lmdbio::format
#endif  // LMDBIO_FORMAT_KEY_ORDER_H_
