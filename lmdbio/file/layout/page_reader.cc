#include "lmdbio/file/layout/page_reader.h"

#include <algorithm>

#include <fmt/format.h>

namespace lmdbio::file {

tl::unexpected<Error> PageReader::Corrupt(PageNo page_no, std::string_view what) const {
  return Fail(ErrorCode::kCorruption,
              fmt::format("{}: page {}: {}", source_->name(), page_no.value, what));
}

tl::unexpected<Error> PageReader::InFile(Error error) const {
  return Fail(std::move(error).Within(source_->name()));
}

// Either bound may be the smaller one. A file may be longer than its last used page, and it ends
// earlier if its last pages are free (docs/format.md section 1). The second message tells a file
// that was cut short from a damaged tree.
Status PageReader::CheckPageNo(PageNo page_no) const {
  if (page_no.value < file::kMetaPageCount || page_no > snapshot_.meta.last_page) {
    return Corrupt(page_no, fmt::format("the tree refers to it, but it lies outside [{}, {}]",
                                        file::kMetaPageCount, snapshot_.meta.last_page.value));
  }
  if (page_no.value >= snapshot_.page_count()) {
    return Corrupt(
        page_no, fmt::format("the file ends before it, after {} bytes", snapshot_.file_size_bytes));
  }
  return {};
}

Result<TreePage> PageReader::ReadTreePage(PageNo page_no, MutableBytes scratch) const {
  LMDBIO_TRY_VOID(CheckPageNo(page_no));
  const uint64_t page_bytes = page_format().page_size_bytes();
  Result<Bytes> bytes = source_->Read({page_no.value * page_bytes, page_bytes}, scratch);
  if (!bytes) return InFile(std::move(bytes).error());
  return CheckTreePage(page_no, *bytes);
}

Result<TreePage> PageReader::CheckTreePage(PageNo page_no, Bytes bytes) const {
  Result<PageHeader> header = ParsePageHeader(page_format(), bytes, page_no);
  if (!header) return InFile(std::move(header).error());
  // The kind that fits the level of the tree is checked by the callers, which know the level.
  if (header->kind == PageKind::kOverflow || header->kind == PageKind::kMeta) {
    return Corrupt(page_no, fmt::format("is a page of kind {}; expected a branch or leaf page",
                                        PageKindName(header->kind)));
  }
  // A page of version 1 carries no transaction; its 0 passes. A younger page of version 3 has been
  // overwritten by a writer, or is damaged.
  if (header->transaction_id > snapshot_.meta.transaction_id) {
    return Corrupt(page_no, fmt::format("was written by transaction {}, after the snapshot {}",
                                        header->transaction_id, snapshot_.meta.transaction_id));
  }
  return TreePage{bytes, *header};
}

// A walk over the leaves must not read each value, so only the reference is checked here: the run
// lies inside the snapshot and the file. CheckOverflowHead checks the run itself when the value is
// read.
Result<Extent> PageReader::OverflowExtent(PageNo leaf, const LeafPage& page,
                                          const LeafEntry& entry) const {
  const OverflowReference reference = page.Reference(entry);
  const uint64_t page_count = page_format().OverflowPageCount(entry.value_bytes);
  const PageNo first = reference.first_page;
  const uint64_t last_allowed =
      std::min(snapshot_.meta.last_page.value, snapshot_.page_count() - 1);
  // Compares differences, because a damaged page number near 2^64 would wrap a sum.
  if (first.value < file::kMetaPageCount || first.value > last_allowed ||
      page_count - 1 > last_allowed - first.value) {
    return Corrupt(leaf, fmt::format("a value of {} bytes in pages [{}, +{}) runs past the last "
                                     "page, {}",
                                     entry.value_bytes, first.value, page_count, last_allowed));
  }
  // A reference of version 3 repeats the page count and the transaction of the run, so both can be
  // checked without a read.
  if (page_format().version() == DataVersion::k3 &&
      (reference.page_count < page_count ||
       reference.transaction_id > snapshot_.meta.transaction_id)) {
    return Corrupt(leaf, fmt::format("the reference to page {} names {} pages of transaction {}",
                                     first.value, reference.page_count, reference.transaction_id));
  }
  return Extent{first.value * page_format().page_size_bytes() + page_format().header_bytes(),
                entry.value_bytes};
}

// Does not check the entry count of the private tree, because every LMDB version miscounts it
// (docs/format.md section 4).
Result<DatabaseRecord> PageReader::DuplicateTree(PageNo leaf, uint32_t node,
                                                 const LeafEntry& entry) const {
  const auto corrupt = [&](std::string_view why) {
    return Corrupt(leaf, fmt::format("node {}: tree of duplicates: {}", node, why));
  };
  if (entry.value_bytes != file::kDatabaseRecordBytes) return corrupt("record of a wrong size");
  const DatabaseRecord tree = LoadDatabaseRecord(entry.data);
  if (tree.empty()) return corrupt("has no root");
  const Status sound = CheckRoot(tree, snapshot_.meta.last_page);
  if (!sound) return corrupt(sound.error().message());
  return tree;
}

Status PageReader::CheckOverflowHead(PageNo first, Bytes head, uint64_t value_bytes) const {
  Result<PageHeader> header = ParseOverflowHead(page_format(), head, first, value_bytes);
  if (!header) return InFile(std::move(header).error());
  if (header->transaction_id > snapshot_.meta.transaction_id) {
    return Corrupt(first, fmt::format("was written by transaction {}, after the snapshot {}",
                                      header->transaction_id, snapshot_.meta.transaction_id));
  }
  return {};
}

Result<Bytes> PageReader::ReadOverflow(Extent value, std::vector<std::byte>& buffer) const {
  // The head lies right before the value, so one read fetches both and the check costs no request.
  const uint32_t header_bytes = page_format().header_bytes();
  const Extent run{value.offset - header_bytes, value.length_bytes + header_bytes};
  if (buffer.size() < run.length_bytes) buffer.resize(run.length_bytes);
  Result<Bytes> bytes = source_->Read(run, buffer);
  if (!bytes) return InFile(std::move(bytes).error());
  const PageNo first{page_format().PagesBefore(run.offset)};
  LMDBIO_TRY_VOID(CheckOverflowHead(first, *bytes, value.length_bytes));
  return bytes->subspan(header_bytes);
}

}  // namespace lmdbio::file
