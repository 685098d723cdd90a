// lmdbio/load/loader/batch_cursor.h - the position of one rank in its stream of batches.
//
// The cursor knows the order of the stream and the next batch of this rank. It fetches batches from
// a BatchSource, counts them, and keeps the error that ended the stream. It outlives the source: a
// loader whose memory is gone can still report its position and its error.
//
// Source: docs/order.md "State"; docs/loader.md "Order and shares", "Threads of a rank".
#ifndef LMDBIO_LOAD_LOADER_BATCH_CURSOR_H_
#define LMDBIO_LOAD_LOADER_BATCH_CURSOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/loader/batch_returns.h"
#include "lmdbio/load/loader/batch_source.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/order/stream_state.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/counters.h"

namespace lmdbio::load {

// Threads: one at a time; State, next_batch, counters and held_count also beside a call of Next.
class BatchCursor {
 public:
  explicit BatchCursor(const LoaderOptions& options)
      : tail_(options.tail), max_batches_(options.max_batches) {}

  // Sets the order and the next batch.
  void Seek(const StreamState& stream);

  // The source of the batches from now on; borrowed. It must begin with the next batch.
  void ReadFrom(BatchSource& source);
  // The source is about to end.
  void LeaveSource();

  // Continues after `before`, which belongs to a loader that is about to close: takes its position
  // until Seek sets another one, and counts on from `so_far`.
  void TakeOver(const BatchCursor& before, const LoaderCounters& so_far);

  // Takes the next batch. See Loader::NextWithin.
  // Requires: ReadFrom was called, or Break; `batch` holds none
  // Errors: kResourceExhausted  batches that are held keep the next one from coming; the next call
  //                             waits for it again
  //         as Loader::Next; every later call returns the same error
  Result<BatchStep> Next(std::chrono::milliseconds limit, HeldBatch& batch);

  // Every later call of Next returns `error`.
  void Break(const Error& error) { error_.emplace(error.Copy()); }

  // Requires (here and below): Seek or TakeOver was called
  const Schedule& schedule() const { return *schedule_; }
  StreamState State() const { return {dataset_, schedule_->options(), next_batch_.load()}; }
  uint64_t next_batch() const { return next_batch_.load(); }
  // The number of batches of the source that have not been returned.
  size_t held_count() const { return returns_ ? returns_->held_count() : 0; }

  // The counters of this rank's batches, and of the loaders that this cursor took over.
  LoaderCounters counters() const;

 private:
  Result<BatchStep> Step(std::chrono::milliseconds limit, Batch& batch);
  void CountEnds(const Batch& batch);

  Tail tail_;
  uint64_t max_batches_;  // 0: no limit
  DatasetIdentity dataset_;
  std::optional<Schedule> schedule_;
  std::atomic<uint64_t> next_batch_ = 0;
  BatchSource* source_ = nullptr;
  std::shared_ptr<BatchReturns> returns_;  // to source_
  bool is_ended_ = false;
  std::optional<Error> error_;
  mutable std::mutex mutex_;    // of the counters
  LoaderCounters own_;          // of this cursor and those that it took over
  LoaderCounters with_source_;  // the same and the times of the source, after the last step
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_BATCH_CURSOR_H_
