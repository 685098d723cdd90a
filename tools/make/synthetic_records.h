// tools/make/synthetic_records.h - pseudo-random records, computed from a seed and a record number.
//
// Every function is pure, so any record can be made or checked without the others.
#ifndef LMDBIO_TOOLS_MAKE_SYNTHETIC_RECORDS_H_
#define LMDBIO_TOOLS_MAKE_SYNTHETIC_RECORDS_H_

#include <cstdint>

#include "lmdbio/base/types.h"

namespace lmdbio::tools {

// The distribution of the value sizes.
struct ValueSizes {
  enum class SizeDistribution { kFixed, kUniform, kLogNormal };
  SizeDistribution kind = SizeDistribution::kFixed;
  uint64_t min_bytes = 0;     // kFixed: the size of every value
  uint64_t max_bytes = 0;     // kUniform
  double median_bytes = 0.0;  // kLogNormal
  double sigma = 0.0;         // kLogNormal: standard deviation of the logarithm
};

// The size of the value of `record`, at most 2^32 - 1 bytes and for kLogNormal at least 1.
uint64_t SyntheticValueBytes(const ValueSizes& sizes, uint64_t seed, uint64_t record);

// The mean value size over many records.
double MeanValueBytes(const ValueSizes& sizes);

// Fills `value` with pseudo-random bytes. The first eight are the record's number, low byte first
// (truncated if the value is shorter), so that a reader can identify the record.
// Cost: about 1 ns for 8 bytes
void FillSyntheticValue(uint64_t seed, uint64_t record, MutableBytes value);

// A seeded permutation of the numbers below `count`, in constant memory: a Feistel network over the
// next power of four, applied again while its result is not below `count`.
//
// Source: J. Black, P. Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002 ("cycle
// walking").
class Permutation {
 public:
  // Requires: count > 0
  Permutation(uint64_t seed, uint64_t count);

  // Requires: position < count
  // Cost:     under 4 rounds of the network on average
  uint64_t operator()(uint64_t position) const;

 private:
  uint64_t Encipher(uint64_t block) const;

  uint64_t seed_;
  uint64_t count_;
  unsigned half_bits_;
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_SYNTHETIC_RECORDS_H_
