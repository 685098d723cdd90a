#include "lmdbio/file/layout/snapshot.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lmdbio::file {
namespace {

struct MetaPair {
  MetaPage pages[2];
  const MetaPage& newer() const {
    return pages[pages[0].transaction_id < pages[1].transaction_id ? 1 : 0];
  }
  friend bool operator==(const MetaPair&, const MetaPair&) = default;
};

// Readings of the meta pages before the function gives up. LMDB writes a meta page in one small
// write, so a reading that overlaps the write differs from the next reading.
constexpr int kReadingsMax = 64;

// Uses ReadMany, because no source serves it from a buffer of earlier bytes.
Result<MetaPair> ReadMetas(const ByteSource& source, PageFormat format) {
  std::array<std::array<std::byte, file::kMetaBytes>, file::kMetaPageCount> bytes;
  const std::array<ReadRequest, file::kMetaPageCount> requests = {
      ReadRequest{0, bytes[0]}, ReadRequest{format.page_size_bytes(), bytes[1]}};
  LMDBIO_TRY_VOID(source.ReadMany(requests));
  MetaPair pair;
  for (uint64_t i = 0; i < file::kMetaPageCount; ++i) {
    LMDBIO_TRY(pair.pages[i], ParseMetaPage(format, bytes[i], PageNo{i}));
  }
  return pair;
}

// Repeats the reading until two in a row agree. An error that occurs twice in a row is lasting
// damage and is returned. An error followed by any other result was a torn reading.
Result<MetaPair> ReadMetasTwiceAlike(const ByteSource& source, PageFormat format) {
  Result<MetaPair> before = ReadMetas(source, format);
  for (int reading = 1; reading < kReadingsMax; ++reading) {
    Result<MetaPair> after = ReadMetas(source, format);
    if (before && after && *before == *after) return after;
    if (!before && !after && before.error().message() == after.error().message()) return after;
    before = std::move(after);
  }
  return Fail(ErrorCode::kStale, "the meta pages change faster than they can be read");
}

// The steps depend on each other: the head gives the page size, and the page size gives the offsets
// of the second meta page and of the last two bytes of page 0, in which version 3 states the size
// of page checksums. The free list is not checked, because readers of records do not use it;
// Environment::FreeList does it.
Result<Snapshot> Take(const ByteSource& source) {
  LMDBIO_TRY(const uint64_t size_bytes, source.SizeBytes());
  std::array<std::byte, file::kMetaBytes> scratch;
  const uint64_t head_bytes = std::min<uint64_t>(size_bytes, scratch.size());
  LMDBIO_TRY(const Bytes head, source.Read({0, head_bytes}, scratch));
  LMDBIO_TRY(const PageFormat format, IdentifyFile(head));
  const uint64_t metas_bytes = uint64_t{file::kMetaPageCount} * format.page_size_bytes();
  if (size_bytes < metas_bytes) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("page {}: the file ends inside it, after {} bytes",
                            format.PagesBefore(size_bytes), size_bytes));
  }
  std::array<std::byte, 2> tail_scratch;
  LMDBIO_TRY(const Bytes tail,
             source.Read({format.page_size_bytes() - tail_scratch.size(), tail_scratch.size()},
                         tail_scratch));
  LMDBIO_TRY_VOID(CheckNoChecksums(format, tail));
  LMDBIO_TRY(const MetaPair metas, ReadMetasTwiceAlike(source, format));
  const MetaPage& meta = metas.newer();
  const std::string where = fmt::format("page {} (meta): main database", meta.page_no.value);
  Status checked = CheckTree(meta.main, format, meta.last_page);
  if (checked) checked = CheckUserFlags(meta.main);
  if (!checked) return Fail(std::move(checked).error().Within(where));
  // The writer extends the file before it commits the meta page, so this size covers all pages that
  // `meta` refers to.
  LMDBIO_TRY(const uint64_t size_now_bytes, source.SizeBytes());
  if (size_now_bytes < metas_bytes) {
    return Fail(ErrorCode::kStale, "the file shrank while it was being opened");
  }
  return Snapshot{format, meta, size_now_bytes};
}

Status Holds(const ByteSource& source, const Snapshot& snapshot) {
  LMDBIO_TRY(const uint64_t size_bytes, source.SizeBytes());
  if (size_bytes < snapshot.file_size_bytes) {
    return Fail(ErrorCode::kStale,
                fmt::format("the file shrank from {} to {} bytes while it was being read",
                            snapshot.file_size_bytes, size_bytes));
  }
  LMDBIO_TRY(const MetaPair metas, ReadMetasTwiceAlike(source, snapshot.page_format));
  const uint64_t newest = metas.newer().transaction_id;
  const uint64_t taken = snapshot.meta.transaction_id;
  // Transaction taken + 3 is the first that may reuse pages of `taken`. It may already write while
  // taken + 2 is the newest visible transaction. So taken + 1 is the last safe one.
  if (newest < taken || newest > taken + 1) {
    return Fail(ErrorCode::kStale,
                fmt::format("the database changed while it was being read (transaction {} to {})",
                            taken, newest));
  }
  return {};
}

}  // namespace

Result<Snapshot> TakeSnapshot(const ByteSource& source) {
  return Take(source).map_error(
      [&](Error&& error) { return std::move(error).Within(source.name()); });
}

Status CheckSnapshotHolds(const ByteSource& source, const Snapshot& snapshot) {
  return Holds(source, snapshot).map_error([&](Error&& error) {
    return std::move(error).Within(source.name());
  });
}

}  // namespace lmdbio::file
