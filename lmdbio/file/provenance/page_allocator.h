// lmdbio/file/provenance/page_allocator.h - a model of LMDB's page allocator: the page numbers, in
// order.
//
// A page that transaction t replaces is listed in the free list under t. Transaction t + 2 may use
// it again, so the two newest snapshots always stay whole. A request is served from the listed
// pages first, lowest number first, and otherwise by growing the file. The free list is a tree in
// the same file and needs pages too: every commit that changes it copies its one leaf page. The
// model assumes an environment without readers, in which no page of the current transaction is
// returned.
//
// Source: docs/replay.md "Pages"; dissertation 5.2.2, Figure 5.4 (1B, 2B: the free pages).
#ifndef LMDBIO_FILE_PROVENANCE_PAGE_ALLOCATOR_H_
#define LMDBIO_FILE_PROVENANCE_PAGE_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/format/meta_page.h"
#include "lmdbio/file/format/page_format.h"

namespace lmdbio::file {

// The allocator of one fresh file. Calls come in the order
//   { BeginTransaction, { Allocate | Replace }, Commit }
// Allocates no memory once its lists have reached their largest size.
class PageAllocator {
 public:
  explicit PageAllocator(PageFormat page_format) : format_(page_format) {}

  void BeginTransaction();

  // The first of `page_count` consecutive pages.
  // Requires: page_count >= 1
  // Cost:     O(1) if no free page is known, else O(free pages)
  PageNo Allocate(uint64_t page_count);

  // As `run_count` calls of Allocate(page_count), if all these runs lie at the end of the file, one
  // behind the other. Returns the first page; nothing, and changes nothing, if free pages may be
  // used.
  // Cost: O(1)
  std::optional<PageNo> AllocateAtEnd(uint64_t page_count, uint64_t run_count);

  // Copy-on-write: returns a new page in place of `page`. Transaction t + 2 may reuse `page`, with
  // t the current transaction.
  // Requires: `page` is of an earlier transaction
  PageNo Replace(PageNo page);

  // Writes the free list as LMDB does.
  // Errors: kUnsupported  the free list no longer fits into one page
  Status Commit();

  uint64_t transaction_count() const { return transaction_id_; }  // ids count from 1
  PageNo last_page() const { return PageNo{next_page_ - 1}; }

 private:
  // One record of the free list: the pages that this transaction freed. They may be reused when all
  // readers are newer than it.
  struct FreeRecord {
    uint64_t transaction_id;
    size_t page_count;
  };

  std::optional<PageNo> TakeRun(size_t page_count);
  bool HasLoadable() const;
  bool LoadNextRecord();
  void UpdateRoot();
  void ListPages();
  Status CheckOnePage() const;

  PageFormat format_;
  uint64_t transaction_id_ = 0;
  uint64_t next_page_ = file::kMetaPageCount;

  // The free list as committed: records by ascending id, and their pages one after another.
  PageNo root_ = file::kNoRoot;
  std::vector<FreeRecord> records_;
  std::vector<uint64_t> listed_pages_;

  // Of the current transaction.
  size_t loaded_records_ = 0;             // leading records, whose pages went to reusable_pages_
  size_t loaded_pages_ = 0;               // the pages of these records in listed_pages_
  std::vector<uint64_t> reusable_pages_;  // descending: the lowest is taken from the back
  std::vector<uint64_t> freed_pages_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_PAGE_ALLOCATOR_H_
