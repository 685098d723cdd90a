#include "lmdbio/file/io/file_space.h"

#include <algorithm>

#include "lmdbio/base/align.h"

namespace lmdbio::file {

void FileSpace::Add(uint64_t size_bytes) {
  files_.push_back({AlignUp(end(), kFileAlignBytes), size_bytes});
}

size_t FileSpace::FileAt(uint64_t offset) const {
  const auto after = std::ranges::upper_bound(files_, offset, {}, &Extent::offset);
  return static_cast<size_t>(after - files_.begin()) - 1;
}

std::vector<FileSpace::FilePart> FileSpace::Cut(const Extent& extent) const {
  std::vector<FilePart> pieces;
  const uint64_t end = extent.offset + extent.length_bytes;
  for (uint64_t at = extent.offset; at < end;) {
    const size_t file = FileAt(at);
    const bool is_last = file + 1 == files_.size();
    const uint64_t next = is_last ? end : std::min(end, files_[file + 1].offset);
    const uint64_t stop = is_last ? end : std::min(next, EndOf(files_[file]));
    if (at < stop) {
      pieces.push_back({file, at - extent.offset, {at - files_[file].offset, stop - at}});
    }
    at = next;
  }
  return pieces;
}

}  // namespace lmdbio::file
