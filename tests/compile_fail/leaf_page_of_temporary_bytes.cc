// A parsed page is a view of its bytes. Other pages have the same overloads.
#include <vector>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/format/fixed_leaf_page.h"
#include "lmdbio/file/format/leaf_page.h"

namespace lmdbio::file {

template <typename Page, typename Source>
concept ParsesFrom = requires(PageFormat format, Source&& bytes, PageHeader header) {
  Page::Parse(format, static_cast<Source&&>(bytes), header);
};
using Vector = std::vector<std::byte>;
static_assert(ParsesFrom<NodeTable, Vector&> && !ParsesFrom<NodeTable, Vector>);
static_assert(ParsesFrom<LeafPage, const Vector&> && !ParsesFrom<LeafPage, const Vector>);
static_assert(ParsesFrom<BranchPage, Bytes> && !ParsesFrom<BranchPage, Vector>);

std::vector<std::byte> ReadPage();

uint32_t CountItems(PageFormat format, const PageHeader& header) {
#ifdef LMDBIO_BAD
  const auto page = FixedLeafPage::Parse(format, ReadPage(), header, 8);
#else
  const std::vector<std::byte> bytes = ReadPage();
  const auto page = FixedLeafPage::Parse(format, bytes, header, 8);
#endif
  return page->item_count();
}

}  // namespace lmdbio::file
