// lmdbio/load/loader/batch_source.h - the memory that the batches of a rank come from.
//
//   window   slots of the host's window, which readers fill; a rank that reads alone has a window
//            and a reader of its own
//   lmdb     the map of liblmdb, through which the rank steps itself (the baseline)
//
// Source: docs/loader.md "The window", "Strategies".
#ifndef LMDBIO_LOAD_LOADER_BATCH_SOURCE_H_
#define LMDBIO_LOAD_LOADER_BATCH_SOURCE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/load/baseline/lmdb_stream.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/reader/slot_reader.h"
#include "lmdbio/load/slots/counters.h"
#include "lmdbio/load/slots/in_place_view.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {

// The result of BatchSource::Take. kNothing: a time limit has passed. kHeldUp: the batch cannot
// come before others are returned, and none was for WindowBatchesParts::held_up_limit.
enum class TakeStep { kBatch, kNothing, kHeldUp };

// Threads: one at a time; Return may run in any thread beside another call.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Makes `batch` this rank's share of the batch `span`. Sleeps for at most `limit` until the batch
  // is there. Batches must be taken in order, each once.
  // Returns: kBatch; or another step, after which `batch` is unchanged
  // Errors: as Loader::Next
  // Lifetime: `batch` is valid until it is returned
  virtual Result<TakeStep> Take(const BatchSpan& span, std::chrono::milliseconds limit,
                                Batch& batch) = 0;

  // Ends the views of a batch that was taken. Once for each; in any order.
  virtual void Return(uint64_t batch_number) = 0;

  // No further batch is taken.
  // Errors: kStale, kIo  bytes of a batch were lost while it was in use (docs/guarded_maps.md)
  virtual Status End() { return {}; }

  // Adds the time that this source spent.
  virtual void AddTo(LoaderCounters& counters) const = 0;
};

// All pointers are borrowed.
struct WindowBatchesParts {
  Window* window = nullptr;  // of the slots
  Window* host = nullptr;    // of the host's failures; `window`, unless this rank reads alone
  SlotReader* own_reader = nullptr;  // reads the slots in this thread; null unless it reads alone
  const InPlaceView* in_place = nullptr;  // null unless records are used in place
  // The base of the entries of slots whose pages are not in the window: the map of the file, or the
  // file cache. Null if there are no such slots.
  const std::byte* file_bytes = nullptr;
  size_t local_count = 1;  // ranks of `window`
  size_t local_index = 0;  // of this rank among them
  size_t field_count = 1;  // records of each sample
  // The longest wait for memory that this rank alone occupies, until kHeldUp. As long as a thread
  // may reasonably work on one batch while others wait for it.
  std::chrono::milliseconds held_up_limit = std::chrono::minutes(1);
};
std::unique_ptr<BatchSource> MakeWindowBatches(const WindowBatchesParts& parts);

// Steps `lmdb` through all records and hands out the records of this rank.
// first_batch  of the stream: earlier epochs are skipped
std::unique_ptr<BatchSource> MakeLmdbBatches(std::unique_ptr<LmdbStream> lmdb,
                                             const Schedule& schedule, uint64_t first_batch,
                                             const HostMember& member);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_BATCH_SOURCE_H_
