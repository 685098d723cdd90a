#include "tools/cli/provenance_file.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::tools {
namespace {

// An exact layout takes about three bytes for each record. No useful provenance file is larger than
// its data file, except beside a database of a few records.
uint64_t SizeBytesMax(const file::Snapshot& snapshot) {
  return snapshot.file_size_bytes + (1 << 20);
}

// Checked before opening, because opening a pipe would wait for a writer.
Status CheckIsFile(const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status found = std::filesystem::status(path, none);
  if (!std::filesystem::exists(found) || std::filesystem::is_regular_file(found)) return {};
  return Fail(ErrorCode::kInvalidArgument, path + ": is not a regular file");
}

}  // namespace

Result<ProvenanceFile> ReadProvenanceFile(const file::Database& database) {
  const file::PageReader& pages = database.pages();
  ProvenanceFile file;
  file.path = file::ProvenancePath(pages.source().name(), database.name());
  LMDBIO_TRY_VOID(CheckIsFile(file.path));
  LMDBIO_TRY(const std::vector<std::byte> bytes,
             file::ReadSmallFile(file.path, SizeBytesMax(pages.snapshot())));
  file.size_bytes = bytes.size();
  LMDBIO_TRY(file.provenance, file::Provenance::Decode(bytes).map_error([&](Error&& error) {
    return std::move(error).Within(file.path);
  }));
  return file;
}

}  // namespace lmdbio::tools
