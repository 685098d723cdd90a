// Goal: every kind of file is either read or refused by name.
#include "lmdbio/file/format/meta_page.h"

#include <algorithm>

#include "tests/fixtures/forged_file.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using file::DataVersion;
using file::PageFormat;

std::vector<std::byte> Version1File() {
  const TempDir dir;
  return ReadWholeFile(WriteFixture(FindFixture("one-record"), dir.path()).data_file);
}

Result<PageFormat> Identify(const std::vector<std::byte>& file) {
  return file::IdentifyFile(Bytes(file).first(std::min<size_t>(file.size(), file::kMetaBytes)));
}

std::string Refusal(const std::vector<std::byte>& file, ErrorCode code) {
  const Result<PageFormat> identified = Identify(file);
  if (identified) return "accepted";
  CHECK(identified.error().code() == code);
  return identified.error().message();
}

TEST_CASE("IdentifyFile recognises versions and page sizes", "[format]") {
  CHECK(*Identify(Version1File()) == PageFormat(DataVersion::k1, 4096));
  CHECK(*Identify(V3FixtureBytes("one-record")) == PageFormat(DataVersion::k3, 4096));
  CHECK(*Identify(V3FixtureBytes("page-512")) == PageFormat(DataVersion::k3, 512));
  CHECK(*Identify(V3FixtureBytes("page-65536")) == PageFormat(DataVersion::k3, 65536));
}

TEST_CASE("IdentifyFile refuses foreign files by name", "[format]") {
  const std::vector<std::byte> v1 = Version1File();
  const std::vector<std::byte> v3 = V3FixtureBytes("one-record");
  CHECK(Refusal(Forge32BitFile(4096), ErrorCode::kUnsupported).starts_with("written by a 32-bit"));
  for (const auto& file : {v1, v3}) {
    CHECK(Refusal(ForgeOtherEndianFile(file), ErrorCode::kUnsupported)
              .starts_with("written on a machine of the other byte order"));
  }
  CHECK(Refusal(ForgeVersion(v3, 2), ErrorCode::kUnsupported).starts_with("data version 2"));
  CHECK(Refusal(ForgeVersion(v1, 77), ErrorCode::kUnsupported) ==
        "data version 77 is unknown; expected 1 or 3");
  CHECK(Refusal(V3FixtureBytes("encrypted"), ErrorCode::kUnsupported) ==
        "encrypted files are not supported");
}

TEST_CASE("CheckNoChecksums refuses a checksummed file", "[format]") {
  const std::vector<std::byte> file = V3FixtureBytes("checksum");
  const Result<PageFormat> identified = Identify(file);
  REQUIRE(identified.has_value());
  const Status plain = file::CheckNoChecksums(
      *identified, Bytes(file).subspan(identified->page_size_bytes() - 2, 2));
  REQUIRE_FALSE(plain.has_value());
  CHECK(plain.error().message().starts_with("pages with checksums of "));
}

TEST_CASE("IdentifyFile refuses files of other formats", "[format]") {
  CHECK(Refusal({}, ErrorCode::kCorruption) == "the file is empty");
  CHECK(Refusal(std::vector<std::byte>(8192), ErrorCode::kCorruption) ==
        "not an LMDB data file (no magic number)");
  const std::vector<std::byte> whole = Version1File();
  for (size_t length = 0; length < 152; ++length) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(length));
    CHECK_FALSE(Identify(cut).has_value());
  }
}

TEST_CASE("IdentifyFile refuses impossible page sizes", "[format]") {
  for (const uint32_t size : {0U, 1U, 256U, 4095U, 65536U, 1U << 31}) {
    std::vector<std::byte> file = Version1File();
    std::memcpy(&file[40], &size, sizeof(size));
    CHECK(Refusal(file, ErrorCode::kCorruption) ==
          "page 0: page size " + std::to_string(size) + " is not a power of two in [512, 32768]");
  }
}

TEST_CASE("ParseMetaPage refuses a transaction of the wrong parity", "[format]") {
  std::vector<std::byte> file = Version1File();
  const PageFormat format(DataVersion::k1, 4096);
  REQUIRE(file::ParseMetaPage(format, Bytes(file).subspan(4096), PageNo{1}).has_value());
  file[4096 + 144] ^= std::byte{1};
  const auto meta = file::ParseMetaPage(format, Bytes(file).subspan(4096), PageNo{1});
  // The flipped bit turned 1 into 0, which is valid in a fresh environment. 4 is not valid here.
  file[4096 + 144] = std::byte{4};
  const auto other = file::ParseMetaPage(format, Bytes(file).subspan(4096), PageNo{1});
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().message() == "page 1: transaction 4 belongs in the other meta page");
}

TEST_CASE("CheckTree refuses impossible database records", "[format]") {
  const PageFormat format(DataVersion::k1, 4096);
  file::DatabaseRecord good;
  good.root = PageNo{5};
  good.depth = 2;
  good.branch_pages = 1;
  good.leaf_pages = 3;
  good.entry_count = 100;
  REQUIRE(file::CheckTree(good, format, PageNo{9}).has_value());
  const auto refused = [&](auto change) {
    file::DatabaseRecord record = good;
    change(record);
    return !file::CheckTree(record, format, PageNo{9}).has_value();
  };
  CHECK(refused([](auto& record) { record.root = PageNo{1}; }));
  CHECK(refused([](auto& record) { record.root = PageNo{10}; }));
  CHECK(refused([](auto& record) { record.root = file::kNoRoot; }));
  CHECK(refused([](auto& record) { record.depth = 0; }));
  CHECK(refused([](auto& record) { record.depth = 33; }));
  // LMDB 0.9.36 and 1.0 leave wrong page counters when a key with many duplicates is deleted.
  CHECK_FALSE(refused([](auto& record) { record.leaf_pages = 10; }));
  CHECK(refused([](auto& record) { record.entry_count = 10 * 4096; }));
  CHECK(refused([](auto& record) { record.entry_count = 0; }));
  CHECK(refused([](auto& record) { record.root = file::kNoRoot, record.depth = 0; }));

  // With duplicates, LMDB miscounts records; root and depth stay exact.
  good.flags = file::kDupSort;
  CHECK_FALSE(refused([](auto& record) { record.entry_count = 10 * 4096; }));
  CHECK_FALSE(refused([](auto& record) { record.entry_count = ~uint64_t{0}; }));
  CHECK_FALSE(refused([](auto& record) { record.entry_count = 0; }));
  CHECK_FALSE(refused([](auto& record) { record.root = file::kNoRoot, record.depth = 0; }));
  CHECK(refused([](auto& record) { record.root = file::kNoRoot; }));
  CHECK(refused([](auto& record) { record.depth = 33; }));
}

}  // namespace
}  // namespace lmdbio::test
