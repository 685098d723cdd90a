#include "lmdbio/load/view/key_stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/file/layout/page_walk.h"

namespace lmdbio::load {
namespace {

// The leaf pages that are read at once.
constexpr size_t kLeavesAtOnce = 1024;

}  // namespace

KeyStream::KeyStream(const file::Database& database)
    : database_(database), batch_(database_.pages()) {
  if (database_.record().has_duplicates()) scan_ = std::make_unique<file::RecordScan>(database_);
}

// The records of duplicates lie in trees and pages of their own, which a scan knows.
Result<bool> KeyStream::NextDuplicate() {
  LMDBIO_TRY(const bool found, scan_->Next());
  if (!found) return false;
  key_ = scan_->cursor().key();
  number_ = count_++;
  return true;
}

Status KeyStream::ReadLeaves() {
  bytes_.clear();
  ends_.clear();
  next_key_ = 0;
  const auto left = std::span(*leaves_).subspan(next_leaf_);
  const auto now = left.first(std::min(left.size(), kLeavesAtOnce));
  next_leaf_ += now.size();
  const file::PageReader& pages = database_.pages();
  return batch_.ForEach(now, [&](const file::TreePage& page) -> Status {
    if (page.header.kind != file::PageKind::kLeaf) {
      return pages.Corrupt(page.header.page_no, "is not a leaf page, but a branch page has it so");
    }
    auto leaf = file::LeafPage::Parse(pages.page_format(), page.bytes, page.header);
    if (!leaf) return pages.InFile(std::move(leaf).error());
    for (uint32_t node = 0; node < leaf->entry_count(); ++node) {
      const Bytes key = leaf->key(node);
      bytes_.insert(bytes_.end(), key.begin(), key.end());
      ends_.push_back(bytes_.size());
    }
    return {};
  });
}

Result<bool> KeyStream::Next() {
  if (scan_) return NextDuplicate();
  if (!leaves_) {
    leaves_.emplace();
    if (!database_.record().empty()) {
      file::PageClaims claims(database_.pages().snapshot().page_count());
      LMDBIO_TRY(leaves_, file::ListLeaves(database_, claims));
    }
  }
  while (next_key_ == ends_.size()) {
    if (next_leaf_ == leaves_->size()) {
      if (database_.AcceptsRecordCount(count_)) return false;
      return Fail(ErrorCode::kCorruption,
                  fmt::format("{}: the tree has {} records, but its database record states {}",
                              database_.pages().source().name(), count_, database_.entry_count()));
    }
    LMDBIO_TRY_VOID(ReadLeaves());
  }
  const uint64_t begin = next_key_ == 0 ? 0 : ends_[next_key_ - 1];
  key_ = Bytes(bytes_).subspan(begin, ends_[next_key_++] - begin);
  number_ = count_++;
  return true;
}

}  // namespace lmdbio::load
