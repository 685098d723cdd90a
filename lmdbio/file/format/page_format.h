// lmdbio/file/format/page_format.h - the sizes and offsets that the pages of one data file obey.
//
// The library reads two layouts: data version 1 (every LMDB 0.9.x) and data version 3 (LMDB 1.0).
// They differ in the constants of this header, so that one set of page parsers serves both.
//
// Source: docs/format.md sections 1 and 5.
#ifndef LMDBIO_FILE_FORMAT_PAGE_FORMAT_H_
#define LMDBIO_FILE_FORMAT_PAGE_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lmdbio::file {

enum class DataVersion : uint32_t {
  k1 = 1,  // LMDB 0.9.x
  k3 = 3,  // LMDB 1.0.x
};

inline constexpr uint32_t kPageBytesMin = 512;
inline constexpr uint32_t kPageBytesMax = 65536;
inline constexpr uint32_t kMetaPageCount = 2;  // pages 0 and 1
inline constexpr uint32_t kTreeDepthMax = 32;  // the writer's cursor stack
inline constexpr uint32_t kNodeHeaderBytes = 8;
inline constexpr uint32_t kSlotBytes = 2;  // one entry of a page's pointer table
inline constexpr uint32_t kDatabaseRecordBytes = 48;

// Value type; every function is O(1).
class PageFormat {
 public:
  // Requires: page_size_bytes is a power of two in [kPageBytesMin, kPageBytesMax]
  constexpr PageFormat(DataVersion version, uint32_t page_size_bytes)
      : version_(version),
        page_size_bytes_(page_size_bytes),
        page_shift_(static_cast<uint32_t>(std::countr_zero(page_size_bytes))) {}

  constexpr DataVersion version() const { return version_; }
  constexpr uint32_t page_size_bytes() const { return page_size_bytes_; }

  // The number of whole pages before a file offset, which is the number of the page there. A shift:
  // a division would show in the time of a record.
  constexpr uint64_t PagesBefore(uint64_t offset) const { return offset >> page_shift_; }

  // Size of the page header. The second and later pages of an overflow run have none.
  constexpr uint32_t header_bytes() const { return version_ == DataVersion::k1 ? 16 : 24; }

  // The offset in the page from which the `lower`, `upper` and slot fields count.
  constexpr uint32_t pointer_base() const { return version_ == DataVersion::k1 ? 0 : 24; }

  // The largest leaf node (header + key + value) that keeps its value inside the page.
  constexpr uint32_t node_bytes_max() const {
    return (((page_size_bytes_ - header_bytes()) / 2) & ~1U) - kSlotBytes;
  }

  // Offset of a leaf node's data from the start of the node.
  constexpr uint64_t data_offset(uint64_t key_bytes) const {
    return kNodeHeaderBytes + (version_ == DataVersion::k1 ? key_bytes : Even(key_bytes));
  }

  // Size of the reference that a leaf node holds in place of an overflow value: the page number
  // (version 1), or page number, transaction and page count (version 3).
  constexpr uint32_t overflow_reference_bytes() const {
    return version_ == DataVersion::k1 ? 8 : 24;
  }

  // True if a value of this size is moved out to overflow pages.
  constexpr bool IsOverflow(uint64_t key_bytes, uint64_t value_bytes) const {
    return data_offset(key_bytes) + value_bytes > node_bytes_max();
  }

  // Bytes of page that a leaf node takes, its slot not counted; even. `value_bytes` is the size of
  // the node's data: the value, a sub-page, a database record or an overflow reference.
  constexpr uint64_t LeafNodeBytes(uint64_t key_bytes, uint64_t value_bytes) const {
    return Even(data_offset(key_bytes) + value_bytes);
  }

  // Bytes of page that a branch node takes, its slot not counted; even.
  constexpr uint64_t BranchNodeBytes(uint64_t key_bytes) const {
    return Even(kNodeHeaderBytes + key_bytes);
  }

  // Pages of the overflow run that holds a value.
  constexpr uint64_t OverflowPageCount(uint64_t value_bytes) const {
    return PagesBefore(header_bytes() - 1 + value_bytes) + 1;
  }

  static constexpr uint64_t Even(uint64_t n) { return (n + 1) & ~uint64_t{1}; }

  friend constexpr bool operator==(const PageFormat&, const PageFormat&) = default;

 private:
  DataVersion version_;
  uint32_t page_size_bytes_;
  uint32_t page_shift_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_PAGE_FORMAT_H_
