// lmdbio/load/slots/loader_memory.h - the memory that the ranks of a host share for one loader.
//
//   window      tables, entries and pages of slots
//   layout      one layout for several readers of the host
//   file cache  the whole file, if it is kept
//
// Behind the pages of the window and of the file cache lie the states of their huge pages.
//
// Source: dissertation 3.2.1, 3.3; docs/loader.md "The window", "Huge pages".
#ifndef LMDBIO_LOAD_SLOTS_LOADER_MEMORY_H_
#define LMDBIO_LOAD_SLOTS_LOADER_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/shm/huge_pages.h"

namespace lmdbio::load {

// The preparation of the memory that reads fill. Null: it keeps its pages. Borrowed.
struct HugeMemory {
  ranks::HugePages* window = nullptr;
  ranks::HugePages* cache = nullptr;  // of the file cache
};

// Threads: one at a time.
class LoaderMemory {
 public:
  // The memory for huge pages behind a window or a file cache of at most `size_bytes`.
  static uint64_t ExtraBytes(uint64_t size_bytes) {
    return ranks::HugePages::StateBytes(size_bytes);
  }

  // Collective over the host, each of them: the call succeeds on all its ranks or on none.
  // Errors: as ranks::Group::AllocateShared
  Status AllocateWindow(ranks::Group& host, uint64_t size_bytes, WindowMemoryUse kind,
                        HugePageUse huge_pages);
  Status AllocateLayout(ranks::Group& host, uint64_t size_bytes, const LoaderOptions& options);
  Status AllocateFileCache(ranks::Group& host, uint64_t size_bytes, const LoaderOptions& options);

  // [as allocated] zero-filled; empty if it was not allocated.
  MutableBytes window() const { return window_.pages(); }
  MutableBytes layout() const { return layout_.pages(); }
  MutableBytes file_cache() const { return file_cache_.pages(); }
  // The reason if the window is not of the preferred kind; else "".
  std::string_view window_note() const;

  // Prepares huge pages ahead of the reads. For readers.
  // used_bytes  of the window, from its start on: the bytes that large reads fill
  void UseHugeWindow(uint64_t used_bytes, ranks::HugePageOptions options);
  void UseHugeFileCache(ranks::HugePageOptions options);
  HugeMemory huge() const { return {window_.huge.get(), file_cache_.huge.get()}; }

  // Leaves memory whose release is collective to MPI_Finalize, because a rank has not left.
  void Abandon();

 private:
  struct SharedPart {
    std::unique_ptr<ranks::SharedMemory> memory;
    uint64_t size_bytes = 0;                 // without the states
    std::unique_ptr<ranks::HugePages> huge;  // in the memory, so it ends first

    MutableBytes pages() const {
      return memory ? memory->bytes().first(size_bytes) : MutableBytes();
    }
    void UseHuge(uint64_t used_bytes, ranks::HugePageOptions options);
  };

  // Every rank releases them in the same order, because the release of an MPI window is collective.
  SharedPart file_cache_, window_, layout_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_LOADER_MEMORY_H_
