// bench/loader/bench_cache.h - the state of the page cache at the begin of a run.
#ifndef LMDBIO_BENCH_LOADER_BENCH_CACHE_H_
#define LMDBIO_BENCH_LOADER_BENCH_CACHE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::tools {

// The share of the file that the page cache holds, in percent. Nothing: as it was.
using CacheState = std::optional<uint32_t>;
inline constexpr uint32_t kCold = 0;
inline constexpr uint32_t kWarm = 100;

// Collective. The first rank of each host brings its page cache into `state`. Below 100 %, all
// caches are dropped if that is allowed, otherwise only the pages of the file. Then the share is
// read: the same random stretches of 1 MiB each time, because the kernel drops pages in stretches,
// too.
// Returns: the name of the state in a report, as "cold (all caches of every host dropped)"
// Errors: kIo, kNotFound, kPermission; kPeerFailed
Result<std::string> PrepareCache(ranks::Group& group, CacheState state,
                                 const std::string& data_path);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_CACHE_H_
