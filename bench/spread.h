// bench/spread.h - the median and the range of a figure that was measured several times.
#ifndef LMDBIO_BENCH_SPREAD_H_
#define LMDBIO_BENCH_SPREAD_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lmdbio::tools {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

// Zeros without values.
inline Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_SPREAD_H_
