// bench/scratch_folder.h - a folder for temporary files of a benchmark.
#ifndef LMDBIO_BENCH_SCRATCH_FOLDER_H_
#define LMDBIO_BENCH_SCRATCH_FOLDER_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::bench {

// The destructor removes the folder and all in it. If the process is killed, the next Make with the
// same parent does so, as scratch_folder of bench/output_files.py does.
class ScratchFolder {
 public:
  // A new folder "lmdbio-scratch-NAME-XXXXXX".
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo  from errno
  static Result<ScratchFolder> Make(const std::filesystem::path& parent, std::string_view name);

  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchFolder(std::filesystem::path path, UniqueFd folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  std::filesystem::path path_;
  UniqueFd folder_;  // locked
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SCRATCH_FOLDER_H_
