// lmdbio/file/format/meta_page.h - the two meta pages at the start of a data file, and their roots.
//
// Bytes in:   the first bytes of a file; a meta page
// Values out: the data version and the page size; roots, counters and transaction of a snapshot
// Pure: does no I/O and never reads outside the span it was given.
//
// Source: docs/format.md sections 1 and 2; dissertation 2.4.2.
#ifndef LMDBIO_FILE_FORMAT_META_PAGE_H_
#define LMDBIO_FILE_FORMAT_META_PAGE_H_

#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/format/page_format.h"

namespace lmdbio::file {

// Persistent flags of a database.
enum DatabaseFlags : uint16_t {
  kReverseKey = 0x02,
  kDupSort = 0x04,
  kIntegerKey = 0x08,
  kDupFixed = 0x10,
  kIntegerDup = 0x20,
  kReverseDup = 0x40,
};

// The 48 bytes that describe one tree: the main database, a named one, the free list, or the
// private tree of one key's duplicates.
struct DatabaseRecord {
  uint32_t item_bytes = 0;  // of fixed-size duplicates (LMDB's pad); the page size in the free list
  uint16_t flags = 0;       // DatabaseFlags; environment flags in the free list's record
  uint16_t depth = 0;       // levels, 0 if empty
  uint64_t branch_pages = 0;
  uint64_t leaf_pages = 0;
  uint64_t overflow_pages = 0;
  uint64_t entry_count = 0;  // records; every duplicate counts; see counts_exactly()
  PageNo root;               // kNoRoot if empty

  bool empty() const { return root.value == ~uint64_t{0}; }
  bool has_duplicates() const { return (flags & kDupSort) != 0; }
  // True if entry_count is exact. All LMDB versions miscount, up or down, after duplicates are
  // deleted; docs/format.md section 4 has the list.
  // Requires: the record of a main or named database; the count of a duplicate tree is never exact
  bool counts_exactly() const { return !has_duplicates(); }

  friend bool operator==(const DatabaseRecord&, const DatabaseRecord&) = default;
};

inline constexpr PageNo kNoRoot{~uint64_t{0}};

// Reads a database record.
// bytes  [kDatabaseRecordBytes]
DatabaseRecord LoadDatabaseRecord(Bytes bytes);

// Checks that the root lies in [2, last_page] and the depth in [1, kTreeDepthMax]. A tree without a
// root must have depth 0.
// Errors: kCorruption, starting with the name of the field
Status CheckRoot(const DatabaseRecord& record, PageNo last_page);

// CheckRoot for a main or named database or the free list. If the record counts exactly, also
// checks that a tree with a root has entries, and not more than fit in a file of this size.
// Errors: kCorruption, starting with the name of the field
Status CheckTree(const DatabaseRecord& record, PageFormat format, PageNo last_page);

// True if `record_count` records can fit in the pages up to `last_page`, at one byte each or more.
bool RecordsFit(uint64_t record_count, PageFormat format, PageNo last_page);

// Checks the flags of a main or named database; a duplicate tree obeys other rules. LMDB stores the
// flags as its caller gave them, even an order of duplicates in a database without duplicates.
// Errors: kCorruption
Status CheckUserFlags(const DatabaseRecord& record);

// The fields of one meta page.
struct MetaPage {
  PageNo page_no;
  uint64_t map_address = 0;  // nonzero only for environments with a fixed map
  uint64_t map_size_bytes = 0;
  DatabaseRecord free_list;
  DatabaseRecord main;
  PageNo last_page;
  uint64_t transaction_id = 0;

  uint32_t page_size_bytes() const { return free_list.item_bytes; }

  friend bool operator==(const MetaPage&, const MetaPage&) = default;
};

// Bytes that IdentifyFile needs from the start of a file, and ParseMetaPage from a meta page.
inline constexpr uint32_t kMetaBytes = 192;

// Determines the data version and page size of a file from its first bytes.
//
// head  [<= kMetaBytes] the first bytes of the file; fewer only if the file is shorter
//
// Errors: kCorruption   not an LMDB data file; too short; an impossible page size
//         kUnsupported  a 32-bit file, a file of the other byte order, data version 2 or an unknown
//                       one, an encrypted file; the message names the kind
Result<PageFormat> IdentifyFile(Bytes head);

// Parses and checks a meta page.
//
// bytes     [>= kMetaBytes] from the start of the page
// page_no   0 or 1
// Errors: kCorruption   header, magic, version, page size or transaction parity are wrong
Result<MetaPage> ParseMetaPage(PageFormat format, Bytes bytes, PageNo page_no);

// Refuses a file with per-page checksums. The last two bytes of page 0 hold the checksum size.
// tail  [2] those bytes
// Errors: kUnsupported  the file is checksummed
Status CheckNoChecksums(PageFormat format, Bytes tail);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_META_PAGE_H_
