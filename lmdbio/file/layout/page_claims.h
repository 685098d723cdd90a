// lmdbio/file/layout/page_claims.h - the set of visited pages: detects cycles and shared pages.
//
// In a sound file every page has one reference, from one tree. A pass over a tree claims each page
// that it visits. A second claim of a page proves that the file is damaged, and stops the pass
// before a cycle makes it endless.
#ifndef LMDBIO_FILE_LAYOUT_PAGE_CLAIMS_H_
#define LMDBIO_FILE_LAYOUT_PAGE_CLAIMS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lmdbio/base/types.h"

namespace lmdbio::file {

class PageClaims {
 public:
  // page_count  pages in the file; one bit each
  explicit PageClaims(uint64_t page_count) : taken_(page_count, false) {}

  // False if any of the pages was claimed before (or lies outside the file).
  [[nodiscard]] bool Claim(PageNo first, uint64_t count = 1) {
    if (first.value >= taken_.size() || count > taken_.size() - first.value) return false;
    const auto begin = taken_.begin() + static_cast<std::ptrdiff_t>(first.value);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    if (std::find(begin, end, true) != end) return false;
    std::fill(begin, end, true);
    return true;
  }

 private:
  std::vector<bool> taken_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_PAGE_CLAIMS_H_
