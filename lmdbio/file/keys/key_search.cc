#include "lmdbio/file/keys/key_search.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/layout/page_batch.h"

namespace lmdbio::file {
namespace {

constexpr const char* kOtherOrder =
    "the page is damaged, or the program that wrote the database sorted by a comparison function "
    "of its own, which the file does not record";

// The first of keys [first, count) that is not greater than the key before it; `count` if none is.
template <typename Page>
uint32_t FirstOutOfOrder(KeyOrder order, const Page& page, uint32_t first, uint32_t count) {
  for (uint32_t i = first + 1; i < count; ++i) {
    if (CompareKeys(order, page.key(i - 1), page.key(i)) >= 0) return i;
  }
  return count;
}

// The first of keys [from, count) that is not less than `key`.
template <typename Page>
uint32_t LowerBound(KeyOrder order, const Page& page, uint32_t from, uint32_t count, Bytes key) {
  uint32_t low = from;
  uint32_t high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (CompareKeys(order, page.key(middle), key) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

Status KeySearch::Find(std::span<const Bytes> keys, const Visitor& visit) {
  const DatabaseRecord& record = database_.record();
  if (keys.empty() || record.empty()) return {};
  LMDBIO_TRY_VOID(database_.pages().CheckPageNo(record.root));
  bounds_.clear();
  groups_.assign(1, KeyGroup{record.root, 0, keys.size(), {}, {}});
  // The depth that the database record states bounds the descent, also in a damaged file.
  for (uint32_t level = 1; level < record.depth; ++level) {
    LMDBIO_TRY_VOID(FetchBranches());
    LMDBIO_TRY_VOID(Descend(keys));
  }
  return VisitLeaves(keys, visit);
}

Result<std::shared_ptr<const OwnedBranch>> KeySearch::OwnBranch(const TreePage& page) const {
  const PageReader& pages = database_.pages();
  if (page.header.kind != PageKind::kBranch) {
    return pages.Corrupt(page.header.page_no, fmt::format("is a {} page; expected a branch page",
                                                          PageKindName(page.header.kind)));
  }
  auto branch = std::make_shared<OwnedBranch>();
  branch->bytes.assign(page.bytes.begin(), page.bytes.end());
  Result<BranchPage> parsed = BranchPage::Parse(pages.page_format(), branch->bytes, page.header);
  if (!parsed) return pages.InFile(std::move(parsed).error());
  branch->page = *parsed;
  // The first key of a branch page has no meaning.
  const uint32_t count = parsed->child_count();
  const uint32_t wrong = FirstOutOfOrder(order_, *parsed, 1, count);
  if (wrong < count) return OutOfOrder(page.header.page_no, wrong);
  return branch;
}

// Takes the branch pages of the level from the kept ones, and reads the others together.
Status KeySearch::FetchBranches() {
  branches_.assign(groups_.size(), nullptr);
  std::vector<PageNo> missing;
  std::vector<size_t> missing_groups;
  for (size_t i = 0; i < groups_.size(); ++i) {
    branches_[i] = kept_.Find(groups_[i].page_no);
    if (branches_[i]) continue;
    missing.push_back(groups_[i].page_no);
    missing_groups.push_back(i);
  }
  size_t visited = 0;
  PageBatch batch(database_.pages());
  return batch.ForEach(missing, [&](const TreePage& page) -> Status {
    LMDBIO_TRY(auto branch, OwnBranch(page));
    kept_.Keep(page.header.page_no, branch);
    branches_[missing_groups[visited++]] = std::move(branch);
    return {};
  });
}

Status KeySearch::Descend(std::span<const Bytes> keys) {
  next_groups_.clear();
  for (size_t i = 0; i < groups_.size(); ++i) {
    const BranchPage& branch = branches_[i]->page;
    const uint32_t count = branch.child_count();
    if (count > 1) LMDBIO_TRY_VOID(CheckBounds(groups_[i], branch.key(1), branch.key(count - 1)));
    Split(groups_[i], branch, keys);
  }
  std::swap(groups_, next_groups_);
  return {};
}

// Deals the keys of a group out to the children of its page. Child i has the keys from key(i) up to
// key(i + 1), exclusively; the first and the last child take those of the group's bounds.
void KeySearch::Split(const KeyGroup& group, const BranchPage& branch,
                      std::span<const Bytes> keys) {
  const uint32_t count = branch.child_count();
  const size_t end = group.first_key + group.key_count;
  uint32_t child = 0;
  for (size_t key = group.first_key; key < end;) {
    // The last child whose key is not greater.
    child = LowerBound(order_, branch, std::max(child, 1U), count, keys[key]);
    if (child == count || CompareKeys(order_, branch.key(child), keys[key]) > 0) --child;
    size_t next = end;
    Bound above = group.above;
    if (child + 1 < count) {
      const Bytes limit = branch.key(child + 1);
      const auto first_above = std::partition_point(
          keys.begin() + static_cast<ptrdiff_t>(key), keys.begin() + static_cast<ptrdiff_t>(end),
          [&](Bytes one) { return CompareKeys(order_, one, limit) < 0; });
      next = static_cast<size_t>(first_above - keys.begin());
      above = KeepBound(limit);
    }
    const Bound least = child > 0 ? KeepBound(branch.key(child)) : group.least;
    next_groups_.push_back({branch.child(child), key, next - key, least, above});
    key = next;
  }
}

Status KeySearch::VisitLeaves(std::span<const Bytes> keys, const Visitor& visit) {
  branches_.clear();
  std::vector<PageNo> leaves;
  leaves.reserve(groups_.size());
  for (const KeyGroup& group : groups_) leaves.push_back(group.page_no);
  size_t visited = 0;
  PageBatch batch(database_.pages());
  return batch.ForEach(leaves, [&](const TreePage& page) {
    return FindOnLeaf(groups_[visited++], page, keys, visit);
  });
}

Status KeySearch::FindOnLeaf(const KeyGroup& group, const TreePage& page,
                             std::span<const Bytes> keys, const Visitor& visit) {
  const PageReader& pages = database_.pages();
  if (page.header.kind != PageKind::kLeaf) {
    return pages.Corrupt(group.page_no, fmt::format("is a {} page; expected a leaf page",
                                                    PageKindName(page.header.kind)));
  }
  Result<LeafPage> leaf = LeafPage::Parse(pages.page_format(), page.bytes, page.header);
  if (!leaf) return pages.InFile(std::move(leaf).error());
  const uint32_t count = leaf->entry_count();
  LMDBIO_TRY_VOID(CheckBounds(group, leaf->key(0), leaf->key(count - 1)));
  const uint32_t wrong = FirstOutOfOrder(order_, *leaf, 0, count);
  if (wrong < count) return OutOfOrder(group.page_no, wrong);
  hits_.clear();
  uint32_t node = 0;
  for (size_t key = group.first_key; key < group.first_key + group.key_count; ++key) {
    node = LowerBound(order_, *leaf, node, count, keys[key]);
    if (node < count && CompareKeys(order_, leaf->key(node), keys[key]) == 0) {
      hits_.push_back({key, node});
    } else {
      LMDBIO_TRY_VOID(CheckKeySize(leaf->key(0), keys[key]));
    }
  }
  if (hits_.empty()) return {};
  return visit(FoundLeaf{group.page_no, page.bytes, *leaf, hits_});
}

KeySearch::Bound KeySearch::KeepBound(Bytes key) {
  const Bound bound{bounds_.size(), key.size(), true};
  bounds_.insert(bounds_.end(), key.begin(), key.end());
  return bound;
}

Status KeySearch::CheckBounds(const KeyGroup& group, Bytes first_key, Bytes last_key) const {
  // Integer keys of another size are those of another database.
  const auto is_alike = [&](const Bound& bound, Bytes key) {
    return order_ != KeyOrder::kInteger || bound.size == key.size();
  };
  const auto is_least = [&](const Bound& bound, Bytes key) {
    return is_alike(bound, key) && CompareKeys(order_, BytesOf(bound), key) <= 0;
  };
  const auto is_above = [&](const Bound& bound, Bytes key) {
    return is_alike(bound, key) && CompareKeys(order_, key, BytesOf(bound)) < 0;
  };
  const bool is_within = (!group.least.is_set || is_least(group.least, first_key)) &&
                         (!group.above.is_set || is_above(group.above, last_key));
  if (is_within) return {};
  return database_.pages().Corrupt(
      group.page_no,
      fmt::format("has keys that do not belong below its branch page; {}", kOtherOrder));
}

tl::unexpected<Error> KeySearch::OutOfOrder(PageNo page_no, uint32_t node) const {
  return database_.pages().Corrupt(
      page_no,
      fmt::format("the key of node {} is not greater than the one before; {}", node, kOtherOrder));
}

// An integer of the wrong size is a mistake of the caller, and not an absent key.
Status KeySearch::CheckKeySize(Bytes of_page, Bytes wanted) const {
  if (order_ != KeyOrder::kInteger || of_page.size() == wanted.size()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: a key of {} bytes: the keys of this database are integers of {} "
                          "bytes (MDB_INTEGERKEY)",
                          database_.pages().source().name(), wanted.size(), of_page.size()));
}

}  // namespace lmdbio::file
