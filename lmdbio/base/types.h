// lmdbio/base/types.h - types that all rooms share: page numbers, record numbers, extents.
#ifndef LMDBIO_BASE_TYPES_H_
#define LMDBIO_BASE_TYPES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lmdbio {

// Borrowed, read-only memory.
using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// A container that its owner gives up, such as a vector returned by a call. A function that keeps a
// view of an argument deletes its overload for such a container, because the view would outlive the
// elements. (A reference type has no member types, so an lvalue does not satisfy the concept.)
template <typename T>
concept TemporaryContainer = requires {
  typename T::allocator_type;
};

// The number of a page of a data file. Page p starts at byte p * page_size_bytes.
struct PageNo {
  uint64_t value = 0;
  friend constexpr auto operator<=>(PageNo, PageNo) = default;
};

// Record i is the i-th in key order of its database, 0 <= i < entry count. A key with d duplicates
// counts as d records.
struct RecordIndex {
  uint64_t value = 0;
  friend constexpr auto operator<=>(RecordIndex, RecordIndex) = default;
};

// Consecutive bytes of the data file.
struct Extent {
  uint64_t offset = 0;  // bytes from the start of the file
  uint64_t length_bytes = 0;
  friend constexpr bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_TYPES_H_
