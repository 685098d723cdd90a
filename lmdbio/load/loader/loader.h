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
// Some ranks of each host read, in a thread of their own, ahead of what is asked for; all ranks of
// the host see what they read in one window of shared memory. Every strategy, engine and number of
// ranks delivers the same global sequence of records, byte for byte.
//
// Source: dissertation 3.2, 5.2; docs/loader.md.
#ifndef LMDBIO_LOAD_LOADER_LOADER_H_
#define LMDBIO_LOAD_LOADER_LOADER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/batch.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/counters.h"
#include "lmdbio/load/slots/window.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

// Threads: one at a time. Next makes no MPI call and may run on any thread; Open and the destructor
// may only run where the group's calls may.
class Loader {
 public:
  // Collective over `group`: every rank opens the same database with the same options.
  //
  // group  all ranks of the job; must outlive the loader
  // path   a directory with data.mdb, or a data file
  // Errors: kInvalidArgument   an option that makes no sense, or differs between ranks; a core that
  //                            may not be used; an empty database
  //         kNotFound, kPermission, kIo, kCorruption, kUnsupported  the file
  //         kStale             a provenance file for another database or state, where the strategy
  //                            needs one; another file than on the other hosts
  //         kResourceExhausted shared memory
  //         kPeerFailed        another rank had one of these
  // Cost: a few small reads and collective calls; reading begins before Open returns
  static Result<std::unique_ptr<Loader>> Open(ranks::Group& group, const std::string& path,
                                              const LoaderOptions& options);

  // Lets go of everything and waits for the other ranks of the host to do so (MPI frees shared
  // memory collectively): for a few seconds at most if one of them does not come.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Moves to the next batch; false after the last (LoaderOptions::max_batches). Sleeps until
  // the batch is there. Not collective: ranks may be batches apart.
  // Errors: kIo, kCorruption  reading has failed for good
  //         kStale            the file was changed
  //         kResourceExhausted  a batch larger than the memory budget
  //         kPeerFailed       the same on another rank of the host, or a rank is gone
  //         After an error every further call returns it again.
  Result<bool> Next();

  // The same for a time at most, for those who have to look up now and then. After kNothing there
  // is no batch at hand: the last one is gone as after any call of Next, and is not repeated.
  // limit  0: does not sleep; kNoLimit: as Next
  // Errors: as Next
  using Step = BatchStep;
  static constexpr std::chrono::milliseconds kNoLimit = Window::kNoLimit;
  Result<Step> NextWithin(std::chrono::milliseconds limit);

  // Requires: the last call of Next returned true, or of NextWithin kBatch
  const Batch& batch() const;

  // Where the stream stands: what to give to Restore, or as LoaderOptions::state to Open, to go on
  // with the next batch of this rank, at any number of ranks. JSON, less than 1 kB. Not collective:
  // ranks that have had the same number of batches get the same text.
  std::string Save() const;

  // Goes on where `state` stands. Collective, as Open, and for all ranks the same. Views are dead
  // from now on. What was read ahead is lost: to begin there, give it to Open.
  // Errors: kInvalidArgument  no saved state, or of another order (names the field); not the same
  //                           on all ranks; the stream then stays where it was
  //         kStale            of another dataset; the stream stays where it was
  //         as Open           after these, as after errors of Next
  Status Restore(const std::string& state);

  // Goes on with the first record of an epoch; costs nothing where the stream stands there already,
  // as it does after an epoch's last batch, but with Tail::kWrap, whose batches take records of
  // the next epoch along: these then come again. Collective, ranks having had the same batches.
  // Errors: as Restore
  Status SetEpoch(uint64_t epoch);

  // How many records the database holds, and batches an epoch.
  uint64_t record_count() const;
  uint64_t batches_per_epoch() const;

  LoaderCounters counters() const;

  // How records are found and read on this rank's host, as "provenance; uring, direct, 32 deep;
  // blocks of up to 1048576 bytes": what an automatic strategy has settled on, so far.
  std::string Describe() const;

  // What LoaderOptions::placement means for this rank: PinThisThread(loader->placement().compute)
  // is for the threads of the program. Everything may run anywhere where nothing was asked for.
  const Placement& placement() const;

  // One line for each compromise, as "train.lmdb/data.mdb.prov: ... is stale: scanning instead".
  // Each is said once, on the rank that made it: what is refused to its reads, on each rank that
  // reads, in Open or with a later batch.
  std::vector<std::string> TakeNotes();

 private:
  class Impl;
  explicit Loader(std::unique_ptr<Impl> impl);
  Status Reopen(const std::string& state);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_LOADER_H_
