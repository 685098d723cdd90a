// lmdbio/load/loader/batch_cursor.h - the position of one rank in its stream of batches.
//
// The cursor knows the order of the stream and the next batch of this rank. It fetches batches from
// a BatchSource, counts them, and keeps the error that ended the stream. It outlives the source: a
// loader whose memory is gone can still report its position and its error.
//
// Source: docs/order.md "State"; docs/loader.md "Order and shares".
#ifndef LMDBIO_LOAD_LOADER_BATCH_CURSOR_H_
#define LMDBIO_LOAD_LOADER_BATCH_CURSOR_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/loader/batch_source.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/order/stream_state.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/counters.h"

namespace lmdbio::load {

// Threads: one at a time.
class BatchCursor {
 public:
  explicit BatchCursor(const LoaderOptions& options)
      : tail_(options.tail), max_batches_(options.max_batches) {}

  // Sets the order and the next batch.
  void Seek(const StreamState& stream);

  // The source of the batches from now on; borrowed. It must begin with the next batch.
  void ReadFrom(BatchSource& source) { source_ = &source; }

  // Continues after `before`, which belongs to a loader that is about to close: takes its position
  // until Seek sets another one, and counts on from `so_far`.
  void TakeOver(const BatchCursor& before, const LoaderCounters& so_far);

  // Moves to the next batch. See Loader::NextWithin.
  // Requires: ReadFrom was called, or Break
  // Errors: as Loader::Next; every later call returns the same error
  Result<BatchStep> Next(std::chrono::milliseconds limit);

  // Every later call of Next returns `error`.
  void Break(const Error& error) { error_.emplace(error.Copy()); }

  // Requires: the last call of Next returned kBatch
  const Batch& batch() const { return batch_; }
  // Requires (here and below): Seek or TakeOver was called
  const Schedule& schedule() const { return *schedule_; }
  StreamState State() const { return {dataset_, schedule_->options(), next_batch_}; }
  uint64_t next_batch() const { return next_batch_; }

  // The counters of this rank's batches, and of the loaders that this cursor took over.
  LoaderCounters counters() const;

 private:
  Result<BatchStep> Step(std::chrono::milliseconds limit);
  void CountEnds();

  Tail tail_;
  uint64_t max_batches_;  // 0: no limit
  DatasetIdentity dataset_;
  std::optional<Schedule> schedule_;
  uint64_t next_batch_ = 0;
  BatchSource* source_ = nullptr;
  bool is_ended_ = false;
  std::optional<Error> error_;
  Batch batch_;
  LoaderCounters own_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_BATCH_CURSOR_H_
