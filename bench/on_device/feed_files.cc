#include "bench/on_device/feed_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/writer/database_writer.h"
#include "tools/make/synthetic_records.h"

namespace lmdbio::figures {
namespace {

constexpr uint64_t kSeed = 11;

}  // namespace

Result<FeedFiles> FeedFiles::Write(const std::string& folder, const FeedShape& shape) {
  LMDBIO_TRY(bench::ScratchFolder made, bench::ScratchFolder::Make(folder, "figures"));
  FeedFiles files(std::move(made));
  file::WriterOptions options;
  options.path = files.database();
  LMDBIO_TRY(file::DatabaseWriter writer, file::DatabaseWriter::Create(options));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> plain(
      std::fopen(files.values().c_str(), "we"), &std::fclose);
  if (plain == nullptr) return Fail(ErrnoError(errno, files.values(), "create"));
  std::vector<std::byte> value(shape.record_bytes);
  for (uint64_t record = 0; record < shape.record_count(); ++record) {
    tools::FillSyntheticValue(kSeed, record, value);
    const std::string key = fmt::format("{:08}", record);
    LMDBIO_TRY_VOID(writer.Put(std::as_bytes(std::span(key)), value));
    if (std::fwrite(value.data(), 1, value.size(), plain.get()) != value.size()) {
      return Fail(ErrnoError(errno, files.values(), "write"));
    }
  }
  if (std::fflush(plain.get()) != 0) return Fail(ErrnoError(errno, files.values(), "write"));
  LMDBIO_TRY_VOID(writer.Finish());
  return files;
}

bool IsFeedValue(Bytes key, Bytes value) {
  const std::string text(reinterpret_cast<const char*>(key.data()), key.size());
  std::vector<std::byte> expected(value.size());
  tools::FillSyntheticValue(kSeed, std::strtoull(text.c_str(), nullptr, 10), expected);
  return std::ranges::equal(expected, value);
}

}  // namespace lmdbio::figures
