// lmdbio/file/source/map_source.h - a data file in a read-only map, without copies and system
// calls.
//
// MapSource is faster than FileSource if the file is in the page cache. Pages that cannot be read,
// because the file was cut short or the storage fails, are zeros (docs/guarded_maps.md). So ask
// CheckWhole after bytes were used: FileSource, the default, needs no such question.
//
// Source: dissertation 2.4.2 and 3.1 (the cost of the map); docs/architecture.md "Sources".
#ifndef LMDBIO_FILE_SOURCE_MAP_SOURCE_H_
#define LMDBIO_FILE_SOURCE_MAP_SOURCE_H_

#include <atomic>
#include <memory>
#include <string>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/map/file_map.h"

namespace lmdbio::file {

// Threads: as ByteSource; every method from any number of threads.
class MapSource final : public ByteSource {
 public:
  // Maps the data file at `data_path` with its current size.
  // Errors: kNotFound, kPermission, kResourceExhausted (address space), kIo
  static Result<std::unique_ptr<MapSource>> Open(const std::string& data_path);

  const std::string& name() const override { return path_; }
  Result<uint64_t> SizeBytes() const override;

  // Points into the map; `scratch` may be empty.
  // Errors: kCorruption  the map ends before the extent. As CheckWhole
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;

  // kSequential turns the kernel's read-ahead on, kRandom (the default) off. Page faults bring the
  // pages: Linux maps 16 cached pages for one fault. MADV_POPULATE_READ would take more processor
  // time, because it looks up each page.
  void Advise(AccessPattern pattern) const override;

  void Prefetch(Extent extent) const override;

  Bytes map() const { return map_.bytes(); }

  // Whether the bytes of the map that anybody has used so far are those of the file.
  // Errors: kStale  the file has shrunk. kIo  the storage has failed
  Status CheckWhole() const { return map_.CheckWhole(); }

  // Checks that the file still has `expected_bytes`, and CheckWhole.
  // Errors: kStale  the file has shrunk; the message names both sizes. kIo
  Status CheckNotShrunk(uint64_t expected_bytes) const;

  // Whether all of `extent` is in the page cache. Returns false if the kernel does not tell.
  bool IsCached(Extent extent) const;

  // Expect announces to the kernel that `extent` is read soon. It returns true if all of the extent
  // is already in the page cache. Await sleeps until the last page of `extent` is in memory; most
  // other pages have then arrived. Bytes beyond the file's end are ignored.
  bool Expect(Extent extent) const;
  void Await(Extent extent) const;
  ReadCounters counters() const override;

 private:
  MapSource(std::string path, UniqueFd fd, FileMap map)
      : path_(std::move(path)), fd_(std::move(fd)), map_(std::move(map)) {}

  std::string path_;
  UniqueFd fd_;
  FileMap map_;
  mutable std::atomic<uint64_t> request_count_{0};
  mutable std::atomic<uint64_t> bytes_{0};
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_MAP_SOURCE_H_
