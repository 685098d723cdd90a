// tests/support/temp_dir.h - a directory of the test's own, gone when the test is.
#ifndef TESTS_SUPPORT_TEMP_DIR_H_
#define TESTS_SUPPORT_TEMP_DIR_H_

#include <filesystem>

namespace lmdbio::test {

// Throws std::runtime_error if the system's temporary directory refuses a new one.
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
#endif  // TESTS_SUPPORT_TEMP_DIR_H_
