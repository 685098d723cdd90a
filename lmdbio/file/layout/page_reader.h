// lmdbio/file/layout/page_reader.h - fetches pages of one snapshot and checks each of them.
//
// Source: docs/format.md sections 1 and 8 ("Checks").
#ifndef LMDBIO_FILE_LAYOUT_PAGE_READER_H_
#define LMDBIO_FILE_LAYOUT_PAGE_READER_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/format/page_header.h"
#include "lmdbio/file/layout/snapshot.h"

namespace lmdbio::file {

// Bytes to prefetch of the next value. The number was measured: less leaves cache misses, more
// delays the current value.
inline constexpr uint64_t kPrefetchedValueBytes = 512;

struct TreePage {
  Bytes bytes;        // [page size]
  PageHeader header;  // kind kBranch, kLeaf or kFixedLeaf
};

// Errors are prefixed with the name of the source.
// Threads:  const; any number of readers
// Lifetime: `source` must outlive the reader
class PageReader {
 public:
  PageReader(const ByteSource& source, const Snapshot& snapshot)
      : source_(&source), snapshot_(snapshot) {}
  PageReader(const ByteSource&& source, const Snapshot& snapshot) = delete;

  // Of a temporary reader: a copy, which may outlive it.
  const Snapshot& snapshot() const& { return snapshot_; }
  Snapshot snapshot() && { return snapshot_; }
  const ByteSource& source() const { return *source_; }
  PageFormat page_format() const { return snapshot_.page_format; }

  // Fetches a branch or leaf page.
  // scratch  [page size]
  // Errors:  kIo, kCorruption
  Result<TreePage> ReadTreePage(PageNo page_no, MutableBytes scratch) const;

  // Checks a tree page that the caller fetched.
  // bytes   [page size] of page `page_no`
  // Errors: kCorruption
  Result<TreePage> CheckTreePage(PageNo page_no, Bytes bytes) const;

  // Checks that a page number lies inside the snapshot and the file, and is not a meta page.
  // Errors: kCorruption
  Status CheckPageNo(PageNo page_no) const;

  // The extent of an overflow value, from its leaf entry alone. No byte of the run is read.
  // leaf   number of the page that holds `entry`, for messages
  // entry  of that page, with flags kOverflowNode
  // Errors: kCorruption
  Result<Extent> OverflowExtent(PageNo leaf, const LeafPage& page, const LeafEntry& entry) const;

  // The database record of a private tree with the duplicates of one key.
  // leaf, node  of `entry`, for messages
  // entry       with flags kSubTreeNode
  // Errors: kCorruption
  Result<DatabaseRecord> DuplicateTree(PageNo leaf, uint32_t node, const LeafEntry& entry) const;

  // Checks the head of an overflow run that the caller fetched.
  // first        first page of the run
  // head         [>= header bytes] from its start
  // value_bytes  length of the value, from the leaf node
  // Errors: kCorruption
  Status CheckOverflowHead(PageNo first, Bytes head, uint64_t value_bytes) const;

  // Fetches an overflow value and checks the head of its run.
  // value   from OverflowExtent
  // buffer  grown to the size of run head and value if the source needs it
  // Errors: kIo, kCorruption
  // Lifetime: until `buffer` changes
  Result<Bytes> ReadOverflow(Extent value, std::vector<std::byte>& buffer) const;

  // Hint that a tree page will be read soon, or the overflow value of `entry` (which must have
  // flags kOverflowNode). Only the first bytes of a value are prefetched, because the hardware
  // prefetcher then recognises the stream. These functions check nothing.
  void PrefetchTreePage(PageNo page_no) const {
    const uint64_t page_bytes = page_format().page_size_bytes();
    source_->Prefetch({page_no.value * page_bytes, page_bytes});
  }
  void PrefetchOverflow(const LeafPage& page, const LeafEntry& entry) const {
    source_->Prefetch({page.Reference(entry).first_page.value * page_format().page_size_bytes(),
                       std::min<uint64_t>(entry.value_bytes, kPrefetchedValueBytes)});
  }

  // A kCorruption error that names the source and the page.
  tl::unexpected<Error> Corrupt(PageNo page_no, std::string_view what) const;

  // Puts the source's name in front of an error of a format parser.
  tl::unexpected<Error> InFile(Error error) const;

 private:
  const ByteSource* source_;
  Snapshot snapshot_;
};

// The pages of one or several data files under one numbering: the pages of a file are numbered from
// its first page on (docs/many_files.md). All files have the same page format.
// Threads: const; any number of callers.
class JoinedPages {
 public:
  struct File {
    PageReader pages;  // with the numbers of the file itself
    PageNo first;      // the number of its page 0 here
  };

  // The pages of one file have their own numbers.
  JoinedPages(const PageReader& only) : files_{{only, {0}}} {}  // NOLINT: one file is a list
  // Appends a file. Requires: first is behind the pages of the file before
  void Add(const PageReader& pages, PageNo first) { files_.push_back({pages, first}); }

  size_t file_count() const { return files_.size(); }
  const File& file(size_t i) const { return files_[i]; }
  PageFormat page_format() const { return files_.front().pages.page_format(); }
  // The index of the file with this page, or of the last one that begins before it.
  size_t IndexOf(PageNo page_no) const {
    if (files_.size() == 1) return 0;
    const auto after = std::ranges::upper_bound(files_, page_no, {}, &File::first);
    return static_cast<size_t>(after - files_.begin()) - 1;
  }
  const File& Of(PageNo page_no) const { return files_[IndexOf(page_no)]; }

  // As PageReader::Corrupt; the message has the file and its own page number.
  tl::unexpected<Error> Corrupt(PageNo page_no, std::string_view what) const {
    const File& file = Of(page_no);
    return file.pages.Corrupt({page_no.value - file.first.value}, what);
  }

 private:
  std::vector<File> files_;  // by first
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_PAGE_READER_H_
