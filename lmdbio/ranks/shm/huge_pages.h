// lmdbio/ranks/shm/huge_pages.h - huge pages (2 MiB) for memory that large reads fill.
//
// A direct read into pages of 4 KiB has one segment for each of them, and the storage handles the
// segments one by one. With huge pages the same read has few segments. Shared memory consists of
// small pages on nearly every system, but MADV_COLLAPSE (Linux 6.1) makes huge ones of it for any
// user. The memory is prepared region by region, 2 MiB each:
//
//   touch one byte    the kernel collapses only regions that have a page
//   MADV_COLLAPSE     allocates a huge page, and copies what the region holds
//
// A region that is in use by a read in flight cannot be collapsed, and the touch must not meet a
// write of another thread. So a region is prepared before its first use: by a thread that works
// ahead, or else by the reader itself. A word for each region beside the memory says that a process
// prepares it, so no two do.
//
// A kernel whose small pages have 16 or 64 KiB has huge pages of 32 or 512 MiB. No region is one
// then, and all pages stay small. If the system refuses huge pages, everything works with small
// ones, and TakeNote has the reason.
//
// Source: dissertation 3.3 (large pages for the window); docs/loader.md "Huge pages".
#ifndef LMDBIO_RANKS_SHM_HUGE_PAGES_H_
#define LMDBIO_RANKS_SHM_HUGE_PAGES_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/types.h"
#include "lmdbio/ranks/shm/aligned_space.h"

namespace lmdbio::ranks {

struct HugePageOptions {
  // The thread also prepares this much behind the last range, but nothing from ahead_end on.
  uint64_t ahead_bytes = 0;
  uint64_t ahead_end = ~uint64_t{0};  // an offset in the memory
  CoreList cores = {};                // of the thread; empty: any
  // Makes a huge page of one region, and returns 0 or errno. Null: MADV_COLLAPSE. Tests pass
  // another.
  int (*collapse)(std::byte* region) = nullptr;
  // The kernel's huge page; 0: as it says itself. Tests pass another.
  uint64_t kernel_huge_bytes = 0;
};

// Threads: any number may call every method.
class HugePages {
 public:
  static constexpr uint64_t kPageBytes = kHugePageBytes;

  // The state of one region, shared by the processes that prepare the memory.
  enum class Region : uint8_t { kUntouched, kInProgress, kHuge, kSmall };
  using SharedRegion = std::atomic<Region>;
  static_assert(SharedRegion::is_always_lock_free && sizeof(SharedRegion) == 1);

  // The bytes of the states of `memory_bytes` of memory.
  static uint64_t StateBytes(uint64_t memory_bytes) { return memory_bytes / kPageBytes; }

  // memory  borrowed. Whole regions of it can be prepared; a rest at its end cannot
  // states  [StateBytes(memory.size())] zero-filled, shared like the memory; borrowed
  HugePages(MutableBytes memory, MutableBytes states, HugePageOptions options);

  // Ends the thread. Costs the preparation of one region at most.
  ~HugePages();
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  // Lets the thread prepare the regions that `range` overlaps, then those behind it. Returns at
  // once.
  // range  offsets in the memory
  void PrepareAhead(const Extent& range);

  // True if Prepare would return at once.
  bool IsPrepared(const Extent& range) const;

  // Returns when the regions that `range` overlaps are prepared: by now, by the thread or another
  // process (100 ms at most; it may have been killed), or by this call. While another one prepares
  // the last of them, this call prepares regions of the next `beyond_bytes` instead of sleeping.
  // Cost: nothing for prepared regions; else 0.1 ms to 2 ms for each, less than its first touch
  // would take in small pages
  void Prepare(const Extent& range, uint64_t beyond_bytes = 0);

  // The bytes of all regions that are huge pages now.
  uint64_t huge_bytes() const;

  // The reason for small pages, once after the first refusal; one line for the user.
  std::optional<std::string> TakeNote();

  // MADV_COLLAPSE of one region. Returns 0 or errno.
  static int Collapse(std::byte* region);

 private:
  struct Span {
    size_t first = 0;
    size_t end = 0;
  };

  Span RegionsOf(const Extent& range) const;
  void StartThread();
  void PrepareRegion(size_t index);
  void TakeRefusal(int error_number);
  bool is_refused() const { return is_refused_.load(std::memory_order_relaxed); }
  void Run();
  std::optional<size_t> TakeNext();

  MutableBytes memory_;
  std::span<SharedRegion> regions_;  // empty if the memory is not aligned
  HugePageOptions options_;
  std::atomic<bool> is_refused_{false};
  std::atomic<int> refusals_{0};  // in a row

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable work_;
  std::deque<Span> wanted_;
  Span ahead_;  // behind the last range
  std::string note_;
  bool has_taken_note_ = false;
  bool stop_ = false;
  bool has_no_thread_ = false;  // the system refused it
  std::thread thread_;          // after the first PrepareAhead
};

// The bytes of `memory` that this process has mapped as huge pages, by the kernel's own account.
// Counts whole mappings: memory must be one, or the result may be too large.
// Cost: some milliseconds; for tests, benchmarks and notes
uint64_t MappedHugeBytes(Bytes memory);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_HUGE_PAGES_H_
