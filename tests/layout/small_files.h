// tests/layout/small_files.h - data files of every kind, as small as each kind can be.
//
// For tests that read a file thousands of times: 20 to 500 KB each, several commits old, so that
// they have free pages with stale content.
#ifndef TESTS_LAYOUT_SMALL_FILES_H_
#define TESTS_LAYOUT_SMALL_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

namespace lmdbio::test {

struct SmallFile {
  std::string name;  // "named-512": what it holds and its page size; "v3-..." of data version 3
  std::vector<std::byte> bytes;
};

// Throws std::runtime_error if one cannot be written.
std::vector<SmallFile> SmallFiles();

}  // namespace lmdbio::test
#endif  // TESTS_LAYOUT_SMALL_FILES_H_
