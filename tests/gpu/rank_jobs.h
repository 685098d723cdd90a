// tests/gpu/rank_jobs.h - ranks of one GPU, as processes or threads, and the ways in which they
// reduce.
#ifndef LMDBIO_TESTS_GPU_RANK_JOBS_H_
#define LMDBIO_TESTS_GPU_RANK_JOBS_H_

#include <array>
#include <functional>
#include <string>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "tests/gpu/device_check.h"

namespace lmdbio::test {

struct ReduceWay {
  const char* name;
  const char* collective;
  const char* order;
};
inline constexpr std::array kEachWay{ReduceWay{"through the host", "staged", "auto"},
                                     ReduceWay{"on the GPU, order host", "auto", "host"},
                                     ReduceWay{"on the GPU, order event", "auto", "event"},
                                     ReduceWay{"on the GPU, order mark", "auto", "mark"}};

inline bool IsStaged(const ReduceWay& way) { return std::string(way.collective) == "staged"; }

inline sync::SyncOptions OptionsOf(const ReduceWay& way, const CheckScene& scene) {
  sync::SyncOptions options;
  options.device = static_cast<uint32_t>(scene.ordinal) + 1;
  options.device_collective = way.collective;
  options.device_order = way.order;
  return options;
}

// Of a rank: "", an error, or kLeftOutMark and the reason for which it cannot tell.
using RankReport = std::string;
inline constexpr const char* kLeftOutMark = "left out: ";

// The outcome of a check by the reports of all ranks. All errors are told, because a lower rank may
// know only that another one has ended.
inline CheckOutcome OutcomeOf(const std::vector<RankReport>& reports) {
  std::string left_out;
  std::string errors;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& report = reports[rank];
    if (report.empty()) continue;
    if (report.starts_with(kLeftOutMark)) {
      left_out = report.substr(std::string(kLeftOutMark).size());
    } else {
      errors += (errors.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + report;
    }
  }
  if (!errors.empty()) return Failed(errors);
  return left_out.empty() ? Passed() : LeftOut(left_out);
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_GPU_RANK_JOBS_H_
