// bench/on_device/repeated_bytes.h - arrays that repeat a period of random numbers.
//
// The host computes the result of a period only. The result of the array then has to repeat it, and
// all bytes of it are compared. The period is no multiple of what a launch handles at a time, so a
// block that takes the place of another one gives wrong bytes.
#ifndef LMDBIO_BENCH_ON_DEVICE_REPEATED_BYTES_H_
#define LMDBIO_BENCH_ON_DEVICE_REPEATED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::figures {

// "64 MiB", "3 KiB", "100 B"
std::string SizeText(uint64_t size_bytes);

// For an array of `size_bytes`: at most 1 MiB and a little; a multiple of 8.
uint64_t PeriodBytes(uint64_t size_bytes);

// Numbers whose sums are finite, and are rounded.
std::vector<std::byte> RandomNumbers(sync::DataType type, uint64_t size_bytes,
                                     std::mt19937_64& random);

void Repeat(Bytes period, MutableBytes into);

// Errors: kInternal  `bytes` do not repeat the period; names the place and what they are
Status CheckRepeats(Bytes period, Bytes bytes, std::string_view what);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_REPEATED_BYTES_H_
