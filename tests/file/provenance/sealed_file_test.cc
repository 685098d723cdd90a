// Goal: the header of a sealed file is the documented one, and no change of a byte goes unnoticed.
#include "lmdbio/file/provenance/sealed_file.h"

#include <cstring>
#include <string>

#include <fmt/format.h>
#include <xxhash.h>

#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

constexpr file::SealedFormat kFormat = {.name = "test", .magic = "LMDBTEST", .version = 3};

template <typename T>
T NumberAt(Bytes file, size_t offset) {
  T number;
  std::memcpy(&number, file.data() + offset, sizeof(T));
  return number;
}

std::vector<std::byte> Sealed(const std::string& body) {
  return file::Seal(kFormat, 2, std::as_bytes(std::span(body)));
}

TEST_CASE("A sealed file has the documented header", "[provenance]") {
  for (const std::string body : {"", "x", "a body of more bytes than a number has"}) {
    const std::vector<std::byte> file = Sealed(body);
    REQUIRE(file.size() == 32 + body.size());
    CHECK(std::memcmp(file.data(), "LMDBTEST", 8) == 0);
    CHECK(NumberAt<uint32_t>(file, 8) == 3);
    CHECK(NumberAt<uint32_t>(file, 12) == 2);
    CHECK(NumberAt<uint64_t>(file, 16) == file.size());
    CHECK(NumberAt<uint64_t>(file, 24) ==
          XXH64(body.data(), body.size(), XXH64(file.data(), 24, 0)));
    const auto content = file::Unseal(kFormat, file);
    REQUIRE(content);
    CHECK(content->kind == 2);
    CHECK(std::string(reinterpret_cast<const char*>(content->body.data()), content->body.size()) ==
          body);
  }
}

TEST_CASE("A sealed file refuses every cut and every changed byte", "[provenance]") {
  const std::vector<std::byte> sound = Sealed("content");
  for (size_t size = 0; size < sound.size(); ++size) {
    const auto cut = file::Unseal(kFormat, Bytes(sound).first(size));
    REQUIRE_FALSE(cut);
    REQUIRE(cut.error().code() == ErrorCode::kCorruption);
    if (size < 32) continue;
    REQUIRE(cut.error().message() ==
            fmt::format("test: {} bytes long, its header says {}", size, sound.size()));
  }
  for (size_t at = 0; at < sound.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> changed = sound;
      changed[at] ^= std::byte{1} << bit;
      const auto content = file::Unseal(kFormat, changed);
      REQUIRE_FALSE(content);
      const bool is_version = at >= 8 && at < 12;
      REQUIRE(content.error().code() ==
              (is_version ? ErrorCode::kUnsupported : ErrorCode::kCorruption));
    }
  }
  const file::SealedFormat other = {.name = "other", .magic = "LMDBOTHR", .version = 3};
  CHECK(file::Unseal(other, sound).error().message() == "other: this is no file of this kind");
}

TEST_CASE("Reseal makes a changed file fit", "[provenance]") {
  std::vector<std::byte> file = Sealed("content");
  file.pop_back();
  file[12] = std::byte{9};
  REQUIRE_FALSE(file::Unseal(kFormat, file));
  file::Reseal(file);
  const auto content = file::Unseal(kFormat, file);
  REQUIRE(content);
  CHECK(content->kind == 9);
  CHECK(content->body.size() == 6);
  std::vector<std::byte> too_short(31, std::byte{1});
  file::Reseal(too_short);
  CHECK(too_short == std::vector<std::byte>(31, std::byte{1}));
}

}  // namespace
}  // namespace lmdbio::test
