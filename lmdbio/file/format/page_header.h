// lmdbio/file/format/page_header.h - the header of a page: its number, kind and bounds.
//
// Source: docs/format.md section 1; dissertation 2.4.2.
#ifndef LMDBIO_FILE_FORMAT_PAGE_HEADER_H_
#define LMDBIO_FILE_FORMAT_PAGE_HEADER_H_

#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/format/page_format.h"

namespace lmdbio::file {

enum class PageKind : uint8_t {
  kBranch,     // keys and child page numbers
  kLeaf,       // keys and values
  kFixedLeaf,  // fixed-size duplicates, packed (LMDB's LEAF2)
  kOverflow,   // first page of a run that holds one large value
  kMeta,
};

std::string_view PageKindName(PageKind kind);

struct PageHeader {
  PageNo page_no;
  PageKind kind = PageKind::kMeta;
  uint64_t transaction_id = 0;  // of the transaction that wrote the page; version 1: 0
  uint16_t item_bytes = 0;      // fixed leaves of sub-pages: size of one item
  uint32_t lower_bytes = 0;     // end of the slot table, from the start of the page
  uint32_t upper_bytes = 0;     // start of the node area, from the start of the page
  uint32_t run_page_count = 0;  // overflow: pages of the run (these bytes overlap lower and upper)
};

// Parses the header of a page of the file (not of a sub-page).
//
// bytes    [>= header_bytes] from the start of the page
// page_no  where the bytes came from; checked against the page's own number
//
// Errors: kCorruption  too short, the number of another page, or flags of no page kind at rest
// Cost:   O(1)
Result<PageHeader> ParsePageHeader(PageFormat format, Bytes bytes, PageNo page_no);

// Parses the header of a sub-page: the miniature page inside a leaf node that holds the duplicates
// of one key. Its own page number is stale and ignored.
//
// sub_page  the node's data
// page_no   of the leaf page around it, for messages
//
// Errors: kCorruption
Result<PageHeader> ParseSubPageHeader(PageFormat format, Bytes sub_page, PageNo page_no);

// Checks the first page of an overflow run against the leaf node that refers to it. A run may have
// more pages than its value needs, because LMDB overwrites a value of the same transaction in
// place.
//
// head         [>= header_bytes] the start of the run
// value_bytes  length of the value, from the leaf node
//
// Errors: kCorruption
Result<PageHeader> ParseOverflowHead(PageFormat format, Bytes head, PageNo page_no,
                                     uint64_t value_bytes);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_PAGE_HEADER_H_
