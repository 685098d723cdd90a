// tests/fuzz/mutate_pages.h - mutations of whole pages, in addition to those of libFuzzer.
#ifndef LMDBIO_TESTS_FUZZ_MUTATE_PAGES_H_
#define LMDBIO_TESTS_FUZZ_MUTATE_PAGES_H_

#include <algorithm>
#include <cstring>

#include "lmdbio/file/format/meta_page.h"
#include "tests/support/random.h"

namespace lmdbio::test {

// Depending on the seed, copies one page over another, redirects a page number, and restores the
// own number of every page. Without this, random bytes rarely pass the check of the page number.
inline void MutatePages(MutableBytes file, uint64_t seed) {
  const Result<file::PageFormat> format =
      file::IdentifyFile(file.first(std::min<size_t>(file.size(), file::kMetaBytes)));
  if (!format) return;
  Random random(seed);
  const size_t page_bytes = format->page_size_bytes();
  const uint64_t page_count = file.size() / page_bytes;
  if (page_count <= file::kMetaPageCount) return;
  const auto any_page = [&] { return random.Between(file::kMetaPageCount, page_count - 1); };
  if (random.Below(8) == 0) {
    std::memmove(file.data() + any_page() * page_bytes, file.data() + any_page() * page_bytes,
                 page_bytes);
  }
  if (random.Below(8) == 0) {
    const uint16_t target = static_cast<uint16_t>(any_page());
    std::memcpy(file.data() + random.Below(file.size() / 2 - 1) * 2, &target, sizeof(target));
  }
  if (random.Below(4) == 0) return;
  for (uint64_t page = 0; page < page_count; ++page) {
    std::memcpy(file.data() + page * page_bytes, &page, sizeof(page));
  }
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_MUTATE_PAGES_H_
