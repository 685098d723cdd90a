// lmdbio/file/layout/page_batch.h - fetches many tree pages in large batches and visits them in
// order.
#ifndef LMDBIO_FILE_LAYOUT_PAGE_BATCH_H_
#define LMDBIO_FILE_LAYOUT_PAGE_BATCH_H_

#include <functional>
#include <span>
#include <vector>

#include "lmdbio/file/layout/page_reader.h"

namespace lmdbio::file {

class PageBatch {
 public:
  // pages  must outlive the batch
  explicit PageBatch(const PageReader& pages);

  using Visitor = std::function<Status(const TreePage& page)>;

  // Fetches `page_nos` and calls `visit` for each, in the given order. The reads of a batch are
  // issued in file order; neighbouring pages are one read.
  // Errors: kIo, kCorruption; the first error of `visit`
  Status ForEach(std::span<const PageNo> page_nos, const Visitor& visit);

 private:
  Status Fetch(std::span<const PageNo> page_nos);

  const PageReader& pages_;
  size_t capacity_pages_;
  std::vector<std::byte> buffer_;   // [capacity_pages_ * page size] once used
  std::vector<uint32_t> by_place_;  // the batch's pages in file order: slot i holds by_place_[i]
  std::vector<uint32_t> slot_of_;   // the inverse
  std::vector<ReadRequest> requests_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_PAGE_BATCH_H_
