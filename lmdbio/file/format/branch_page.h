// lmdbio/file/format/branch_page.h - read-only view of one branch page: keys and children.
//
// Source: docs/format.md section 3; dissertation 2.4.2.
#ifndef LMDBIO_FILE_FORMAT_BRANCH_PAGE_H_
#define LMDBIO_FILE_FORMAT_BRANCH_PAGE_H_

#include "lmdbio/file/format/node_table.h"

namespace lmdbio::file {

class BranchPage {
 public:
  BranchPage() = default;

  // Errors, cost, lifetime: as NodeTable::Parse
  static Result<BranchPage> Parse(PageFormat format, Bytes page, const PageHeader& header) {
    LMDBIO_DCHECK(header.kind == PageKind::kBranch);
    LMDBIO_TRY(const NodeTable nodes, NodeTable::Parse(format, page, header));
    return BranchPage(nodes);
  }
  static Result<BranchPage> Parse(PageFormat format, TemporaryContainer auto&& page,
                                  const PageHeader& header) = delete;

  uint32_t child_count() const { return nodes_.count(); }

  // Requires: index < child_count()
  PageNo child(uint32_t index) const { return nodes_.node_header(index).child(); }

  // The smallest key below child `index`. The key of child 0 has no meaning, because child 0 holds
  // all keys less than key(1).
  Bytes key(uint32_t index) const { return nodes_.key(index); }

 private:
  explicit BranchPage(const NodeTable& nodes) : nodes_(nodes) {}
  NodeTable nodes_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_FORMAT_BRANCH_PAGE_H_
