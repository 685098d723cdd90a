#include "tests/support/v3_fixture.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include <zstd.h>

#include "tests/support/file_bytes.h"

namespace lmdbio::test {
namespace {

std::filesystem::path Folder() { return std::filesystem::path(LMDBIO_TEST_DATA_DIR) / "v3"; }

std::string Decompress(const std::string& packed) {
  const unsigned long long size_bytes = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size_bytes == ZSTD_CONTENTSIZE_ERROR || size_bytes == ZSTD_CONTENTSIZE_UNKNOWN) {
    throw std::runtime_error("not a zstd frame of known size");
  }
  std::string content(size_bytes, '\0');
  const size_t done = ZSTD_decompress(content.data(), content.size(), packed.data(), packed.size());
  if (ZSTD_isError(done) != 0U) throw std::runtime_error(ZSTD_getErrorName(done));
  return content;
}

bool Exists(const std::string& file_name) {
  return std::filesystem::exists(Folder() / file_name) ||
         std::filesystem::exists(Folder() / (file_name + ".zst"));
}

// Large files are stored compressed.
std::string Load(const std::string& file_name) {
  const std::filesystem::path plain = Folder() / file_name;
  if (std::filesystem::exists(plain)) return ReadWholeTextFile(plain);
  return Decompress(ReadWholeTextFile(plain.string() + ".zst"));
}

}  // namespace

std::vector<std::string> V3FixtureNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const std::string file_name = entry.path().filename().string();
    const std::string name = file_name.substr(0, file_name.find('.'));
    if (file_name.find(".mdb") == std::string::npos) continue;
    if (name != "checksum" && name != "encrypted") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::byte> V3FixtureBytes(std::string_view name) {
  const std::string content = Load(std::string(name) + ".mdb");
  std::vector<std::byte> bytes(content.size());
  std::memcpy(bytes.data(), content.data(), content.size());
  return bytes;
}

std::string V3FixtureText(std::string_view name, std::string_view kind) {
  const std::string file_name = std::string(name) + "." + std::string(kind);
  return Exists(file_name) || kind != "dump-a" ? Load(file_name) : std::string();
}

}  // namespace lmdbio::test
