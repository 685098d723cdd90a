#include "lmdbio/file/format/meta_page.h"

#include <bit>

#include <fmt/format.h>

#include "lmdbio/file/format/load.h"
#include "lmdbio/file/format/page_header.h"

namespace lmdbio::file {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint16_t kEncryptedEnvironment = 0x2000;
constexpr uint16_t kUserFlags =
    kReverseKey | kDupSort | kIntegerKey | kDupFixed | kIntegerDup | kReverseDup;

// Meta fields, counted from the end of the page header:
//
//   0  magic u32      4  version u32    8  map address u64   16  map size u64
//  24  free list (48)                  72  main (48)
// 120  last page u64                  128  transaction u64
constexpr uint32_t kVersionAt = 4;
constexpr uint32_t kMapAddressAt = 8;
constexpr uint32_t kMapSizeAt = 16;
constexpr uint32_t kFreeListAt = 24;
constexpr uint32_t kMainAt = 72;
constexpr uint32_t kLastPageAt = 120;
constexpr uint32_t kTransactionAt = 128;
constexpr uint32_t kMetaFieldsEnd = 136;
static_assert(kMainAt == kFreeListAt + kDatabaseRecordBytes);
static_assert(kLastPageAt == kMainAt + kDatabaseRecordBytes);

bool MagicAt(Bytes head, size_t offset, uint32_t magic) {
  return head.size() >= offset + 4 && Load<uint32_t>(head, offset) == magic;
}

// The offset of the magic number shows the word size and the data version of the writer. A swapped
// magic number shows the other byte order.
constexpr size_t kMagicAt32Bit = 12;
constexpr size_t kMagicAtVersion1 = 16;
constexpr size_t kMagicAtVersion3 = 24;

Status RefuseForeign(Bytes head) {
  const uint32_t swapped = __builtin_bswap32(kMagic);
  for (const size_t at : {kMagicAt32Bit, kMagicAtVersion1, kMagicAtVersion3}) {
    if (MagicAt(head, at, swapped)) {
      return Fail(ErrorCode::kUnsupported,
                  "written on a machine of the other byte order; dump it there with mdb_dump and "
                  "load it here");
    }
  }
  if (MagicAt(head, kMagicAt32Bit, kMagic)) {
    return Fail(ErrorCode::kUnsupported,
                "written by a 32-bit LMDB; dump it with a 32-bit mdb_dump and load it here");
  }
  return Fail(ErrorCode::kCorruption, "not an LMDB data file (no magic number)");
}

Status CheckPageSize(DataVersion version, uint64_t page_size_bytes) {
  const uint32_t max = version == DataVersion::k1 ? kPageBytesMax / 2 : kPageBytesMax;
  if (page_size_bytes < kPageBytesMin || page_size_bytes > max ||
      !std::has_single_bit(page_size_bytes)) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("page 0: page size {} is not a power of two in [{}, {}]",
                            page_size_bytes, kPageBytesMin, max));
  }
  return {};
}

tl::unexpected<Error> Corrupt(std::string message) {
  return Fail(ErrorCode::kCorruption, std::move(message));
}

}  // namespace

DatabaseRecord LoadDatabaseRecord(Bytes bytes) {
  DatabaseRecord record;
  record.item_bytes = Load<uint32_t>(bytes, 0);
  record.flags = Load<uint16_t>(bytes, 4);
  record.depth = Load<uint16_t>(bytes, 6);
  record.branch_pages = Load<uint64_t>(bytes, 8);
  record.leaf_pages = Load<uint64_t>(bytes, 16);
  record.overflow_pages = Load<uint64_t>(bytes, 24);
  record.entry_count = Load<uint64_t>(bytes, 32);
  record.root = PageNo{Load<uint64_t>(bytes, 40)};
  return record;
}

Status CheckRoot(const DatabaseRecord& record, PageNo last_page) {
  if (record.empty()) {
    if (record.depth != 0) return Corrupt("root: none, but the depth is not zero");
    return {};
  }
  if (record.root.value < kMetaPageCount || record.root > last_page) {
    return Corrupt(fmt::format("root: page {} is outside [{}, {}]", record.root.value,
                               kMetaPageCount, last_page.value));
  }
  if (record.depth == 0 || record.depth > kTreeDepthMax) {
    return Corrupt(fmt::format("depth: {} is outside [1, {}]", record.depth, kTreeDepthMax));
  }
  return {};
}

// The page counters are not checked, because LMDB writes wrong ones in databases with duplicates:
// 0.9.36 and 1.0 still count pages that a deleted key returned. No allocation depends on them.
Status CheckTree(const DatabaseRecord& record, PageFormat format, PageNo last_page) {
  LMDBIO_TRY_VOID(CheckRoot(record, last_page));
  if (!record.counts_exactly()) return {};
  if (record.empty() != (record.entry_count == 0)) {
    return Corrupt(record.empty() ? "root: none, but there are entries"
                                  : "entry count: 0 in a tree with a root");
  }
  if (!RecordsFit(record.entry_count, format, last_page)) {
    return Corrupt(fmt::format("entry count: {} records do not fit into {} pages",
                               record.entry_count, last_page.value));
  }
  return {};
}

// Divides, because a forged record count or page number would let a product wrap.
bool RecordsFit(uint64_t record_count, PageFormat format, PageNo last_page) {
  return record_count / format.page_size_bytes() <= last_page.value;
}

// LMDB accepts DUPFIXED without DUPSORT and then loses the values, so such a file is refused.
Status CheckUserFlags(const DatabaseRecord& record) {
  if ((record.flags & ~kUserFlags) != 0 ||
      ((record.flags & kDupFixed) != 0 && !record.has_duplicates())) {
    return Fail(
        ErrorCode::kCorruption,
        fmt::format("flags: 0x{:x} is not a valid combination of database flags", record.flags));
  }
  return {};
}

// The offset of the magic number decides the layout. The version field behind it must agree,
// because data version 2 has the number at the same offset as version 3.
Result<PageFormat> IdentifyFile(Bytes head) {
  if (head.empty()) return Fail(ErrorCode::kCorruption, "the file is empty");
  DataVersion version = DataVersion::k1;
  size_t magic_at = kMagicAtVersion1;
  if (!MagicAt(head, magic_at, kMagic)) {
    version = DataVersion::k3;
    magic_at = kMagicAtVersion3;
    if (!MagicAt(head, magic_at, kMagic)) return Fail(RefuseForeign(head).error());
  }
  if (head.size() < magic_at + kMetaFieldsEnd) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("page 0: the file ends inside it, after {} bytes", head.size()));
  }
  const uint32_t found = Load<uint32_t>(head, magic_at + kVersionAt);
  if (found != static_cast<uint32_t>(version)) {
    if (version == DataVersion::k3 && found == 2) {
      return Fail(ErrorCode::kUnsupported,
                  "data version 2 (the unreleased LMDB 0.9.90); copy it to LMDB 0.9 or 1.0 with "
                  "the library that wrote it");
    }
    return Fail(ErrorCode::kUnsupported,
                fmt::format("data version {} is unknown; expected 1 or 3", found));
  }
  const DatabaseRecord free_list =
      LoadDatabaseRecord(head.subspan(magic_at + kFreeListAt, kDatabaseRecordBytes));
  LMDBIO_TRY_VOID(CheckPageSize(version, free_list.item_bytes));
  if (version == DataVersion::k3 && (free_list.flags & kEncryptedEnvironment) != 0) {
    return Fail(ErrorCode::kUnsupported, "encrypted files are not supported");
  }
  return PageFormat(version, free_list.item_bytes);
}

Result<MetaPage> ParseMetaPage(PageFormat format, Bytes bytes, PageNo page_no) {
  LMDBIO_TRY(const PageHeader header, ParsePageHeader(format, bytes, page_no));
  const auto corrupt = [&](std::string message) {
    return Fail(ErrorCode::kCorruption, fmt::format("page {}: {}", page_no.value, message));
  };
  // IdentifyFile has seen page 0 only. Page 1 must agree with it, because pages are parsed with one
  // format.
  const Bytes fields = bytes.subspan(format.header_bytes());
  if (fields.size() < kMetaFieldsEnd) return corrupt("too short for a meta page");
  if (header.kind != PageKind::kMeta) return corrupt("is not a meta page");
  if (Load<uint32_t>(fields, 0) != kMagic) return corrupt("has no magic number");
  if (Load<uint32_t>(fields, kVersionAt) != static_cast<uint32_t>(format.version())) {
    return corrupt(
        fmt::format("data version {} differs from page 0", Load<uint32_t>(fields, kVersionAt)));
  }
  MetaPage meta;
  meta.page_no = page_no;
  meta.map_address = Load<uint64_t>(fields, kMapAddressAt);
  meta.map_size_bytes = Load<uint64_t>(fields, kMapSizeAt);
  meta.free_list = LoadDatabaseRecord(fields.subspan(kFreeListAt, kDatabaseRecordBytes));
  meta.main = LoadDatabaseRecord(fields.subspan(kMainAt, kDatabaseRecordBytes));
  meta.last_page = PageNo{Load<uint64_t>(fields, kLastPageAt)};
  meta.transaction_id = Load<uint64_t>(fields, kTransactionAt);
  if (meta.page_size_bytes() != format.page_size_bytes()) {
    return corrupt(fmt::format("page size {} differs from page 0's {}", meta.page_size_bytes(),
                               format.page_size_bytes()));
  }
  // Transaction n writes meta page n mod 2; a fresh environment has transaction 0 in both.
  if (meta.transaction_id != 0 && (meta.transaction_id & 1) != page_no.value) {
    return corrupt(
        fmt::format("transaction {} belongs in the other meta page", meta.transaction_id));
  }
  if (meta.last_page.value < kMetaPageCount - 1) {
    return corrupt(
        fmt::format("last page {} lies before the end of the meta pages", meta.last_page.value));
  }
  return meta;
}

Status CheckNoChecksums(PageFormat format, Bytes tail) {
  if (format.version() == DataVersion::k3 && Load<uint16_t>(tail, 0) != 0) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("pages with checksums of {} bytes are not supported", Load<uint16_t>(tail, 0)));
  }
  return {};
}

}  // namespace lmdbio::file
