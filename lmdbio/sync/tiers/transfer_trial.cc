#include "lmdbio/sync/tiers/transfer_trial.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lmdbio/base/kept_memory.h"

namespace lmdbio::sync {
namespace {

using std::chrono::nanoseconds;

constexpr uint64_t kBytesMax = kTransferTrialBytes.back();
constexpr uint64_t kTrialDigest = 0x5472'6961'6C73;

// Ranks that make different calls have a defect, or another version.
Status CheckDone(const CallOutcome& outcome) {
  if (outcome == CallOutcome::kDone) return {};
  return Fail(ErrorCode::kInternal, "the ranks made different calls in the trial of transfers");
}

class TransferTrial {
 public:
  TransferTrial(Collectives& collectives, nanoseconds time, const TransferClock& clock)
      : collectives_(collectives), time_(time), clock_(clock) {
    if (collectives.registered().size() >= kBytesMax) {
      memory_ = collectives.registered().data();
      return;
    }
    own_memory_ = std::make_unique<std::byte[]>(kBytesMax);
    memory_ = own_memory_.get();
  }
  // A call that has failed may still write.
  ~TransferTrial() {
    if (collectives_.writes_after_failure()) KeepForever(std::move(own_memory_));
  }
  TransferTrial(const TransferTrial&) = delete;
  TransferTrial& operator=(const TransferTrial&) = delete;

  // The time begins when all ranks have their memory: it is written, which may take longer than
  // many calls.
  Status Begin() {
    LMDBIO_TRY_VOID(Share(true));
    began_ = clock_();
    return {};
  }

  // The time of a call of so many bytes; -1: rank 0 has no time for it.
  Result<int64_t> Measure(uint64_t bytes) {
    // Larger calls take longer, but not by more than their size.
    const nanoseconds expected = last_ * static_cast<int64_t>(kTransferTrialCallsMin * kGrowth);
    const bool has_time = last_.count() == 0 || clock_() - began_ + expected <= time_;
    LMDBIO_TRY(const bool goes_on, Share(has_time));
    if (!goes_on) return -1;
    std::vector<nanoseconds> times;
    const nanoseconds began = clock_();
    // The first calls may be quick, and the later ones not. So the number doubles step by step.
    for (size_t count = kTransferTrialCallsMin; count <= kTransferTrialCallsMax; count *= 2) {
      while (times.size() < count) LMDBIO_TRY_VOID(Call(bytes, times));
      LMDBIO_TRY(const bool is_enough, Share(clock_() - began >= kTransferTrialSizeTime));
      if (is_enough) break;
    }
    last_ = MedianOfLastHalf(times);
    return Share(last_.count());
  }

 private:
  Status Call(uint64_t bytes, std::vector<nanoseconds>& times) {
    const nanoseconds begin = clock_();
    LMDBIO_TRY(const CallOutcome outcome,
               collectives_.AllReduce({.digest = kTrialDigest + bytes},
                                      {memory_, bytes / sizeof(float), DataType::kFloat32},
                                      ReduceOp::kSum));
    LMDBIO_TRY_VOID(CheckDone(outcome));
    times.push_back(clock_() - begin);
    return {};
  }

  // Of two, the quicker: other work only makes a call slower.
  static nanoseconds MedianOfLastHalf(std::vector<nanoseconds>& times) {
    const auto half = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
    const auto middle = half + (times.end() - half - 1) / 2;
    std::nth_element(half, middle, times.end());
    return *middle;
  }

  // The value of rank 0, on all ranks.
  template <typename T>
  Result<T> Share(T value) {
    LMDBIO_TRY(const CallOutcome outcome,
               collectives_.Broadcast({.digest = kTrialDigest},
                                      std::as_writable_bytes(std::span(&value, 1)), 0));
    LMDBIO_TRY_VOID(CheckDone(outcome));
    return value;
  }

  static constexpr uint64_t kGrowth = kTransferTrialBytes[1] / kTransferTrialBytes[0];
  Collectives& collectives_;
  const nanoseconds time_;
  const TransferClock& clock_;
  std::unique_ptr<std::byte[]> own_memory_;
  std::byte* memory_ = nullptr;
  nanoseconds began_{0};
  nanoseconds last_{0};  // of a call of the size before
};

}  // namespace

Result<std::vector<TransferSample>> TryTransfers(Collectives& collectives, nanoseconds time,
                                                 const TransferClock& clock) {
  std::vector<TransferSample> samples;
  if (collectives.size() == 1) return samples;
  TransferTrial trial(collectives, time, clock);
  LMDBIO_TRY_VOID(trial.Begin());
  for (const uint64_t bytes : kTransferTrialBytes) {
    LMDBIO_TRY(const int64_t ns, trial.Measure(bytes));
    if (ns < 0) break;
    samples.push_back({bytes, ns});
  }
  return samples;
}

}  // namespace lmdbio::sync
