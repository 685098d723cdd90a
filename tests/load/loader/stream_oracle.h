// tests/load/loader/stream_oracle.h - the records that a loader delivers, and the expected ones
// from liblmdb's serial pass.
#ifndef LMDBIO_TESTS_LOAD_LOADER_STREAM_ORACLE_H_
#define LMDBIO_TESTS_LOAD_LOADER_STREAM_ORACLE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/tiny_db.h"

namespace lmdbio::test {

// The delivered records by position, and the errors by rank.
struct Delivered {
  std::map<uint64_t, KeyValue> records;
  uint64_t twice_count = 0;    // records whose position had been delivered before
  uint64_t foreign_count = 0;  // records that belong to another rank
  uint64_t skipped_count = 0;
  std::vector<std::optional<Error>> errors;  // [rank]
  std::vector<std::string> notes;
  std::string state;              // of rank 0, at the end
  load::LoaderCounters counters;  // of rank 0
};

// Runs a loader on threads that play ranks, to the end of its stream.
// taker_count  the threads of each rank that take batches; each holds its batch until it takes the
//              next one
Delivered Deliver(ranks::ThreadRanks ranks, const std::filesystem::path& path,
                  const load::LoaderOptions& options, int taker_count = 1);

// The same positions from liblmdb's cursor and plain arithmetic. For shuffled and reused streams,
// Schedule returns one record after the other.
std::map<uint64_t, KeyValue> Expected(const std::filesystem::path& data_file,
                                      const load::LoaderOptions& options);

// The same, from records that are known already.
std::map<uint64_t, KeyValue> ExpectedOf(const std::vector<KeyValue>& records,
                                        const load::LoaderOptions& options);

// Small databases of each relevant kind: a name, and a function that fills it.
void FillInline(TinyDb& db);
void FillOverflow(TinyDb& db);
void FillMixed(TinyDb& db);
void FillDuplicates(TinyDb& db);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_LOAD_LOADER_STREAM_ORACLE_H_
