#include "lmdbio/file/source/small_file.h"

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "lmdbio/file/output/output_file.h"
#include "lmdbio/file/source/file_source.h"

namespace lmdbio::file {

Result<std::vector<std::byte>> ReadSmallFile(const std::string& path, uint64_t size_bytes_max) {
  // Checked before opening, because opening a FIFO would wait for a writer.
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: is not a regular file", path));
  }
  LMDBIO_TRY(const std::unique_ptr<FileSource> file, FileSource::Open(path));
  const auto with_path = [&](Error&& error) { return std::move(error).Within(path); };
  LMDBIO_TRY(const uint64_t size_bytes, file->SizeBytes().map_error(with_path));
  if (size_bytes > size_bytes_max) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("{}: has {} bytes; expected at most {}",
                                                           path, size_bytes, size_bytes_max));
  }
  // A file that shrinks now is an error of the read; one that grows is read as it was.
  std::vector<std::byte> bytes(size_bytes);
  LMDBIO_TRY_VOID(file->Read({0, size_bytes}, bytes).map_error(with_path));
  return bytes;
}

Status WriteFileAtomically(const std::string& path, Bytes bytes) {
  LMDBIO_TRY(const std::unique_ptr<OutputFile> file, OutputFile::Create(path));
  LMDBIO_TRY_VOID(file->Write(bytes));
  return file->Publish();
}

}  // namespace lmdbio::file
