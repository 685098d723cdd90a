#include "tests/support/temp_dir.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace lmdbio::test {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lmdbio-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("mkdtemp " + pattern + ": " + std::strerror(errno));
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;  // a directory that remains must not fail the test run
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lmdbio::test
