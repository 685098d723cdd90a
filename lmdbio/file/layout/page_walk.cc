#include "lmdbio/file/layout/page_walk.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "lmdbio/file/format/branch_page.h"
#include "lmdbio/file/layout/page_batch.h"
#include "lmdbio/file/layout/tree_cursor.h"

namespace lmdbio::file {
namespace {

tl::unexpected<Error> Revisited(const PageReader& pages, PageNo page_no) {
  return pages.Corrupt(page_no, "stands in two places of the file's trees");
}

// Turns leaf pages into runs. One object serves one walk and reuses its vectors.
//
// Consecutive nodes with one value each form a kNodes run. A node with duplicates ends that run and
// gives kDuplicates runs of its own: one for a sub-page, or one for each leaf of its private tree.
// Every page of an overflow run is claimed from the leaf entry, without reading the run.
class LeafWalker {
 public:
  LeafWalker(const Database& database, RecordIndex first_record, PageClaims& claims,
             RecordRunSink& sink)
      : database_(database),
        pages_(database_.pages()),
        claims_(claims),
        sink_(sink),
        duplicates_(pages_),
        duplicate_shape_((database.record().flags & file::kDupFixed) != 0 ? LeafShape::kPacked
                                                                          : LeafShape::kNodes),
        next_record_(first_record) {
    duplicates_.set_claims(&claims);
  }

  uint64_t next_record() const { return next_record_.value; }

  Status Visit(const TreePage& page) {
    leaf_ = page.header.page_no;
    if (page.header.kind != PageKind::kLeaf) {
      return pages_.Corrupt(
          leaf_, fmt::format("is a {} page; expected a leaf page", PageKindName(page.header.kind)));
    }
    Result<LeafPage> parsed = LeafPage::Parse(pages_.page_format(), page.bytes, page.header);
    if (!parsed) return pages_.InFile(std::move(parsed).error());
    first_node_ = 0;
    for (uint32_t node = 0; node < parsed->entry_count(); ++node) {
      // The record of a named database counts as a value of 48 bytes, as for liblmdb's cursor.
      const LeafEntry entry = parsed->Entry(node);
      if (entry.flags == file::kSubPageNode || entry.flags == file::kSubTreeNode) {
        LMDBIO_TRY_VOID(EmitNodes());
        LMDBIO_TRY_VOID(VisitDuplicates(node, entry));
        first_node_ = node + 1;
      } else {
        LMDBIO_TRY_VOID(AddNode(*parsed, entry));
      }
    }
    return EmitNodes();
  }

 private:
  void Add(Extent value, size_t key_bytes) {
    values_.push_back(value);
    key_bytes_.push_back(static_cast<uint32_t>(key_bytes));
  }

  Status AddNode(const LeafPage& page, const LeafEntry& entry) {
    const PageFormat format = pages_.page_format();
    if (entry.flags == file::kOverflowNode) {
      LMDBIO_TRY(const Extent value, pages_.OverflowExtent(leaf_, page, entry));
      const PageNo first{format.PagesBefore(value.offset)};
      // Claims every page of the run, so two runs that only overlap are found too.
      if (!claims_.Claim(first, format.OverflowPageCount(value.length_bytes))) {
        return Revisited(pages_, first);
      }
      Add(value, entry.key.size());
      return {};
    }
    Add({leaf_.value * format.page_size_bytes() + entry.data_offset, entry.value_bytes},
        entry.key.size());
    return {};
  }

  Status Emit(RunKind kind, uint32_t first_node, PageNo home) {
    // Two nodes with duplicates may be neighbours; then no plain node lies between them.
    if (values_.empty()) return {};
    const RecordRun run{next_record_, leaf_, first_node, kind, home, values_, key_bytes_};
    next_record_.value += values_.size();
    Status accepted = sink_.Add(run);
    values_.clear();
    key_bytes_.clear();
    return accepted;
  }

  Status EmitNodes() { return Emit(RunKind::kNodes, first_node_, leaf_); }

  Status VisitDuplicates(uint32_t node, const LeafEntry& entry) {
    if (!database_.record().has_duplicates()) {
      return pages_.Corrupt(
          leaf_, fmt::format("node {} holds duplicates, but the database has none", node));
    }
    if (entry.flags == file::kSubPageNode) {
      LMDBIO_TRY_VOID(
          duplicates_.BindSubPage(leaf_, entry.data, entry.data_offset, duplicate_shape_));
      return EmitDuplicatePage(node, entry.key.size());
    }
    // The pages of a private tree are known only now, so they are read one by one and in no batch.
    LMDBIO_TRY(const DatabaseRecord tree, pages_.DuplicateTree(leaf_, node, entry));
    duplicates_.Bind(tree, duplicate_shape_);
    LMDBIO_TRY_VOID(duplicates_.SeekEnd(Direction::kForward));
    for (bool more = true; more;) {
      LMDBIO_TRY_VOID(EmitDuplicatePage(node, entry.key.size()));
      LMDBIO_TRY(more, duplicates_.StepLeaf(Direction::kForward));
    }
    return {};
  }

  // One run with every item of the page under duplicates_.
  Status EmitDuplicatePage(uint32_t node, size_t key_bytes) {
    for (uint32_t i = 0; i < duplicates_.item_count(); ++i) {
      duplicates_.set_index(i);
      LMDBIO_TRY_VOID(duplicates_.CheckPlainItem());
      // In a sub-page or private tree the duplicates are the keys, and they have no data.
      Add(duplicates_.item_key_extent(), key_bytes);
    }
    return Emit(RunKind::kDuplicates, node, duplicates_.leaf_page_no());
  }

  Database database_;
  const PageReader& pages_;
  PageClaims& claims_;
  RecordRunSink& sink_;
  TreeCursor duplicates_;
  LeafShape duplicate_shape_;
  RecordIndex next_record_;
  PageNo leaf_;
  uint32_t first_node_ = 0;
  std::vector<Extent> values_;
  std::vector<uint32_t> key_bytes_;
};

// Appends the children of `branches` to `children`, in order.
Status ReadChildren(const PageReader& pages, std::span<const PageNo> branches, PageClaims& claims,
                    std::vector<PageNo>& children) {
  PageBatch batch(pages);
  return batch.ForEach(branches, [&](const TreePage& page) -> Status {
    const PageNo page_no = page.header.page_no;
    if (page.header.kind != PageKind::kBranch) {
      return pages.Corrupt(page_no, fmt::format("is a {} page; expected a branch page",
                                                PageKindName(page.header.kind)));
    }
    Result<BranchPage> branch = BranchPage::Parse(pages.page_format(), page.bytes, page.header);
    if (!branch) return pages.InFile(std::move(branch).error());
    for (uint32_t i = 0; i < branch->child_count(); ++i) {
      // CheckPageNo comes first, because Claim also refuses a page outside the file and would
      // report it as a page in two places. The claims bound `children` on a damaged file: no page
      // enters it twice.
      LMDBIO_TRY_VOID(pages.CheckPageNo(branch->child(i)));
      if (!claims.Claim(branch->child(i))) return Revisited(pages, branch->child(i));
      children.push_back(branch->child(i));
    }
    return {};
  });
}

}  // namespace

// Breadth first: the children of all pages of one level are the next level, in key order. After
// depth - 1 steps the level consists of leaves, as a B+ tree has all its leaves at one depth.
Result<std::vector<PageNo>> ListLeaves(const Database& database, PageClaims& claims) {
  const PageReader& pages = database.pages();
  const DatabaseRecord& record = database.record();
  if (record.empty()) return std::vector<PageNo>{};
  LMDBIO_TRY_VOID(pages.CheckPageNo(record.root));
  if (!claims.Claim(record.root)) return Revisited(pages, record.root);
  std::vector<PageNo> level{record.root};
  for (uint32_t depth = 1; depth < record.depth; ++depth) {
    std::vector<PageNo> children;
    LMDBIO_TRY_VOID(ReadChildren(pages, level, claims, children));
    level = std::move(children);
  }
  return level;
}

std::span<const PageNo> ShareOfLeaves(std::span<const PageNo> leaves, uint32_t worker,
                                      uint32_t worker_count) {
  LMDBIO_CHECK(worker < worker_count);
  const size_t each = leaves.size() / worker_count;
  const size_t more = leaves.size() % worker_count;  // the first `more` workers have one leaf more
  const size_t begin = worker * each + std::min<size_t>(worker, more);
  return leaves.subspan(begin, each + (worker < more ? 1 : 0));
}

Result<uint64_t> WalkLeaves(const Database& database, std::span<const PageNo> leaves,
                            RecordIndex first_record, PageClaims& claims, RecordRunSink& sink,
                            const WalkProgress& progress) {
  LeafWalker walker(database, first_record, claims, sink);
  PageBatch batch(database.pages());
  uint64_t done = 0;
  LMDBIO_TRY_VOID(batch.ForEach(leaves, [&](const TreePage& page) -> Status {
    if (progress && done++ % 1024 == 0) {
      progress(static_cast<double>(done) / static_cast<double>(leaves.size()));
    }
    return walker.Visit(page);
  }));
  return walker.next_record() - first_record.value;
}

Result<std::vector<PageNo>> WalkDatabase(const Database& database, RecordRunSink& sink,
                                         const WalkProgress& progress) {
  const PageReader& pages = database.pages();
  PageClaims claims(pages.snapshot().page_count());
  LMDBIO_TRY(std::vector<PageNo> leaves, ListLeaves(database, claims));
  LMDBIO_TRY(const uint64_t found, WalkLeaves(database, leaves, {}, claims, sink, progress));
  if (!database.AcceptsRecordCount(found)) {
    return pages.Corrupt(database.record().root,
                         fmt::format("the tree below it holds {} records, its description says {}",
                                     found, database.entry_count()));
  }
  return leaves;
}

}  // namespace lmdbio::file
