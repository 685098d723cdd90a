// tests/fuzz/write_seeds.cc - the first inputs of the fuzzers, from small sound files and messages.
//
//   write_seeds DIRECTORY       writes DIRECTORY/FUZZER/*
#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/file/keys/key_index.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/provenance.h"
#include "tests/file/layout/small_files.h"
#include "tests/fixtures/memory_source.h"
#include "tests/fuzz/message_seeds.h"
#include "tests/fuzz/seed_directory.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {
namespace {

constexpr size_t kSeedBytesMax = 64 * 1024;

template <typename T>
T Value(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

void WritePages(const SeedDirectory& seeds, const SmallFile& file, file::PageFormat format) {
  if (format.page_size_bytes() != 512) return;
  const uint8_t choice = format.version() == file::DataVersion::k1 ? 0 : 1;
  for (size_t at = 0; at + 512 <= file.bytes.size(); at += 512) {
    seeds.Write(file.name + "-" + std::to_string(at / 512), choice,
                Bytes(file.bytes).subspan(at, 512));
  }
}

void WriteExactLayout(const SeedDirectory& seeds, const std::string& name,
                      const file::Database& database) {
  file::LayoutBuilder builder;
  const std::vector<PageNo> leaves = Value(file::WalkDatabase(database, builder));
  file::ExactEncoder encoder(database.pages().page_format());
  const file::Layout layout = builder.Finish();
  LMDBIO_CHECK(layout.Expand(encoder).has_value());
  const auto fingerprint = Value(file::TakeFingerprint(database, leaves));
  seeds.Write(name, 0,
              file::EncodeExactLayout(fingerprint, layout.record_count(), encoder.Finish()));
}

// An ordered load of 300 records, with the two forms of sizes that a file can hold.
void WriteLoads(const SeedDirectory& seeds) {
  std::vector<uint32_t> sizes(300);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = static_cast<uint32_t>(i * i % 700);
  for (const auto& values : {file::SizeColumn::Constant(90), file::SizeColumn::Each(sizes)}) {
    file::Fingerprint fingerprint;
    const file::OrderedLoad load{.record_count = sizes.size(),
                                 .commit_interval_records = 40,
                                 .key_bytes = file::SizeColumn::Constant(8),
                                 .value_bytes = values};
    file::LayoutBuilder builder;
    const auto totals = Value(file::Replay(fingerprint.page_format, load, builder));
    fingerprint.last_page = totals.last_page;
    fingerprint.record = {.depth = static_cast<uint16_t>(totals.depth),
                          .branch_pages = totals.branch_pages,
                          .leaf_pages = totals.leaf_pages,
                          .overflow_pages = totals.overflow_pages,
                          .entry_count = sizes.size(),
                          .root = totals.root};
    seeds.Write(values.is_constant() ? "load-constant" : "load-listed", 0,
                file::EncodeOrderedLoad(fingerprint, load, totals));
  }
  const std::vector<std::byte> numbers(200, std::byte{7});
  seeds.Write("numbers", 1, numbers);
  seeds.Write("load", 2, numbers);
}

void WriteKeyIndex(const SeedDirectory& seeds) {
  constexpr uint64_t kCount = 40;
  file::KeyIndexBuilder builder(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    const std::string key = std::to_string(i);
    builder.Add(std::as_bytes(std::span(key)), i);
  }
  seeds.Write("index", 0, std::move(builder).Finish().Encode({}));
  for (const std::string name : {"{}", "image-{:09d}"}) {
    // The size of the template, the template, a key.
    const std::string text = static_cast<char>(name.size()) + name + "image-000000007";
    seeds.Write("template-" + std::to_string(name.size()), 1, std::as_bytes(std::span(text)));
  }
}

void WriteSeeds(const std::filesystem::path& directory) {
  const SeedDirectory pages(directory, "format");
  const SeedDirectory files(directory, "layout");
  const SeedDirectory provenances(directory, "provenance");
  const SeedDirectory keys(directory, "keys");
  WriteLoads(provenances);
  WriteKeyIndex(keys);
  for (const SmallFile& file : SmallFiles()) {
    const MemorySource source(file.bytes, file.name);
    const auto environment = Value(file::Environment::Open(source));
    WriteExactLayout(provenances, file.name, environment.Main());
    size_t count = 0;
    for (const std::string& name : Value(environment.Names())) {
      WriteExactLayout(provenances, file.name + "-named-" + std::to_string(++count),
                       Value(environment.Named(name)));
    }
    WritePages(pages, file, environment.snapshot().page_format);
    if (file.bytes.size() > kSeedBytesMax) continue;
    WriteWholeFile(files.path() / file.name, file.bytes);
    keys.Write(file.name, 2, file.bytes);
  }
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  lmdbio::test::WriteSeeds(argv[1]);
  lmdbio::test::WriteMessageSeeds(argv[1]);
  return 0;
}
