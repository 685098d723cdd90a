// tests/fuzz/kept_database.h - a database for which files are kept, and its kept files in parts.
//
// A kept file is refused unless its fingerprint is that of the database. So its part behind the
// fingerprint is what a fuzzer changes.
#ifndef LMDBIO_TESTS_FUZZ_KEPT_DATABASE_H_
#define LMDBIO_TESTS_FUZZ_KEPT_DATABASE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/provenance/fingerprint.h"
#include "lmdbio/file/provenance/sealed_file.h"
#include "tests/fixtures/memory_source.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {

class KeptDatabase {
 public:
  static constexpr size_t kHeadBytes = 32;  // of a sealed file
  static constexpr uint64_t kRecordCount = 120;

  KeptDatabase() {
    TinyDb db(dir_.path(), {.page_size_bytes = 512});
    for (uint64_t i = 0; i < kRecordCount; ++i) {
      db.Put(fmt::format("{:05}", i), std::string(20 + i % 7 * 90, 'v'));
    }
    db.Commit();
    source_.emplace(ReadWholeFile(db.data_file()), db.data_file().string());
    const auto environment = file::Environment::Open(*source_);
    LMDBIO_CHECK(environment.has_value());
    database_.emplace(environment->Main());
    file::LayoutBuilder builder;
    const auto leaves = file::WalkDatabase(*database_, builder);
    LMDBIO_CHECK(leaves.has_value());
    layout_ = builder.Finish();
    const auto fingerprint = file::TakeFingerprint(*database_, *leaves);
    LMDBIO_CHECK(fingerprint.has_value());
    fingerprint_ = *fingerprint;
    file::ByteWriter out;
    file::EncodeFingerprint(fingerprint_, out);
    fingerprint_bytes_ = out.Take();
  }

  const file::Database& database() const { return *database_; }
  const file::Layout& layout() const { return layout_; }
  const file::Fingerprint& fingerprint() const { return fingerprint_; }
  std::string folder() const { return (dir_.path() / "kept").string(); }

  // The part behind the fingerprint.
  Bytes TailOf(Bytes file) const { return file.subspan(kHeadBytes + fingerprint_bytes_.size()); }
  // The file with this tail.
  // magic, kind  of the header
  std::vector<std::byte> FileOf(std::string_view magic, uint32_t kind, Bytes tail) const {
    std::vector<std::byte> body = fingerprint_bytes_;
    body.insert(body.end(), tail.begin(), tail.end());
    return file::Seal({.name = "kept file", .magic = magic, .version = 1}, kind, body);
  }

 private:
  TempDir dir_;
  std::optional<MemorySource> source_;
  std::optional<file::Database> database_;
  file::Layout layout_;
  file::Fingerprint fingerprint_;
  std::vector<std::byte> fingerprint_bytes_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_KEPT_DATABASE_H_
