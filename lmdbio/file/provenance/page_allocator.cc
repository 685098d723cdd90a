#include "lmdbio/file/provenance/page_allocator.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace lmdbio::file {
namespace {

// A free list record: the transaction id is the key; the value is a count and the page numbers.
constexpr uint64_t kFreeKeyBytes = 8;
constexpr uint64_t FreeValueBytes(uint64_t page_count) { return 8 * (1 + page_count); }

// LMDB stops the search for a run of n free pages after n times this many unsuccessful attempts.
constexpr uint64_t kSearchesPerPage = 60;

}  // namespace

void PageAllocator::BeginTransaction() {
  ++transaction_id_;
  loaded_records_ = 0;
  loaded_pages_ = 0;
  reusable_pages_.clear();
  freed_pages_.clear();
}

// Mirrors mdb_page_alloc: first the reusable pages, then the free records from the oldest on, then
// the end of the file. Records are loaded one at a time and only if needed. This matters, because a
// record that is not loaded keeps its id and so its order for later transactions.
PageNo PageAllocator::Allocate(uint64_t page_count) {
  for (uint64_t searches_left = kSearchesPerPage * page_count;;) {
    if (reusable_pages_.size() >= page_count) {
      if (const auto first = TakeRun(static_cast<size_t>(page_count))) return *first;
      if (searches_left-- == 0) break;
    }
    if (!LoadNextRecord()) break;
  }
  const PageNo first{next_page_};
  next_page_ += page_count;
  return first;
}

std::optional<PageNo> PageAllocator::AllocateAtEnd(uint64_t page_count, uint64_t run_count) {
  if (reusable_pages_.size() >= page_count || HasLoadable()) return std::nullopt;
  const PageNo first{next_page_};
  next_page_ += page_count * run_count;
  return first;
}

PageNo PageAllocator::Replace(PageNo page) {
  const PageNo copy = Allocate(1);
  freed_pages_.push_back(page.value);
  return copy;
}

// Takes the lowest run of consecutive reusable pages.
std::optional<PageNo> PageAllocator::TakeRun(size_t page_count) {
  // The list is descending and has no number twice. So `page_count` neighbours form a run exactly
  // if the first and the last of them differ by `page_count` - 1. The search starts at the lowest
  // numbers.
  for (size_t end = reusable_pages_.size(); end >= page_count; --end) {
    const uint64_t first = reusable_pages_[end - 1];
    if (reusable_pages_[end - page_count] != first + page_count - 1) continue;
    const auto begin = reusable_pages_.begin() + static_cast<ptrdiff_t>(end - page_count);
    reusable_pages_.erase(begin, begin + static_cast<ptrdiff_t>(page_count));
    return PageNo{first};
  }
  return std::nullopt;
}

// Whether an unloaded record is of transaction t - 2 or older, where t is the current transaction.
bool PageAllocator::HasLoadable() const {
  return loaded_records_ < records_.size() &&
         records_[loaded_records_].transaction_id + 1 < transaction_id_;
}

// Moves the pages of the oldest unloaded record to the reusable pages. False if there is none that
// may be loaded.
bool PageAllocator::LoadNextRecord() {
  if (!HasLoadable()) return false;
  const FreeRecord& record = records_[loaded_records_];
  // A record lists its pages in any order, so each is put in its place.
  for (size_t i = 0; i < record.page_count; ++i) {
    const uint64_t page = listed_pages_[loaded_pages_ + i];
    const auto place =
        std::lower_bound(reusable_pages_.begin(), reusable_pages_.end(), page, std::greater<>());
    reusable_pages_.insert(place, page);
  }
  loaded_pages_ += record.page_count;
  ++loaded_records_;
  return true;
}

Status PageAllocator::Commit() {
  // LMDB leaves an unchanged free list alone, as in the first commit of a fresh file.
  if (loaded_records_ == 0 && freed_pages_.empty()) return {};
  UpdateRoot();
  ListPages();
  return CheckOnePage();
}

// Copies the page of the free list, or creates it, because the list is about to change. The copy
// may use a reusable page and load another record, and it frees the old page. So it must come
// before the lists are written.
void PageAllocator::UpdateRoot() { root_ = root_ == file::kNoRoot ? Allocate(1) : Replace(root_); }

// Deletes the loaded records. Lists the pages freed by this transaction under its id. Lists the
// loaded but unused pages again, under the newest id among the deleted records, at the front.
void PageAllocator::ListPages() {
  const uint64_t newest_loaded =
      loaded_records_ == 0 ? 0 : records_[loaded_records_ - 1].transaction_id;
  records_.erase(records_.begin(), records_.begin() + static_cast<ptrdiff_t>(loaded_records_));
  listed_pages_.erase(listed_pages_.begin(),
                      listed_pages_.begin() + static_cast<ptrdiff_t>(loaded_pages_));
  if (!freed_pages_.empty()) {
    records_.push_back({transaction_id_, freed_pages_.size()});
    listed_pages_.insert(listed_pages_.end(), freed_pages_.begin(), freed_pages_.end());
  }
  if (!reusable_pages_.empty()) {
    records_.insert(records_.begin(), {newest_loaded, reusable_pages_.size()});
    listed_pages_.insert(listed_pages_.begin(), reusable_pages_.begin(), reusable_pages_.end());
  }
}

// The model ends where the free list takes a second page: its leaf splits, or the value of one
// record moves to an overflow run. Both would change the page numbers of all later allocations.
Status PageAllocator::CheckOnePage() const {
  uint64_t used_bytes = format_.header_bytes();
  bool is_one_page = true;
  for (const FreeRecord& record : records_) {
    const uint64_t value_bytes = FreeValueBytes(record.page_count);
    used_bytes += file::kSlotBytes + format_.LeafNodeBytes(kFreeKeyBytes, value_bytes);
    is_one_page = is_one_page && !format_.IsOverflow(kFreeKeyBytes, value_bytes);
  }
  if (is_one_page && used_bytes <= format_.page_size_bytes()) return {};
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("replay: transaction {} leaves {} free pages, more than a free list of one "
                  "{}-byte page can hold; the replay models no larger free list",
                  transaction_id_, listed_pages_.size(), format_.page_size_bytes()));
}

}  // namespace lmdbio::file
