// lmdbio/file/io/file_space.h - several files side by side in one space of offsets.
//
//   | file 0   | ... | file 1       | ... | file 2 |
//   0                begin(1)             begin(2)
//
// Code that reads blocks counts in this space. The bytes between two files belong to no file.
//
// Source: docs/many_files.md "One space of offsets".
#ifndef LMDBIO_FILE_IO_FILE_SPACE_H_
#define LMDBIO_FILE_IO_FILE_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdbio/base/types.h"

namespace lmdbio::file {

// Threads: const; any number of callers.
class FileSpace {
 public:
  // Files begin at multiples of this: the largest page, and a multiple of the unit of direct reads.
  static constexpr uint64_t kFileAlignBytes = uint64_t{64} << 10;

  // Appends a file.
  void Add(uint64_t size_bytes);

  size_t file_count() const { return files_.size(); }
  // Requires: file < file_count()
  uint64_t begin(size_t file) const { return files_[file].offset; }
  uint64_t size_bytes(size_t file) const { return files_[file].length_bytes; }
  // The end of the last file; 0 without files.
  uint64_t end() const { return files_.empty() ? 0 : EndOf(files_.back()); }

  // The last file that begins at `offset` or before it. The offset may lie behind its end.
  // Requires: file_count() > 0
  size_t FileAt(uint64_t offset) const;

  // A part of an extent that lies in one file.
  struct FilePart {
    size_t file = 0;
    uint64_t into_extent = 0;  // bytes from the start of the extent
    Extent extent;             // in the file
  };
  // Cuts an extent at the ends of the files, in order. Bytes that belong to no file are left out,
  // except that bytes behind the last file count as bytes of it, so that reading them fails.
  std::vector<FilePart> Cut(const Extent& extent) const;

 private:
  static uint64_t EndOf(const Extent& file) { return file.offset + file.length_bytes; }

  std::vector<Extent> files_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_FILE_SPACE_H_
