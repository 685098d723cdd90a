// lmdbio/file/io/output_file.h - an output file that appears at its path complete or not at all.
//
//   LMDBIO_TRY(const auto file, OutputFile::Create("report.json"));
//   LMDBIO_TRY_VOID(file->Write(bytes));
//   LMDBIO_TRY_VOID(file->Publish());
#ifndef LMDBIO_FILE_IO_OUTPUT_FILE_H_
#define LMDBIO_FILE_IO_OUTPUT_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// The file that exists at the path decides how the output is written:
//
//   none, or a regular file   Publish renames a new file from the same directory to the path
//   a symbolic link           the link stays; the rule applies to the file at its end
//   a device or a FIFO        Write sends the bytes to it directly
//
// Threads: one at a time.
class OutputFile {
 public:
  // Opens the file for writing. If it is a FIFO, the call waits for a reader.
  // Errors: kNotFound           the directory does not exist
  //         kPermission         the directory, or the device, may not be written
  //         kInvalidArgument    `path` is a directory or a socket
  //         kResourceExhausted, kIo
  static Result<std::unique_ptr<OutputFile>> Create(const std::string& path);

  // Without Publish, a regular file stays as it was, and the new file is removed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Appends `bytes` to a buffer. The file is written when the buffer is full.
  // Errors: kResourceExhausted (disk full), kIo
  Status Write(Bytes bytes);

  // Completes the file. A regular file is replaced by the new one, durably. Called once, last.
  // Errors: as Write; kPermission, kInvalidArgument if the old file cannot be replaced
  Status Publish();

 private:
  OutputFile(std::string path, std::string target, std::string temporary, UniqueFd fd);
  Status Flush();
  Status Replace();

  const std::string path_;    // the path that the caller gave
  const std::string target_;  // the path that Publish replaces
  std::string temporary_;     // the new file before Publish; empty if `path_` is written directly
  UniqueFd fd_;
  std::vector<std::byte> buffer_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_OUTPUT_FILE_H_
