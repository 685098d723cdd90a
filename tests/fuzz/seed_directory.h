// tests/fuzz/seed_directory.h - the first inputs of one fuzzer.
#ifndef LMDBIO_TESTS_FUZZ_SEED_DIRECTORY_H_
#define LMDBIO_TESTS_FUZZ_SEED_DIRECTORY_H_

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/types.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {

class SeedDirectory {
 public:
  SeedDirectory(const std::filesystem::path& parent, const char* name) : path_(parent / name) {
    std::filesystem::create_directories(path_);
  }
  // choices  the first bytes of the input; see the fuzzer
  void Write(const std::string& name, std::initializer_list<uint8_t> choices, Bytes content) const {
    std::vector<std::byte> seed;
    for (const uint8_t choice : choices) seed.push_back(std::byte{choice});
    seed.insert(seed.end(), content.begin(), content.end());
    WriteWholeFile(path_ / name, seed);
  }
  void Write(const std::string& name, uint8_t choice, Bytes content) const {
    Write(name, {choice}, content);
  }
  void Write(const std::string& name, std::initializer_list<uint8_t> choices,
             std::string_view text) const {
    Write(name, choices, AsBytes(text));
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_SEED_DIRECTORY_H_
