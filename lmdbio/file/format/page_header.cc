#include "lmdbio/file/format/page_header.h"

#include <optional>

#include <fmt/format.h>

#include "lmdbio/file/format/load.h"

namespace lmdbio::file {
namespace {

// Flags, the u16 at header_bytes - 6:
constexpr uint16_t kBranchFlag = 0x01;
constexpr uint16_t kLeafFlag = 0x02;
constexpr uint16_t kOverflowFlag = 0x04;
constexpr uint16_t kMetaFlag = 0x08;
constexpr uint16_t kDirtyFlag = 0x10;  // version 1; at rest it remains in sub-pages only
constexpr uint16_t kFixedFlag = 0x20;
constexpr uint16_t kSubPageFlag = 0x40;

// Counted from the end of the header, its last fields have the same offsets in both versions:
//
//   version 1:  page u64 @0                     pad u16 @8   flags @10  lower @12  upper @14
//   version 3:  page u64 @0  transaction u64 @8 pad u16 @16  flags @18  lower @20  upper @22
//
// In an overflow page a u32 page count takes the place of lower and upper.
struct RawHeader {
  uint16_t pad, flags, lower, upper;
  uint32_t page_count;
};

RawHeader LoadRaw(PageFormat format, Bytes bytes) {
  const uint32_t end = format.header_bytes();
  return {Load<uint16_t>(bytes, end - 8), Load<uint16_t>(bytes, end - 6),
          Load<uint16_t>(bytes, end - 4), Load<uint16_t>(bytes, end - 2),
          Load<uint32_t>(bytes, end - 4)};
}

// The flags must match a kind exactly. A page with one more bit is damaged, or of a format that
// this library does not know.
std::optional<PageKind> KindOf(uint16_t flags) {
  switch (flags) {
    case kBranchFlag:
      return PageKind::kBranch;
    case kLeafFlag:
      return PageKind::kLeaf;
    case kLeafFlag | kFixedFlag:
      return PageKind::kFixedLeaf;
    case kOverflowFlag:
      return PageKind::kOverflow;
    case kMetaFlag:
      return PageKind::kMeta;
    default:
      return std::nullopt;
  }
}

PageHeader Decode(PageFormat format, const RawHeader& raw, PageKind kind, PageNo page_no) {
  PageHeader header;
  header.page_no = page_no;
  header.kind = kind;
  header.item_bytes = raw.pad;
  header.lower_bytes = raw.lower + format.pointer_base();
  header.upper_bytes = raw.upper + format.pointer_base();
  header.run_page_count = raw.page_count;
  return header;
}

tl::unexpected<Error> Corrupt(PageNo page_no, std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("page {}: {}", page_no.value, what));
}

}  // namespace

std::string_view PageKindName(PageKind kind) {
  switch (kind) {
    case PageKind::kBranch:
      return "branch";
    case PageKind::kLeaf:
      return "leaf";
    case PageKind::kFixedLeaf:
      return "fixed-size leaf";
    case PageKind::kOverflow:
      return "overflow";
    case PageKind::kMeta:
      return "meta";
  }
  return "unknown";
}

Result<PageHeader> ParsePageHeader(PageFormat format, Bytes bytes, PageNo page_no) {
  if (bytes.size() < format.header_bytes()) return Corrupt(page_no, "too short for a page header");
  if (Load<uint64_t>(bytes, 0) != page_no.value) {
    return Corrupt(page_no, fmt::format("carries the number of page {}", Load<uint64_t>(bytes, 0)));
  }
  const RawHeader raw = LoadRaw(format, bytes);
  const std::optional<PageKind> kind = KindOf(raw.flags);
  if (!kind) return Corrupt(page_no, fmt::format("flags 0x{:x} match no page kind", raw.flags));
  PageHeader header = Decode(format, raw, *kind, page_no);
  if (format.version() == DataVersion::k3) header.transaction_id = Load<uint64_t>(bytes, 8);
  return header;
}

Result<PageHeader> ParseSubPageHeader(PageFormat format, Bytes sub_page, PageNo page_no) {
  if (sub_page.size() < format.header_bytes()) {
    return Corrupt(page_no, "a sub-page is shorter than its header");
  }
  const RawHeader raw = LoadRaw(format, sub_page);
  const uint16_t flags = raw.flags & static_cast<uint16_t>(~kDirtyFlag);
  if (flags == (kSubPageFlag | kLeafFlag)) return Decode(format, raw, PageKind::kLeaf, page_no);
  if (flags == (kSubPageFlag | kLeafFlag | kFixedFlag)) {
    return Decode(format, raw, PageKind::kFixedLeaf, page_no);
  }
  return Corrupt(page_no, fmt::format("flags 0x{:x} are not those of a sub-page", raw.flags));
}

Result<PageHeader> ParseOverflowHead(PageFormat format, Bytes head, PageNo page_no,
                                     uint64_t value_bytes) {
  LMDBIO_TRY(const PageHeader header, ParsePageHeader(format, head, page_no));
  if (header.kind != PageKind::kOverflow) {
    return Corrupt(page_no, fmt::format("a value of {} bytes should start here, but this is a {} "
                                        "page",
                                        value_bytes, PageKindName(header.kind)));
  }
  if (header.run_page_count < format.OverflowPageCount(value_bytes)) {
    return Corrupt(page_no, fmt::format("an overflow run of {} pages cannot hold {} bytes",
                                        header.run_page_count, value_bytes));
  }
  return header;
}

}  // namespace lmdbio::file
