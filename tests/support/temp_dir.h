// tests/support/temp_dir.h - a temporary directory, removed at the end of the test.
#ifndef LMDBIO_TESTS_SUPPORT_TEMP_DIR_H_
#define LMDBIO_TESTS_SUPPORT_TEMP_DIR_H_

#include <filesystem>

namespace lmdbio::test {

// Throws std::runtime_error if the directory cannot be created.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_TEMP_DIR_H_
