#include "lmdbio/file/layout/page_batch.h"

#include <algorithm>
#include <numeric>

namespace lmdbio::file {
namespace {

// Memory of one batch: enough reads to keep a deep queue busy, and small enough for the CPU cache.
constexpr size_t kBatchBytes = 4 << 20;
constexpr size_t kBatchPagesMin = 64;

// Neighbouring pages are joined into reads of at most this size, so that a batch keeps several
// reads that can overlap.
constexpr size_t kReadBytesMax = 128 << 10;

}  // namespace

PageBatch::PageBatch(const PageReader& pages)
    : pages_(pages),
      capacity_pages_(
          std::max<size_t>(kBatchBytes / pages.page_format().page_size_bytes(), kBatchPagesMin)) {}

// Sorts the pages of the batch by page number and gives each a slot of the buffer in that order.
// Neighbours in the file then have adjacent slots. So they are joined into requests of at most
// kReadBytesMax, each of which fills one contiguous range of the buffer.
Status PageBatch::Fetch(std::span<const PageNo> page_nos) {
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  buffer_.resize(std::max(buffer_.size(), page_nos.size() * page_bytes));
  by_place_.resize(page_nos.size());
  slot_of_.resize(page_nos.size());
  std::iota(by_place_.begin(), by_place_.end(), 0U);
  std::ranges::sort(by_place_, {}, [&](uint32_t i) { return page_nos[i]; });
  requests_.clear();
  for (uint32_t slot = 0; slot < by_place_.size(); ++slot) {
    const PageNo page_no = page_nos[by_place_[slot]];
    LMDBIO_TRY_VOID(pages_.CheckPageNo(page_no));
    slot_of_[by_place_[slot]] = slot;
    const uint64_t offset = page_no.value * page_bytes;
    if (!requests_.empty()) {
      ReadRequest& last = requests_.back();
      if (last.offset + last.destination.size() == offset &&
          last.destination.size() + page_bytes <= kReadBytesMax) {
        last.destination = {last.destination.data(), last.destination.size() + page_bytes};
        continue;
      }
    }
    requests_.push_back({offset, MutableBytes(buffer_).subspan(slot * page_bytes, page_bytes)});
  }
  return pages_.source().ReadMany(requests_).map_error(
      [&](Error&& error) { return std::move(error).Within(pages_.source().name()); });
}

// Reads are in file order and visits in key order. A page is checked at its visit. So an error
// names the first bad page in key order.
Status PageBatch::ForEach(std::span<const PageNo> page_nos, const Visitor& visit) {
  const uint64_t page_bytes = pages_.page_format().page_size_bytes();
  while (!page_nos.empty()) {
    const auto batch = page_nos.first(std::min(page_nos.size(), capacity_pages_));
    LMDBIO_TRY_VOID(Fetch(batch));
    for (size_t i = 0; i < batch.size(); ++i) {
      const Bytes bytes = Bytes(buffer_).subspan(slot_of_[i] * page_bytes, page_bytes);
      LMDBIO_TRY(const TreePage page, pages_.CheckTreePage(batch[i], bytes));
      LMDBIO_TRY_VOID(visit(page));
    }
    page_nos = page_nos.subspan(batch.size());
  }
  return {};
}

}  // namespace lmdbio::file
