#include "tests/file/output/write_output.h"

#include "lmdbio/file/output/output_file.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {

Status WriteOutput(const std::filesystem::path& path, const std::string& content) {
  LMDBIO_TRY(const auto file, file::OutputFile::Create(path));
  LMDBIO_TRY_VOID(file->Write(AsBytes(content)));
  return file->Publish();
}

}  // namespace lmdbio::test
