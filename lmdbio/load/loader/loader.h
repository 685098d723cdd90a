// lmdbio/load/loader/loader.h - batches of an LMDB database for every rank of a job.
//
//   LMDBIO_TRY(const auto loader, Loader::Open(*group, "train.lmdb", {.global_batch_size = 256}));
//   for (uint64_t i = 0; i < iterations; ++i) {
//     LMDBIO_TRY(const bool found, loader->Next());
//     if (!found) break;
//     const Batch& batch = loader->batch();
//     for (size_t r = 0; r < batch.record_count(); ++r) Train(batch.key(r), batch.value(r));
//   }
//
// Some ranks of each host read ahead in a thread of their own, into a window of shared memory that
// all ranks of the host use. Every strategy, engine and number of ranks delivers the same global
// sequence of records, byte for byte.
//
// Source: dissertation 3.2, 5.2; docs/loader.md.
#ifndef LMDBIO_LOAD_LOADER_LOADER_H_
#define LMDBIO_LOAD_LOADER_LOADER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/loader/timed_lock.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/counters.h"
#include "lmdbio/load/slots/window.h"
#include "lmdbio/load/view/view_spec.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

// Threads: any, except that one thread at a time uses Next, the first NextWithin and batch, which
// share a batch. Threads that share a loader use the second NextWithin; each batch of the stream
// goes to one of them. Next makes no MPI call and may run on any thread. Open, Restore, SetEpoch
// and the destructor may only run where the group's calls may.
class Loader {
 public:
  // Collective over `group`: every rank opens the same database with the same options.
  //
  // group  all ranks of the job; must outlive the loader
  // path   a directory with data.mdb, or a data file; several files as one: another directory, or
  //        a glob
  // view   which records make which sample, the same on all ranks; null: each record is a sample.
  //        Everything that counts records here then counts samples, unless it says otherwise
  // Errors: kInvalidArgument   an option is out of range, or differs between ranks; a core may not
  //                            be used; the database is empty; files are not alike
  //         those of View::Resolve
  //         kNotFound, kPermission, kIo, kCorruption, kUnsupported  the file
  //         kStale             the strategy needs provenance, and its file belongs to another
  //                            database or state; this host sees another data file than rank 0
  //         kResourceExhausted shared memory
  //         kPeerFailed        another rank has one of these errors
  // Cost: a few small reads and collective calls; reading begins before Open returns
  static Result<std::unique_ptr<Loader>> Open(ranks::Group& group, const std::string& path,
                                              const LoaderOptions& options,
                                              std::shared_ptr<const ViewSpec> view = nullptr);

  // The same for a list of databases, whose records follow each other (docs/many_files.md). A file
  // may come several times.
  // list    not empty; every rank has as many files. options.database_name has no effect
  // Errors: as above; kStale        a rank sees other files than rank 0; names the first
  //                   kUnsupported  an option that works with single files only; names it
  static Result<std::unique_ptr<Loader>> Open(ranks::Group& group,
                                              const std::vector<DatabasePath>& list,
                                              const LoaderOptions& options,
                                              std::shared_ptr<const ViewSpec> view = nullptr);

  // Releases everything, and waits until the other ranks of the host do so, because MPI frees
  // shared memory collectively. Waits for a few seconds at most if one of them is missing.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Moves to the next batch; false after the last one (LoaderOptions::max_batches). Sleeps
  // until the batch is there. Not collective: ranks may be several batches apart.
  // Errors: kIo, kCorruption    reading has failed for good
  //         kStale              the file was changed
  //         kResourceExhausted  a batch is larger than the memory budget
  //         kPeerFailed         another rank of the host has one of these errors, or is gone
  //         After an error, every further call returns the same error.
  Result<bool> Next();

  // Next with a time limit, for threads that must be able to stop. After kNothing there is no
  // batch: the last one is no longer valid, and the next call waits for the same batch again.
  // limit  0: does not sleep; kNoLimit: as Next
  // Errors: as Next
  using Step = BatchStep;
  static constexpr std::chrono::milliseconds kNoLimit = Window::kNoLimit;
  Result<Step> NextWithin(std::chrono::milliseconds limit);

  // The same for threads that share the loader: returns `batch`, and moves the next batch of the
  // stream into it. Callers wait for each other, so batches are taken in order.
  // batch  of this call; each is held until it is returned, and batches of other calls stay valid
  // Errors: as Next; after kResourceExhausted "batch N has no memory: ..." the loader can be used
  //         as before
  Result<Step> NextWithin(std::chrono::milliseconds limit, HeldBatch& batch);

  // Requires: the last call of Next returned true, or of NextWithin kBatch
  const Batch& batch() const { return *current_; }

  // The state of the stream, as JSON: less than 1 kB, and some 50 bytes for each file of a list.
  // Restore, or Open with LoaderOptions::state, continues with the next batch of this rank, at any
  // number of ranks. Not collective: ranks that have had the same number of batches get the same
  // text. Batches that any thread has taken count as delivered.
  std::string Save() const;
  // The same, but nothing if Restore or SetEpoch is under way. Never sleeps.
  std::optional<std::string> TrySave() const;
  // The same for a program that has not got all batches that were taken: its next batch.
  std::string SaveBefore(uint64_t batch_number) const;
  // The number of the batch that the next call takes.
  uint64_t next_batch() const;

  // Continues at `state`, which is the same on all ranks. Collective, as Open. Views of batch()
  // become invalid. The batches that were read ahead are lost; to begin at a state, give it to
  // Open.
  // Errors: kInvalidArgument  `state` is no saved state, or has another order (names the field), or
  //                           differs between ranks; threads hold batches; the stream keeps its
  //                           position
  //         kStale            the state of another dataset; the stream keeps its position
  //         as Open           the loader can no longer be used, as after errors of Next
  Status Restore(const std::string& state) { return Restore(state, {}); }
  // leave  called once `state` is found to fit: returns all batches that are held, and stops the
  //        use of window(). An error of it is one of all ranks
  Status Restore(const std::string& state, const std::function<Status()>& leave);

  // Continues with the first record of an epoch. Costs nothing if the stream is there already, as
  // after the last batch of an epoch. With Tail::kWrap the last batch has taken records of the next
  // epoch; these records come again. Collective; requires that ranks have had the same batches.
  // Errors: as Restore
  Status SetEpoch(uint64_t epoch) { return SetEpoch(epoch, next_batch(), {}); }
  // The same for a program that has not got all batches that were taken.
  // next_batch  its next batch
  // leave       as of Restore; not called if the program is there already
  Status SetEpoch(uint64_t epoch, uint64_t next_batch, const std::function<Status()>& leave);

  // The number of records of the database, or of samples of the view, and of batches of an epoch.
  uint64_t record_count() const;
  uint64_t batches_per_epoch() const;

  // The records of each sample, in order: one without a name, unless the view has fields.
  std::vector<std::string> field_names() const;
  // View::digest; 0 without a view.
  uint64_t view_digest() const;

  LoaderCounters counters() const;

  // The memory in which the values of most batches lie, as far as readers use it as a rule. Values
  // of single large batches may lie outside. Empty if values lie in maps of the file, or in a copy
  // of it that is kept.
  // Lifetime: until Restore or SetEpoch goes elsewhere, or the loader ends
  MutableBytes window() const;

  // The way in which records are located and read on this rank's host, for example "provenance;
  // uring, direct, 32 deep; blocks of up to 1048576 bytes". Shows the present choices of kAuto.
  std::string Describe() const;

  // The cores of this rank after LoaderOptions::placement. The threads of the program call
  // PinThisThread(loader->placement().compute). Empty lists if no placement was requested.
  Placement placement() const;

  // One line for each compromise, for example "train.lmdb/data.mdb.prov: ... is stale: scanning
  // instead". Each line is returned once, on the rank that made the compromise. Notes on refused
  // reads appear on each reader, in Open or with a later batch.
  std::vector<std::string> TakeNotes();

 private:
  class Impl;
  explicit Loader(std::unique_ptr<Impl> impl);
  Status CheckNothingHeld() const;
  Status Reopen(const std::string& state, const std::function<Status()>& leave);

  TimedLock turn_;                      // of the thread that takes a batch, or goes elsewhere
  mutable std::shared_mutex replaced_;  // held exclusively while impl_ is replaced, with turn_
  std::unique_ptr<Impl> impl_;
  HeldBatch current_;  // of Next; its views end before impl_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_LOADER_H_
