// lmdbio/file/map/map_guard.h - maps whose pages may be lost without ending the process.
//
// A page of a map is lost if its file was cut short, or if the storage fails to bring it. The
// kernel then sends SIGBUS to the thread that touches it. While there are guarded maps, a handler
// puts zeros in the place of such a page and remembers it. Any other SIGBUS goes on to the handler
// that the program had before.
//
// The handler is set with the first guarded map and removed with the last one. A program that sets
// its own handler in between takes the guard away (IsInForce). A thread that blocks SIGBUS has no
// guard either: the kernel ends the process.
//
// Source: docs/guarded_maps.md.
#ifndef LMDBIO_FILE_MAP_MAP_GUARD_H_
#define LMDBIO_FILE_MAP_MAP_GUARD_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "lmdbio/base/types.h"

namespace lmdbio::file {

struct GuardedRange;

// The first page of a map that was lost.
struct MapLoss {
  uint64_t offset = 0;                 // in bytes of the file
  std::optional<uint64_t> file_bytes;  // its size, if that was too small; else the storage failed
};

// Threads: every method from any number of threads. Pages may be lost in all of them at once.
class MapGuard {
 public:
  MapGuard() = default;  // guards nothing
  // map  of the file from its first byte on; mapped as long as the guard exists, and never written.
  //      Its size is a multiple of the memory's page, or ends with the file
  // fd   of the file; open as long as the guard exists
  MapGuard(Bytes map, int fd);

  // The first loss. Empty as long as every byte that was read is the file's.
  std::optional<MapLoss> loss() const;

  // Whether a map that begins now would be guarded: false if the program has set another handler
  // behind the one of the guard.
  static bool IsInForce();

 private:
  struct Remove {
    void operator()(GuardedRange* range) const;
  };
  std::unique_ptr<GuardedRange, Remove> range_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_MAP_MAP_GUARD_H_
