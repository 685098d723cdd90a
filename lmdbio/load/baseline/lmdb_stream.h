// lmdbio/load/baseline/lmdb_stream.h - the baseline: every rank steps liblmdb's cursor over all
// records.
//
// This is the way of Caffe, which the papers call LMDB. Each rank maps the file, steps from record
// to record, skips the records of the other ranks, and takes its own. The kernel fetches pages when
// they are touched. Values are used in liblmdb's map.
//
// The class is an interface, because the library can be built without liblmdb (LMDBIO_WITH_LMDB in
// CMake). Then without_lmdb.cc replaces lmdb_stream.cc, and Open refuses.
//
// Source: dissertation 2.4.2, 3.1 (the baseline); docs/loader.md "Strategies".
#ifndef LMDBIO_LOAD_BASELINE_LMDB_STREAM_H_
#define LMDBIO_LOAD_BASELINE_LMDB_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/plan/slot_head.h"

namespace lmdbio::load {

// Threads: one at a time.
class LmdbStream {
 public:
  // data_path  of the data file itself. Opened without locks (MDB_NOLOCK).
  // Errors: kUnsupported  data version 3; a library that was built without liblmdb
  //         kNotFound, kPermission, kCorruption: liblmdb's words
  static Result<std::unique_ptr<LmdbStream>> Open(const std::string& data_path,
                                                  const std::string& database_name);
  LmdbStream() = default;
  virtual ~LmdbStream() = default;
  LmdbStream(const LmdbStream&) = delete;
  LmdbStream& operator=(const LmdbStream&) = delete;

  // Takes the steps of whole epochs before `position` as taken. Before the first Gather.
  virtual void SkipEpochs(uint64_t position, uint64_t record_count) = 0;

  // Steps through `group` and gathers the records of `rank` of `rank_count`. Groups must come in
  // order, each handed out once; what lies between them (Tail::kDrop) is passed over. Entries'
  // offsets count from base().
  // entries  of the group's batches, one after the other; all hold the same number
  // Errors: kResourceExhausted  more than 2^32 records for one rank; kCorruption  liblmdb's words
  // Lifetime: of the stream
  virtual Status Gather(const BatchGroup& group, Share share, int rank, int rank_count,
                        std::vector<RecordEntry>& entries) = 0;

  // An address; see RecordEntry.
  virtual std::uintptr_t base() const = 0;

  virtual double locate_s() const = 0;  // stepping
  // Touching the pages of own values: estimated from one record in seven.
  virtual double read_s() const = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_BASELINE_LMDB_STREAM_H_
