// tools/timeline/timeline_report.h - the time of each part of synchronisation, from the timelines
// of all ranks.
#ifndef LMDBIO_TOOLS_TIMELINE_TIMELINE_REPORT_H_
#define LMDBIO_TOOLS_TIMELINE_TIMELINE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/timeline/time_spans.h"

namespace lmdbio::tools {

// Takes events one by one and computes the report at the end. Times are in microseconds, of one
// clock for all ranks.
// Threads: one at a time.
class TimelineReport {
 public:
  // Takes one event of TimelineFile::ReadAll.
  void Take(const nlohmann::json& event);

  // Members of the outcome: phases, slowest tensors, last ranks, missing submissions, exposed time,
  // buckets and advice.
  // tensor_count_max  number of slowest tensors
  nlohmann::ordered_json Outcome(size_t tensor_count_max) const;

 private:
  using Durations = std::vector<float>;
  // The row of one tensor in the file of a rank.
  struct ReportTrack {
    size_t tensor = 0;  // in tensors_
    bool has_name = false;
    bool is_negotiating = false;
    double begin = 0;  // time of the submission
    bool has_begin = false;
  };
  // The phases of a bucket; of all its slices, if its tensor is cut.
  struct BucketTimes {
    double end = 0;                             // of the last slice
    double pack = 0, transfer = 0, unpack = 0;  // durations
  };
  // The transfers after the last completed bucket or slice of a rank.
  struct OpenTransfers {
    double begin = 0, duration = 0;
    bool has_one = false;
  };
  struct RankReport {
    std::map<uint64_t, ReportTrack> rows;
    std::map<uint64_t, BucketTimes> buckets;  // by number; the last kBucketsKept
    OpenTransfers transfers;
    TimeSpans under_way, transferring, negotiating, waiting;
    std::vector<double> bucket_bytes;
    double first = 0, last = 0;  // first begin and last end of all events
    bool has_event = false;
    uint64_t lost_count = 0;
  };
  struct TensorReport {
    std::string name;
    Durations total;
    std::map<std::string, double> phase_us;  // sums by phase
  };
  // The n-th submission of one tensor on all ranks.
  struct SubmissionTime {
    std::vector<int> ranks;
    int last_rank = -1;
    double last = 0, before_last = 0;
  };

  size_t TensorNamed(const std::string& name);
  void TakeMetadata(const nlohmann::json& event, RankReport& rank);
  void TakeBegin(const nlohmann::json& event, int rank_number, RankReport& rank, double at);
  void TakeEnd(const nlohmann::json& event, RankReport& rank, double at);
  void TakeSpan(const nlohmann::json& event, RankReport& rank, double at);
  void TakeBucket(const nlohmann::json& event, RankReport& rank, double at, double end);
  void TakeOperation(const nlohmann::json& event, RankReport& rank, double at, double end);
  void CountPhase(const char* name, TensorReport& tensor, double took);
  void CountSubmission(size_t tensor, uint64_t number, int rank, double at);

  nlohmann::ordered_json DescribePhases() const;
  nlohmann::ordered_json DescribeTensors(size_t count_max) const;
  nlohmann::ordered_json DescribeLast(nlohmann::ordered_json& advice) const;
  nlohmann::ordered_json DescribeMissing() const;
  nlohmann::ordered_json DescribeExposed(nlohmann::ordered_json& advice) const;
  nlohmann::ordered_json DescribeBuckets(nlohmann::ordered_json& advice) const;

  std::map<int, RankReport> ranks_;
  std::map<std::string, Durations> phases_;
  std::vector<TensorReport> tensors_;
  std::unordered_map<std::string, size_t> tensor_of_name_;
  std::map<std::pair<uint64_t, size_t>, SubmissionTime> submissions_;  // by number and tensor
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_TIMELINE_TIMELINE_REPORT_H_
