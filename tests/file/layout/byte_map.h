// tests/file/layout/byte_map.h - the role of every byte of a sound data file.
//
// A test that damages a file derives the allowed effect from the role: no effect for an unused
// byte, another key or value for a payload byte, an error for a byte of structure.
#ifndef LMDBIO_TESTS_FILE_LAYOUT_BYTE_MAP_H_
#define LMDBIO_TESTS_FILE_LAYOUT_BYTE_MAP_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/file/format/page_header.h"
#include "lmdbio/file/layout/database.h"

namespace lmdbio::test {

enum class ByteRole : uint8_t {
  kUnused,      // free space, pages of no tree, padding, fields without meaning on their page
  kPayload,     // keys and values, names of databases
  kLookup,      // keys of branch pages, read by key lookups only
  kMeta,        // fields of both meta pages
  kTreeHeader,  // of branch and leaf pages
  kRunHeader,   // of overflow runs
  kSubPageHeader,
  kSlot,
  kBranchNode,  // the eight bytes before the key: child and key size
  kNodeSizes,   // of a leaf's node: key size and data size
  kNodeFlags,
  kReference,   // to an overflow run
  kTreeRecord,  // the record of a named database or of a duplicate tree, in a node
};
inline constexpr size_t kByteRoleCount = 13;

std::string_view ByteRoleName(ByteRole role);

// Payload and unused bytes carry no structure.
inline bool IsStructure(ByteRole role) {
  return role != ByteRole::kUnused && role != ByteRole::kPayload;
}

// A page number somewhere in the file.
struct PageField {
  enum class Names : uint8_t { kChild, kRun, kRoot };
  uint64_t offset = 0;  // in the file
  Names names = Names::kChild;
  uint32_t owner = 0;  // number of the database that uses the named page
  // Bytes of the field; in a branch node the number has 48 bits.
  uint64_t size_bytes() const { return names == Names::kChild ? 6 : 8; }
};

// A node of a branch or leaf page or of a sub-page.
struct NodePlace {
  uint64_t offset = 0;          // in the file, of its eight bytes
  uint64_t run_page_count = 0;  // of the overflow run it refers to, from the header of the run
};

class ByteMap {
 public:
  // Maps the file behind `environment`. Throws std::runtime_error if it is not sound.
  explicit ByteMap(const file::Environment& environment);

  ByteRole role(uint64_t offset) const { return roles_[offset]; }
  uint64_t size_bytes() const { return roles_.size(); }

  // Offsets of all bytes of a role, ascending.
  const std::vector<uint64_t>& offsets(ByteRole role) const {
    return offsets_[static_cast<size_t>(role)];
  }
  // The last node that starts at or before `offset`.
  const NodePlace& NodeAt(uint64_t offset) const;

  // The page numbers stored in the trees, sorted by offset.
  const std::vector<PageField>& page_fields() const { return page_fields_; }
  // First pages of overflow runs in use.
  const std::vector<PageNo>& runs() const { return runs_; }

  // Whether a tree or a value of the snapshot uses the page.
  bool IsLive(PageNo page) const { return OwnerOf(page) != kNobody; }
  // Whether database `owner` uses the page.
  bool IsOf(uint32_t owner, PageNo page) const { return OwnerOf(page) == owner; }
  // Whether the entry count of the database may be wrong in a sound file.
  bool CountIsLoose(uint32_t owner) const { return loose_counts_[owner]; }

 private:
  static constexpr uint32_t kNobody = 0;
  static constexpr uint32_t kMetas = 1;

  uint32_t OwnerOf(PageNo page) const {
    return page.value < owners_.size() ? owners_[page.value] : kNobody;
  }
  void MarkMetas();
  void MarkDatabase(uint64_t record_at);
  void MarkTree(uint64_t record_at);
  void MarkTreePage(PageNo page_no, uint32_t item_bytes);
  void MarkNodes(uint64_t base, Bytes page, const file::PageHeader& header, uint32_t item_bytes);
  void MarkLeafNode(uint64_t base, const file::LeafPage& leaf, uint32_t index);
  void MarkRun(uint64_t node_offset, const file::LeafPage& leaf, const file::LeafEntry& entry);
  void MarkSubPage(uint64_t at, Bytes sub_page, PageNo around);
  void MarkHeader(uint64_t at, ByteRole role);
  void Mark(uint64_t offset, uint64_t length_bytes, ByteRole role);
  Bytes Read(uint64_t offset, uint64_t length_bytes);

  file::PageFormat format_;
  std::vector<std::byte> file_;
  std::vector<ByteRole> roles_;  // [file size]
  std::vector<uint64_t> offsets_[kByteRoleCount];
  std::vector<uint32_t> owners_;  // [page count] kNobody, kMetas, or the number of a database
  uint32_t owner_ = kMetas;       // of the bytes being marked
  std::vector<bool> loose_counts_{false, false};  // [owner]
  std::vector<NodePlace> nodes_;                  // by offset
  std::vector<PageField> page_fields_;
  std::vector<PageNo> runs_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_LAYOUT_BYTE_MAP_H_
