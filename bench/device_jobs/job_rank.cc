#include "bench/device_jobs/job_rank.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <span>

#include <fmt/format.h>

#include "bench/device/probe_row.h"
#include "bench/on_device/device_timer.h"

namespace lmdbio::figures {
namespace {

using device::DeviceAddress;

constexpr uint64_t kSpaceBytes = uint64_t{4} << 20;
constexpr int kLearningCalls = 6;  // a plan is learned meanwhile
constexpr int kSamplesMin = 5;
constexpr double kCallsMax = 64;

// Value i of a rank. The period is odd, so values of another place differ.
constexpr uint64_t kPeriod = 61;
float ValueOf(int rank, uint64_t i) { return static_cast<float>(i % kPeriod) - 30 + float(rank); }

// Sums of the first values, from left to right over the ranks.
std::array<float, kPeriod> SerialSums(int rank_count) {
  std::array<float, kPeriod> sums = {};
  for (int rank = 0; rank < rank_count; ++rank) {
    for (uint64_t i = 0; i < kPeriod; ++i) sums[i] += ValueOf(rank, i);
  }
  return sums;
}

double ProcessorSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void WriteRow(int descriptor, const probe::ProbeRow& row) {
  const std::string line = probe::ToLine(row);
  for (size_t written = 0; written < line.size();) {
    const ssize_t count = ::write(descriptor, line.data() + written, line.size() - written);
    if (count <= 0) return;  // the first process has ended, and this one is about to
    written += static_cast<size_t>(count);
  }
}

}  // namespace

Result<std::unique_ptr<JobRank>> JobRank::Open(const JobSpec& spec, ranks::Group& group, int rows) {
  LMDBIO_TRY(const device::DriverTable* const driver, device::SystemDriver());
  LMDBIO_TRY(auto device, device::Device::Open(spec.ordinal, *driver));
  LMDBIO_TRY(device::DeviceStream stream, device->MakeStream());
  LMDBIO_TRY(PinnedSpace space, PinnedSpace::Make(*device, kSpaceBytes));
  return std::unique_ptr<JobRank>(
      new JobRank(spec, group, rows, std::move(device), std::move(stream), std::move(space)));
}

void JobRank::Say(std::string measure, std::string unit, std::vector<double> samples,
                  std::string note) const {
  WriteRow(rows_, {.name = std::move(measure),
                   .state = probe::RowState::kYes,
                   .unit = std::move(unit),
                   .samples = std::move(samples),
                   .note = std::move(note)});
}

void JobRank::SayError(std::string measure, const Error& error) const {
  WriteRow(rows_, probe::RowOfError(std::move(measure), error));
}

void JobRank::SayTimes(const std::string& what, uint64_t size_bytes, const CallTimes& times) const {
  if (group_.rank() != 0) return;
  Say(MeasureOf(what, size_bytes), "us", times.microseconds);
  Say(MeasureOf(what + " processor", size_bytes), "us", times.processor_microseconds);
}

Status JobRank::Write(DeviceAddress to, uint64_t size_bytes) {
  const std::span<float> values(reinterpret_cast<float*>(space_.bytes().data()),
                                kSpaceBytes / sizeof(float));
  for (uint64_t done = 0; done < size_bytes; done += kSpaceBytes) {
    const uint64_t bytes = std::min(kSpaceBytes, size_bytes - done);
    const uint64_t first = done / sizeof(float);
    for (uint64_t i = 0; i < bytes / sizeof(float); ++i) {
      values[i] = ValueOf(group_.rank(), first + i);
    }
    LMDBIO_TRY_VOID(stream_.CopyIn(to + done, space_.pinned(), 0, bytes));
    LMDBIO_TRY_VOID(AwaitDone(stream_));
  }
  return {};
}

Status JobRank::CheckSum(DeviceAddress from, uint64_t size_bytes) {
  const std::array<float, kPeriod> sums = SerialSums(group_.size());
  const std::span<const float> values(reinterpret_cast<const float*>(space_.bytes().data()),
                                      kSpaceBytes / sizeof(float));
  for (uint64_t done = 0; done < size_bytes; done += kSpaceBytes) {
    const uint64_t bytes = std::min(kSpaceBytes, size_bytes - done);
    LMDBIO_TRY_VOID(stream_.CopyOut(space_.pinned(), 0, from + done, bytes));
    LMDBIO_TRY_VOID(AwaitDone(stream_));
    const uint64_t first = done / sizeof(float);
    for (uint64_t i = 0; i < bytes / sizeof(float); ++i) {
      const float expected = sums[(first + i) % kPeriod];
      if (values[i] == expected) continue;
      return Fail(
          ErrorCode::kCorruption,
          fmt::format("rank {}: value {} of {} is {}, and the serial sum is {}", group_.rank(),
                      first + i, size_bytes / sizeof(float), values[i], expected));
    }
  }
  return {};
}

Result<std::vector<double>> JobRank::LargestOfEach(std::vector<double> mine) const {
  LMDBIO_TRY(const auto bytes, group_.AllGather(std::as_bytes(std::span(mine))));
  std::vector<double> all(bytes.size() / sizeof(double));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < all.size(); ++i) {
    mine[i % mine.size()] = std::max(mine[i % mine.size()], all[i]);
  }
  return mine;
}

Result<double> JobRank::LargestOf(double mine) const {
  LMDBIO_TRY(const std::vector<double> largest, LargestOfEach({mine}));
  return largest.front();
}

Result<CallTimes> JobRank::Time(const std::function<Status()>& once) {
  double warm = 0;
  for (int i = 0; i < kLearningCalls; ++i) {
    const double begin = SecondsNow();
    LMDBIO_TRY_VOID(once());
    warm = SecondsNow() - begin;
  }
  LMDBIO_TRY(const double slowest, LargestOf(std::max(warm, 1e-9)));
  const double calls = std::clamp(std::ceil(spec_.sample_seconds / slowest), 1.0, kCallsMax);
  const double count =
      std::clamp(std::floor(spec_.row_seconds / (slowest * calls)),
                 double(std::min(kSamplesMin, spec_.sample_count)), double(spec_.sample_count));
  const double processes = spec_.are_threads ? group_.size() : 1;
  CallTimes times;
  for (int i = 0; i < static_cast<int>(count); ++i) {
    const double begin = SecondsNow();
    const double processor_begin = ProcessorSeconds();
    for (int call = 0; call < static_cast<int>(calls); ++call) LMDBIO_TRY_VOID(once());
    times.microseconds.push_back((SecondsNow() - begin) / calls * kMicro);
    times.processor_microseconds.push_back((ProcessorSeconds() - processor_begin) / calls /
                                           processes * kMicro);
  }
  LMDBIO_TRY(times.microseconds, LargestOfEach(std::move(times.microseconds)));
  return times;
}

}  // namespace lmdbio::figures
