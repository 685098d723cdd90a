#include "bench/sync/iteration_runner.h"

#include <chrono>

namespace lmdbio::bench {

std::string_view NameOf(BenchRunKind kind) {
  switch (kind) {
    case BenchRunKind::kTrain:
      return "train";
    case BenchRunKind::kIdle:
      return "idle";
    case BenchRunKind::kAlone:
      return "alone";
  }
  return "?";
}

Result<double> IterationRunner::Iterate(uint64_t iteration) {
  const uint32_t tensor_count = parts_.gradients.tensor_count();
  // Writing the gradients is work of the trainer, so it comes before the clock starts.
  if (kind_ == BenchRunKind::kAlone) {
    for (uint32_t i = 0; i < tensor_count; ++i) parts_.gradients.Fill(i, parts_.rank, iteration);
  }
  const auto start = std::chrono::steady_clock::now();
  parts_.window.Open();
  if (kind_ == BenchRunKind::kAlone) {
    for (uint32_t i = tensor_count; i-- > 0;) parts_.sync->Submit(i);
  } else {
    LMDBIO_TRY_VOID(CheckWork(Compute(iteration)));
  }
  parts_.window.OnComputed();
  // With windows nothing is left to wait for; a failure of the iteration is.
  if (has_gradients()) LMDBIO_TRY_VOID(parts_.sync->WaitAll());
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  // After the clock has stopped, because the check is no part of an iteration, and before the next
  // backward pass overwrites the sums.
  if (has_gradients()) {
    LMDBIO_TRY_VOID(parts_.gradients.Check(parts_.network, parts_.rank_count, iteration));
  }
  return ms;
}

// Both passes. Returns the checksum of their work.
uint64_t IterationRunner::Compute(uint64_t iteration) {
  LayerCalls calls;
  calls.ready = [&](const Layer& layer) {
    for (const uint32_t tensor : layer.tensors) {
      parts_.gradients.Fill(tensor, parts_.rank, iteration);
      if (has_gradients()) parts_.sync->Submit(tensor);
    }
  };
  if (!is_windowed_) return parts_.workload.Iterate(PassDirection::kForward, calls);
  if (has_gradients()) {
    calls.needed = [&](const Layer& layer) {
      bool has_waited = false;
      for (const uint32_t tensor : layer.tensors) has_waited |= parts_.sync->Wait(tensor);
      return has_waited;
    };
  }
  return parts_.workload.Iterate(PassDirection::kBackward, calls);
}

// Equal checksums show that each iteration has done the same work, and that the compiler has kept
// it.
Status IterationRunner::CheckWork(uint64_t checksum) {
  if (checksum_ == 0) checksum_ = checksum;
  if (checksum_ == checksum) return {};
  return Fail(ErrorCode::kInternal, "two iterations have different checksums of their computing");
}

}  // namespace lmdbio::bench
