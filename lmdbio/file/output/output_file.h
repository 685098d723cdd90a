// lmdbio/file/output/output_file.h - an output file that appears at its path complete or not at
// all.
//
//   LMDBIO_TRY(const auto file, OutputFile::Create("report.json"));
//   LMDBIO_TRY_VOID(file->Write(bytes));
//   LMDBIO_TRY_VOID(file->Publish());
#ifndef LMDBIO_FILE_OUTPUT_OUTPUT_FILE_H_
#define LMDBIO_FILE_OUTPUT_OUTPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/output/new_file.h"

namespace lmdbio::file {

// The file that exists at the path decides how the output is written:
//
//   none, or a regular file       Publish makes a new file the file at the path
//   a symbolic link               the link stays; the rule applies to the file at its end
//   a character device or a FIFO  Write sends the bytes to it directly
//   an open file, as /dev/stdout  the same
//
// The rules for links are in docs/outputs.md.
//
// Threads: one at a time.
class OutputFile {
 public:
  // Opens the file for writing. If it is a FIFO, the call waits for a reader.
  // Errors: kNotFound           the directory does not exist
  //         kPermission         the directory, or the device, may not be written; the rules refuse
  //                             a link, a device or a FIFO
  //         kInvalidArgument    `path` is a directory, a socket or a block device
  //         kResourceExhausted, kIo
  static Result<std::unique_ptr<OutputFile>> Create(const std::string& path);

  // Without Publish, a regular file stays as it was, and the new file is removed. If the process is
  // killed, it is removed as NewFile describes.
  ~OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Appends `bytes` to a buffer. The file is written when the buffer is full.
  // Errors: kResourceExhausted (disk full), kIo (also: above the limit of ulimit -f)
  Status Write(Bytes bytes);

  // Completes the file. A regular file is replaced by the new one, durably. Called once, last.
  // Errors: as Write; kPermission, kInvalidArgument if the old file cannot be replaced
  Status Publish();

 private:
  OutputFile(std::string path, std::optional<NewFile> new_file, UniqueFd stream);
  Status WriteThrough(Bytes bytes);

  const std::string path_;
  std::optional<NewFile> new_file_;  // nothing if the bytes go to `stream_`
  UniqueFd stream_;
  uint64_t written_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_OUTPUT_OUTPUT_FILE_H_
