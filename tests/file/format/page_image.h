// tests/file/format/page_image.h - builds a page node by node, so that a test can damage it.
#ifndef LMDBIO_TESTS_FILE_FORMAT_PAGE_IMAGE_H_
#define LMDBIO_TESTS_FILE_FORMAT_PAGE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/format/page_header.h"

namespace lmdbio::test {

// Builds branch and leaf pages of either data version as LMDB would, node by node.
class PageImage {
 public:
  static constexpr uint16_t kBranch = 0x01;
  static constexpr uint16_t kLeaf = 0x02;

  PageImage(file::PageFormat format, uint64_t page_no, uint16_t flags)
      : format_(format), bytes_(format.page_size_bytes()) {
    const uint32_t base = format.pointer_base();
    Set<uint64_t>(0, page_no);
    Set<uint16_t>(flags_at(), flags);
    Set<uint16_t>(lower_at(), static_cast<uint16_t>(format.header_bytes() - base));
    Set<uint16_t>(upper_at(), static_cast<uint16_t>(format.page_size_bytes() - base));
  }

  // Adds a leaf node: lo and hi hold the size of the value.
  PageImage& Put(std::string_view key, std::string_view value, uint16_t flags = 0) {
    const auto size = static_cast<uint32_t>(value.size());
    const size_t node_bytes = format_.LeafNodeBytes(key.size(), value.size());
    const size_t at = AddNode(node_bytes, static_cast<uint16_t>(size),
                              static_cast<uint16_t>(size >> 16), flags, key);
    std::memcpy(&bytes_[at + format_.data_offset(key.size())], value.data(), value.size());
    return *this;
  }

  // Adds a branch node.
  PageImage& PutChild(std::string_view key, uint64_t child) {
    AddNode(format_.BranchNodeBytes(key.size()), static_cast<uint16_t>(child),
            static_cast<uint16_t>(child >> 16), static_cast<uint16_t>(child >> 32), key);
    return *this;
  }

  template <typename T>
  PageImage& Set(size_t at, T value) {
    std::memcpy(&bytes_[at], &value, sizeof(T));
    return *this;
  }
  template <typename T>
  T Get(size_t at) const {
    T value;
    std::memcpy(&value, &bytes_[at], sizeof(T));
    return value;
  }

  size_t flags_at() const { return format_.header_bytes() - 6; }
  size_t lower_at() const { return format_.header_bytes() - 4; }
  size_t upper_at() const { return format_.header_bytes() - 2; }
  size_t slot_at(size_t index) const { return format_.header_bytes() + 2 * index; }
  // The offset of node `index` in the page.
  size_t node_at(size_t index) const {
    return Get<uint16_t>(slot_at(index)) + size_t{format_.pointer_base()};
  }

  Bytes bytes() const { return bytes_; }
  file::PageFormat format() const { return format_; }

 private:
  size_t AddNode(size_t node_bytes, uint16_t lo, uint16_t hi, uint16_t flags,
                 std::string_view key) {
    const auto upper = static_cast<uint16_t>(Get<uint16_t>(upper_at()) - node_bytes);
    const auto lower = Get<uint16_t>(lower_at());
    Set<uint16_t>(size_t{lower} + format_.pointer_base(), upper);
    Set<uint16_t>(upper_at(), upper);
    Set<uint16_t>(lower_at(), static_cast<uint16_t>(lower + 2));
    const size_t at = size_t{upper} + format_.pointer_base();
    Set<uint16_t>(at, lo);
    Set<uint16_t>(at + 2, hi);
    Set<uint16_t>(at + 4, flags);
    Set<uint16_t>(at + 6, static_cast<uint16_t>(key.size()));
    std::memcpy(&bytes_[at + 8], key.data(), key.size());
    return at;
  }

  file::PageFormat format_;
  std::vector<std::byte> bytes_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_FORMAT_PAGE_IMAGE_H_
