// lmdbio/layout/page_reader.h - pages of one snapshot, each checked at the moment it is fetched.
//
// Source: docs/format.md sections 1 and 8 ("Checks").
#ifndef LMDBIO_LAYOUT_PAGE_READER_H_
#define LMDBIO_LAYOUT_PAGE_READER_H_

#include <algorithm>
#include <vector>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/format/leaf_page.h"
#include "lmdbio/format/page_header.h"
#include "lmdbio/layout/snapshot.h"

namespace lmdbio::layout {

// Of a value that will be read next, measured: less leaves misses, more delays the value at hand.
inline constexpr uint64_t kPrefetchedValueBytes = 512;

struct TreePage {
  Bytes bytes;                // [page size]
  format::PageHeader header;  // kind kBranch, kLeaf or kFixedLeaf
};

// Threads: const; any number of readers.
// Lifetime: `source` must outlive the reader. Errors are prefixed with the source's name.
class PageReader {
 public:
  PageReader(const ByteSource& source, const Snapshot& snapshot)
      : source_(&source), snapshot_(snapshot) {}

  const Snapshot& snapshot() const { return snapshot_; }
  const ByteSource& source() const { return *source_; }
  format::PageFormat page_format() const { return snapshot_.page_format; }

  // Fetches a branch or leaf page.
  // scratch  [page size]
  // Errors:  kIo, kCorruption
  Result<TreePage> ReadTreePage(PageNo page_no, MutableBytes scratch) const;

  // Checks a tree page that was fetched in a batch.
  // bytes   [page size] from the place of page `page_no`
  // Errors: kCorruption
  Result<TreePage> CheckTreePage(PageNo page_no, Bytes bytes) const;

  // Checks that a page number may be read at all: inside the snapshot and the file, no meta page.
  // Errors: kCorruption
  Status CheckPageNo(PageNo page_no) const;

  // Where an overflow value lies, from its leaf entry alone: no byte of the run is read.
  // leaf   the page that holds `entry`, for messages
  // entry  of that page, with flags kOverflowNode
  // Errors: kCorruption
  Result<Extent> OverflowExtent(PageNo leaf, const format::LeafPage& page,
                                const format::LeafEntry& entry) const;

  // The description of the tree that the duplicates of one key have grown.
  // leaf, node  of `entry`, for messages
  // entry       with flags kSubTreeNode
  // Errors: kCorruption
  Result<format::DatabaseRecord> DuplicateTree(PageNo leaf, uint32_t node,
                                               const format::LeafEntry& entry) const;

  // Checks the head of an overflow run that was fetched otherwise.
  // first        page of the run
  // head         [>= header bytes] from its start
  // value_bytes  that the leaf promises
  // Errors: kCorruption
  Status CheckOverflowHead(PageNo first, Bytes head, uint64_t value_bytes) const;

  // Fetches an overflow value and checks the head of its run.
  // value   from OverflowExtent
  // buffer  grown to the size of run head and value if the source needs it
  // Errors: kIo, kCorruption
  // Lifetime: until `buffer` changes
  Result<Bytes> ReadOverflow(Extent value, std::vector<std::byte>& buffer) const;

  // Hints that a tree page will be read soon, or the value that an entry with flags kOverflowNode
  // refers to: of that the first bytes, for behind them the processor itself finds the stream.
  // Checks nothing.
  void PrefetchTreePage(PageNo page_no) const {
    const uint64_t page_bytes = page_format().page_size_bytes();
    source_->Prefetch({page_no.value * page_bytes, page_bytes});
  }
  void PrefetchOverflow(const format::LeafPage& page, const format::LeafEntry& entry) const {
    source_->Prefetch({page.Reference(entry).first_page.value * page_format().page_size_bytes(),
                       std::min<uint64_t>(entry.value_bytes, kPrefetchedValueBytes)});
  }

  // A kCorruption error in the words of this file.
  tl::unexpected<Error> Corrupt(PageNo page_no, std::string_view what) const;

  // Puts the source's name in front of an error of a format parser.
  tl::unexpected<Error> InFile(Error error) const;

 private:
  const ByteSource* source_;
  Snapshot snapshot_;
};

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_PAGE_READER_H_
