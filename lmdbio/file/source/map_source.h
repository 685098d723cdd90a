// lmdbio/file/source/map_source.h - a data file in a read-only map: no copy, no system call a page.
//
// For local files that nobody truncates: touching a page of a file that has shrunk ends the process
// with SIGBUS, as it does with liblmdb. file/source/file_source.h has no such edge and is the
// default everywhere; this source is the faster one when the file is in the page cache.
//
// Source: dissertation 2.4.2 and 3.1 (what the map costs); docs/architecture.md "Sources".
#ifndef LMDBIO_FILE_SOURCE_MAP_SOURCE_H_
#define LMDBIO_FILE_SOURCE_MAP_SOURCE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// Threads: as ByteSource; every method from any number of threads.
class MapSource final : public ByteSource {
 public:
  // Maps the data file at `data_path` as large as it is now.
  // Errors: kNotFound, kPermission, kResourceExhausted (address space), kIo
  static Result<std::unique_ptr<MapSource>> Open(const std::string& data_path);
  ~MapSource() override;

  const std::string& name() const override { return path_; }
  Result<uint64_t> SizeBytes() const override;

  // Points into the map; `scratch` may be empty.
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;

  // kSequential turns the kernel's read-ahead on, kRandom (the default) off. Pages are left to
  // faults, of which Linux serves 16 cached pages each: MADV_POPULATE_READ takes more processor
  // time, because it looks up every single page.
  void Advise(AccessPattern pattern) const override;

  void Prefetch(Extent extent) const override;

  Bytes map() const { return map_; }

  // Whether the file still has `expected_bytes`: a page of the map behind the file's end would end
  // the process.
  // Errors: kStale  it has shrunk; names both sizes. kIo
  Status CheckNotShrunk(uint64_t expected_bytes) const;

  // Makes the pages of `extent` ready to be touched, in one go, but for those of pieces of 64 KiB
  // that were made ready before.
  void Populate(Extent extent) const;

  // Tells the kernel that `extent` will be read; and sleeps until its last page is there, before
  // which most of the others are. What lies behind the file's end is left out.
  // Expect returns whether all of it is known to be there already.
  bool Expect(Extent extent) const;
  void Await(Extent extent) const;
  ReadCounters counters() const override;

 private:
  static constexpr uint64_t kPieceBytes = 64 << 10;  // as much as Linux maps for one fault

  MapSource(std::string path, UniqueFd fd, Bytes map)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        map_(map),
        populated_(map.size() / kPieceBytes / 64 + 1) {}
  bool IsPopulated(uint64_t piece) const;
  void NotePopulated(uint64_t piece) const;

  std::string path_;
  UniqueFd fd_;
  Bytes map_;
  mutable std::vector<std::atomic<uint64_t>> populated_;  // a bit for each piece of the file
  mutable std::atomic<uint64_t> request_count_{0};
  mutable std::atomic<uint64_t> bytes_{0};
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_MAP_SOURCE_H_
