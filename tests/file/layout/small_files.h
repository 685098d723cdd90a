// tests/file/layout/small_files.h - data files of every kind, each as small as possible.
//
// For tests that read a file thousands of times: 20 to 500 KB each, several commits old, so that
// they have free pages with stale content.
#ifndef LMDBIO_TESTS_FILE_LAYOUT_SMALL_FILES_H_
#define LMDBIO_TESTS_FILE_LAYOUT_SMALL_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

namespace lmdbio::test {

struct SmallFile {
  std::string name;  // "named-512": its content and page size; "v3-...": data version 3
  std::vector<std::byte> bytes;
};

// Throws std::runtime_error if one cannot be written.
std::vector<SmallFile> SmallFiles();

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_LAYOUT_SMALL_FILES_H_
