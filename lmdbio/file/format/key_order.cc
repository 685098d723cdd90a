#include "lmdbio/file/format/key_order.h"

#include <algorithm>
#include <cstring>

#include "lmdbio/file/format/load.h"
#include "lmdbio/file/format/meta_page.h"

namespace lmdbio::file {
namespace {

std::strong_ordering CompareLexical(Bytes a, Bytes b) {
  const size_t common = std::min(a.size(), b.size());
  const int difference = common == 0 ? 0 : std::memcmp(a.data(), b.data(), common);
  if (difference != 0) return difference <=> 0;
  return a.size() <=> b.size();
}

std::strong_ordering CompareReverse(Bytes a, Bytes b) {
  const auto [at_a, at_b] = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  // As in the lexical order, a key comes before the keys that extend it, here at their front.
  if (at_a != a.rend() && at_b != b.rend()) return *at_a <=> *at_b;
  return a.size() <=> b.size();
}

std::strong_ordering CompareInteger(Bytes a, Bytes b) {
  if (a.size() == 8 && b.size() == 8) return Load<uint64_t>(a, 0) <=> Load<uint64_t>(b, 0);
  if (a.size() == 4 && b.size() == 4) return Load<uint32_t>(a, 0) <=> Load<uint32_t>(b, 0);
  // LMDB requires 4 or 8 bytes but does not enforce it. Comparing the size first and then the value
  // gives a total order over keys of any size.
  if (a.size() != b.size()) return a.size() <=> b.size();
  return std::endian::native == std::endian::little ? CompareReverse(a, b) : CompareLexical(a, b);
}

}  // namespace

// As in LMDB, REVERSEKEY wins over INTEGERKEY, and INTEGERDUP over REVERSEDUP.
KeyOrder KeyOrderOf(uint16_t database_flags) {
  if ((database_flags & kReverseKey) != 0) return KeyOrder::kReverse;
  return (database_flags & kIntegerKey) != 0 ? KeyOrder::kInteger : KeyOrder::kLexical;
}

KeyOrder DuplicateOrderOf(uint16_t database_flags) {
  if ((database_flags & kIntegerDup) != 0) return KeyOrder::kInteger;
  return (database_flags & kReverseDup) != 0 ? KeyOrder::kReverse : KeyOrder::kLexical;
}

std::strong_ordering CompareKeys(KeyOrder order, Bytes a, Bytes b) {
  switch (order) {
    case KeyOrder::kReverse:
      return CompareReverse(a, b);
    case KeyOrder::kInteger:
      return CompareInteger(a, b);
    case KeyOrder::kLexical:
      break;
  }
  return CompareLexical(a, b);
}

}  // namespace lmdbio::file
