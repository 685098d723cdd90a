// tests/support/file_bytes.h - reads and writes whole files, and lists folders.
//
// All functions throw std::runtime_error, naming the file, on any failure.
#ifndef LMDBIO_TESTS_SUPPORT_FILE_BYTES_H_
#define LMDBIO_TESTS_SUPPORT_FILE_BYTES_H_

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/types.h"

namespace lmdbio::test {

std::vector<std::byte> ReadWholeFile(const std::filesystem::path& path);
std::string ReadWholeTextFile(const std::filesystem::path& path);

// Replaces the file.
void WriteWholeFile(const std::filesystem::path& path, Bytes content);

// The names in a folder.
std::set<std::string> NamesIn(const std::filesystem::path& folder);

// The bytes of `text`. Lifetime: that of the characters that `text` views.
inline Bytes AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// The same memory as characters, for comparisons and messages.
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_FILE_BYTES_H_
