// bench/device_jobs/job_spec.h - what the ranks of a job do, as the first process tells them.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_JOB_SPEC_H_
#define LMDBIO_BENCH_DEVICE_JOBS_JOB_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmdbio::figures {

// The same on every rank, except the rank.
struct JobSpec {
  std::string kind;  // see KindsOfJobs
  // Of the kind: the way of an AllReduce, or "ALGORITHM LINK REDUCER" of a wire.
  std::string variant = {};
  std::string order = "auto";  // SyncOptions::device_order
  int rank_count = 1;
  bool are_threads = false;  // of one process
  std::vector<uint64_t> sizes = {};
  uint64_t buffer_bytes =
      0;  // SyncOptions::device_buffer_bytes; 0: so many that no tensor is in pieces
  int ordinal = 0;
  int sample_count = 20;
  double sample_seconds = 0.002;  // shorter calls are repeated within a sample
  double row_seconds = 3;         // about, for the samples of a row
};

// Where the processes of a job meet.
struct JobMeeting {
  int rank = 0;
  uint16_t port = 0;
  uint64_t job = 0;
};

// One line.
std::string TextOf(const JobSpec& spec);
std::string TextOf(const JobMeeting& meeting);
// Nothing if it is no such text.
std::optional<JobSpec> JobSpecOf(const std::string& text);
std::optional<JobMeeting> JobMeetingOf(const std::string& text);

// Of the rows that a rank sends: the measure of a size.
std::string MeasureOf(const std::string& what, uint64_t size_bytes);

// "8 B", "64 KiB", "512 MiB"
std::string SizeWords(uint64_t size_bytes);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_JOB_SPEC_H_
