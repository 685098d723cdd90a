// Iterations of a trainer: the time of the host in its calls, and communication that is not hidden.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench/device_jobs/iteration.h"
#include "bench/device_jobs/job_kinds.h"
#include "bench/on_device/device_timer.h"

namespace lmdbio::figures {
namespace {

constexpr int kWarmUps = 6;  // a plan is learned meanwhile
constexpr double kNanosecondsOfSecond = 1e9;
constexpr double kMilli = 1e3;

struct StepSamples {
  std::vector<double> host_ms;  // hooks and synchronize()
  std::vector<double> helper;   // processor time of the helper thread by the time of the iteration
  std::vector<double> is_busy;  // 1: the GPU had still work when the calls had returned
};

// One iteration whose gradients are ready only when the GPU has done all work. So a call that waits
// for the GPU takes as long as that.
Status StepOnce(JobRank& rank, EmulatedIteration& iteration, device::DeviceEvent& worked,
                StepSamples* samples) {
  const sync::Synchronizer& synchronizer = iteration.job().synchronizer();
  const double begin = SecondsNow();
  const uint64_t helper_begin = synchronizer.counters().thread_cpu_ns;
  LMDBIO_TRY_VOID(iteration.EnqueueAllWork());
  LMDBIO_TRY_VOID(rank.stream().Record(worked));
  const double host_begin = SecondsNow();
  for (size_t i = 0; i < iteration.gradient_count(); ++i) LMDBIO_TRY_VOID(iteration.Submit(i));
  LMDBIO_TRY_VOID(iteration.WaitOnAll());
  const double host_seconds = SecondsNow() - host_begin;
  LMDBIO_TRY(const bool is_idle, worked.IsDone());
  LMDBIO_TRY_VOID(AwaitDone(rank.stream()));
  LMDBIO_TRY_VOID(rank.group().Barrier());
  if (samples == nullptr) return {};
  const auto helper_ns = static_cast<double>(synchronizer.counters().thread_cpu_ns - helper_begin);
  samples->host_ms.push_back(host_seconds * kMilli);
  samples->helper.push_back(helper_ns / kNanosecondsOfSecond / (SecondsNow() - begin));
  samples->is_busy.push_back(is_idle ? 0 : 1);
  return {};
}

using Enqueue = std::function<Status()>;

// Milliseconds until the stream is done.
Result<double> TimeOf(JobRank& rank, const Enqueue& enqueue) {
  LMDBIO_TRY_VOID(rank.group().Barrier());
  const double begin = SecondsNow();
  LMDBIO_TRY_VOID(enqueue());
  LMDBIO_TRY_VOID(AwaitDone(rank.stream()));
  const double mine = (SecondsNow() - begin) * kMilli;
  return rank.LargestOf(mine);
}

}  // namespace

Status PlayStep(JobRank& rank) {
  LMDBIO_TRY(const auto iteration, EmulatedIteration::Make(rank));
  LMDBIO_TRY(device::DeviceEvent worked, rank.device().MakeEvent(device::DeviceEventKind::kLocal));
  for (int i = 0; i < kWarmUps; ++i) LMDBIO_TRY_VOID(StepOnce(rank, *iteration, worked, nullptr));
  StepSamples samples;
  for (int i = 0; i < rank.spec().sample_count; ++i) {
    LMDBIO_TRY_VOID(StepOnce(rank, *iteration, worked, &samples));
  }
  LMDBIO_TRY_VOID(iteration->Check());
  if (rank.group().rank() == 0) {
    rank.Say("host", "ms", samples.host_ms);
    rank.Say("helper", "ratio", samples.helper);
    rank.Say("busy", "ratio", samples.is_busy);
  }
  return iteration->job().synchronizer().Shutdown();
}

Status PlayOverlap(JobRank& rank) {
  LMDBIO_TRY(const auto iteration, EmulatedIteration::Make(rank));
  const size_t count = iteration->gradient_count();
  const Enqueue work = [&] { return iteration->EnqueueAllWork(); };
  const Enqueue sums = [&]() -> Status {
    for (size_t i = 0; i < count; ++i) LMDBIO_TRY_VOID(iteration->Submit(i));
    return iteration->WaitOnAll();
  };
  const Enqueue both = [&]() -> Status {
    for (size_t i = 0; i < count; ++i) {
      LMDBIO_TRY_VOID(iteration->EnqueueWork(i));
      LMDBIO_TRY_VOID(iteration->Submit(i));
    }
    return iteration->WaitOnAll();
  };
  for (int i = 0; i < kWarmUps; ++i) LMDBIO_TRY_VOID(TimeOf(rank, both).map([](double) {}));
  std::vector<double> work_ms;
  std::vector<double> sums_ms;
  std::vector<double> exposed;
  for (int i = 0; i < rank.spec().sample_count; ++i) {
    LMDBIO_TRY(const double only_work, TimeOf(rank, work));
    LMDBIO_TRY(const double only_sums, TimeOf(rank, sums));
    LMDBIO_TRY(const double all, TimeOf(rank, both));
    work_ms.push_back(only_work);
    sums_ms.push_back(only_sums);
    exposed.push_back(std::max(0.0, all - only_work) / only_sums);
  }
  LMDBIO_TRY_VOID(iteration->Check());
  if (rank.group().rank() == 0) {
    rank.Say("work", "ms", work_ms);
    rank.Say("sums", "ms", sums_ms);
    rank.Say("exposed", "ratio", exposed);
  }
  return iteration->job().synchronizer().Shutdown();
}

}  // namespace lmdbio::figures
