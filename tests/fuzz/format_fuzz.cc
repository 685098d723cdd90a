// tests/fuzz/format_fuzz.cc - any bytes as any page of any format.
//
// Input: byte 0 chooses the page format, the rest is a page. A short input is cut in two, for the
// head and the tail of the page, because slots and nodes are there on a page of any size.
// Oracle: the sanitizers. If a parser accepts a page, every byte of its results must be readable.
#include <algorithm>
#include <vector>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/format/fixed_leaf_page.h"
#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/format/load.h"
#include "lmdbio/file/format/meta_page.h"
#include "tests/fuzz/touch_bytes.h"

namespace lmdbio::test {
namespace {

using file::PageFormat;
using file::PageHeader;
using file::PageKind;

PageFormat ChooseFormat(std::byte choice) {
  constexpr uint32_t kPageBytes[] = {512, 1024, 4096, 65536};
  const auto bits = std::to_integer<uint32_t>(choice);
  return {(bits & 1) == 0 ? file::DataVersion::k1 : file::DataVersion::k3,
          kPageBytes[(bits >> 1) % std::size(kPageBytes)]};
}

// The page is on the heap and has exactly the page size, so that the sanitizer detects a read of
// one byte past its end.
std::vector<std::byte> Stretch(Bytes input, uint32_t page_bytes) {
  std::vector<std::byte> page(page_bytes);
  const Bytes used = input.first(std::min<size_t>(input.size(), page_bytes));
  const size_t head_bytes = used.size() / 2;
  std::copy_n(used.begin(), head_bytes, page.begin());
  std::ranges::copy_backward(used.subspan(head_bytes), page.end());
  return page;
}

void ReadLeaf(PageFormat format, Bytes page, const PageHeader& header);

void ReadFixedLeaf(PageFormat format, Bytes page, const PageHeader& header) {
  const auto items = file::FixedLeafPage::Parse(format, page, header, header.item_bytes);
  for (uint32_t i = 0; items && i < items->item_count(); ++i) TouchBytes(items->item(i));
}

void ReadSubPage(PageFormat format, Bytes sub_page, PageNo page_no) {
  const std::vector<std::byte> alone(sub_page.begin(), sub_page.end());
  const auto header = file::ParseSubPageHeader(format, alone, page_no);
  if (!header) return;
  if (header->kind == PageKind::kFixedLeaf) return ReadFixedLeaf(format, alone, *header);
  ReadLeaf(format, alone, *header);
}

void ReadEntry(PageFormat format, const file::LeafPage& leaf, uint32_t index, PageNo page_no) {
  const file::LeafEntry entry = leaf.Entry(index);
  TouchBytes(entry.key);
  TouchBytes(entry.data);
  if (entry.flags == file::kOverflowNode) (void)leaf.Reference(entry);
  if (entry.flags == file::kSubPageNode) ReadSubPage(format, entry.data, page_no);
  if (entry.data.size() == file::kDatabaseRecordBytes) {
    const file::DatabaseRecord record = file::LoadDatabaseRecord(entry.data);
    (void)file::CheckTree(record, format, PageNo{1000});
    (void)file::CheckUserFlags(record);
  }
}

void ReadLeaf(PageFormat format, Bytes page, const PageHeader& header) {
  const auto leaf = file::LeafPage::Parse(format, page, header);
  for (uint32_t i = 0; leaf && i < leaf->entry_count(); ++i) {
    ReadEntry(format, *leaf, i, header.page_no);
  }
}

void ReadBranch(PageFormat format, Bytes page, const PageHeader& header) {
  const auto branch = file::BranchPage::Parse(format, page, header);
  for (uint32_t i = 0; branch && i < branch->child_count(); ++i) {
    TouchBytes(branch->key(i));
    (void)branch->child(i);
  }
}

void ReadTreePage(PageFormat format, Bytes page) {
  const PageNo own{file::Load<uint64_t>(page, 0)};  // otherwise most inputs fail this check
  const auto header = file::ParsePageHeader(format, page, own);
  if (!header) return;
  if (header->kind == PageKind::kBranch) ReadBranch(format, page, *header);
  if (header->kind == PageKind::kLeaf) ReadLeaf(format, page, *header);
  if (header->kind == PageKind::kFixedLeaf) ReadFixedLeaf(format, page, *header);
}

void ReadFileHead(Bytes input) {
  const Bytes head = input.first(std::min<size_t>(input.size(), file::kMetaBytes));
  const std::vector<std::byte> exact(head.begin(), head.end());
  const auto format = file::IdentifyFile(exact);
  if (!format || exact.size() < file::kMetaBytes) return;
  for (const uint64_t page_no : {0U, 1U}) {
    const auto meta = file::ParseMetaPage(*format, exact, PageNo{page_no});
    if (meta) (void)file::CheckTree(meta->main, *format, meta->last_page);
  }
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  const Bytes input = std::as_bytes(std::span(data, size));
  test::ReadFileHead(input.subspan(1));
  const file::PageFormat format = test::ChooseFormat(input[0]);
  const std::vector<std::byte> page = test::Stretch(input.subspan(1), format.page_size_bytes());
  const PageNo own{file::Load<uint64_t>(page, 0)};
  test::ReadTreePage(format, page);
  test::ReadSubPage(format, input.subspan(1), own);
  (void)file::ParseOverflowHead(format, page, own, size);
  (void)file::CheckNoChecksums(format, Bytes(page).last(2));
  return 0;
}
