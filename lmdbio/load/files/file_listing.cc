#include "lmdbio/load/files/file_listing.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::load {
namespace {

// The last part of a path.
std::string NameOf(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

void PutText(const std::string& text, file::ByteWriter& writer) {
  writer.Put(uint64_t{text.size()});
  writer.PutString(text);
}

std::string GetText(file::ByteReader& reader) { return reader.GetString(reader.Get<uint64_t>()); }

}  // namespace

Result<FileListing> ListingOf(const OpenedFiles& files, const std::vector<DatabasePath>& list) {
  FileListing listing;
  for (size_t i = 0; i < files.file_count(); ++i) {
    const file::Database& database = files.database(i);
    LMDBIO_TRY(const uint64_t count, files.CountRecords(i));
    listing.files.push_back({NameOf(list[i].path), list[i].database_name, count,
                             files.snapshot(i).meta.transaction_id, database.record().root.value});
    listing.file_bytes.push_back(files.snapshot(i).file_size_bytes);
  }
  return listing;
}

Status BroadcastListing(ranks::Group& group, FileListing& listing) {
  file::ByteWriter writer;
  for (size_t i = 0; i < listing.files.size(); ++i) {
    const FileIdentity& file = listing.files[i];
    PutText(file.name, writer);
    PutText(file.database_name, writer);
    writer.Put(file.record_count);
    writer.Put(file.transaction_id);
    writer.Put(file.root_page);
    writer.Put(listing.file_bytes[i]);
  }
  std::vector<std::byte> bytes = writer.Take();
  uint64_t sizes[] = {listing.files.size(), bytes.size()};
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(sizes))));
  bytes.resize(sizes[1]);
  LMDBIO_TRY_VOID(group.Broadcast(0, bytes));
  listing = {};
  file::ByteReader reader(bytes);
  for (uint64_t i = 0; i < sizes[0]; ++i) {
    FileIdentity file;
    file.name = GetText(reader);
    file.database_name = GetText(reader);
    file.record_count = reader.Get<uint64_t>();
    file.transaction_id = reader.Get<uint64_t>();
    file.root_page = reader.Get<uint64_t>();
    listing.files.push_back(std::move(file));
    listing.file_bytes.push_back(reader.Get<uint64_t>());
  }
  return {};
}

Status CheckSameFiles(const FileListing& of_rank_0, const OpenedFiles& files,
                      const std::vector<DatabasePath>& list) {
  FileListing mine;
  if (files.file_count() > 1) {
    LMDBIO_TRY(mine, ListingOf(files, list));
  }
  const auto stale = [&](std::string_view what) {
    return Fail(ErrorCode::kStale, fmt::format("{}: {}", files.name(), what));
  };
  if (mine.files.empty() || of_rank_0.files.empty()) {
    return stale(fmt::format("rank 0 has a list of {} files, and this rank one of {}",
                             std::max<size_t>(1, of_rank_0.files.size()), files.file_count()));
  }
  if (const auto difference = ListDifference(mine.files, "this rank", of_rank_0.files, "rank 0")) {
    return stale(*difference);
  }
  for (size_t i = 0; i < mine.files.size(); ++i) {
    if (mine.file_bytes[i] == of_rank_0.file_bytes[i]) continue;
    return Fail(ErrorCode::kStale,
                fmt::format("{}: the file has {} bytes, rank 0 sees {}", files.data_path(i),
                            mine.file_bytes[i], of_rank_0.file_bytes[i]));
  }
  return {};
}

}  // namespace lmdbio::load
