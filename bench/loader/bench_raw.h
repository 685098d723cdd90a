// bench/loader/bench_raw.h - the rate of the storage for plain reads of a file.
//
// Source: dissertation 5.1.1 (a map beside pread), 5.1.2, Figure 5.1 (read bandwidth against block
// size).
#ifndef LMDBIO_BENCH_LOADER_BENCH_RAW_H_
#define LMDBIO_BENCH_LOADER_BENCH_RAW_H_

#include <cstdint>
#include <string>

#include "bench/loader/bench_cache.h"
#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::tools {

// The memory that is read into. Its page size decides the number of segments of a direct read, and
// so the rate of many devices.
enum class RawMemory {
  kBest,    // private, huge pages if the system has them: the rate is that of the storage
  kWindow,  // as the loader's window: shared by the ranks of a host, huge pages if possible
  kSmall,   // private, small pages
};

struct RawBenchOptions {
  std::string data_path;
  file::EngineKind engine = file::EngineKind::kUring;
  file::CachePolicy cache = file::CachePolicy::kDirect;
  uint64_t transfer_bytes = 1 << 20;  // bytes of one read
  // Buffered pread with a depth of 1 is a plain loop in the calling thread, without an engine.
  uint32_t queue_depth = 32;
  uint64_t total_bytes = 0;       // bytes of all readers; 0: the whole file
  bool is_random = false;         // transfers in random order
  uint64_t sample_bytes = 0;      // most bytes in random order; 0: no limit
  CacheState cache_state;         // before reading
  uint32_t readers_per_host = 1;  // the first ranks of each host read, each its own part
  RawMemory memory = RawMemory::kBest;
};

struct RawResult {
  uint64_t bytes = 0;
  uint64_t requests = 0;
  int readers = 0;  // readers of all hosts
  std::string cache_words;
  // The memory that rank 0 read into, as "private memory, 100 % in huge pages". Empty if it did not
  // read.
  std::string memory_words;
  double seconds = 0;  // time of the slowest reader
  double bytes_per_s() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// Collective. Every rank gets the result.
// Errors: as OpenBlockEngine and WaitSome; kPeerFailed
Result<RawResult> MeasureRaw(ranks::Group& group, const RawBenchOptions& request);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_RAW_H_
