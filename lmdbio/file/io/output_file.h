// lmdbio/file/io/output_file.h - a file to write, which readers of its path see whole or not at
// all.
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

// The kind of file at the path decides:
//
//   nothing, or a regular file   a new file beside it takes its place in Publish
//   a symbolic link              the link stays, the rule above applies to the file it leads to
//   a device or a FIFO           the bytes go into it as they are written
//
// Threads: one at a time.
class OutputFile {
 public:
  // Opens the file for writing. As any program does, it waits for the reader of a FIFO.
  // Errors: kNotFound           the directory does not exist
  //         kPermission         the directory, or the device, may not be written
  //         kInvalidArgument    `path` is a directory or a socket
  //         kResourceExhausted, kIo
  static Result<std::unique_ptr<OutputFile>> Create(const std::string& path);

  // Without Publish, a regular file stays as it was and nothing new is left behind.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Appends `bytes`. They are collected and written many at a time.
  // Errors: kResourceExhausted (disk full), kIo
  Status Write(Bytes bytes);

  // Ends the file. A regular file is now the new one, also after a crash. Called once, last.
  // Errors: as Write; kPermission, kInvalidArgument if the old file cannot be replaced
  Status Publish();

 private:
  OutputFile(std::string path, std::string target, std::string temporary, UniqueFd fd);
  Status Flush();
  Status Replace();

  const std::string path_;    // as the caller names it
  const std::string target_;  // the name that Publish replaces
  std::string temporary_;     // the new file until then; empty: the bytes go into `path_` itself
  UniqueFd fd_;
  std::vector<std::byte> buffer_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_OUTPUT_FILE_H_
