// Collectives that report each transfer of gradients, and do all else as others do.
#include <chrono>
#include <optional>
#include <utility>

#include "bench/sync/gradient_sync.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The library has no such report, because only this measurement needs it. A call more for each
// collective costs some nanoseconds of its microseconds.
class WatchedCollectives final : public sync::ForwardedCollectives {
 public:
  WatchedCollectives(std::unique_ptr<sync::Collectives> inner, InputWindow& window,
                     TransferRecord* record)
      : ForwardedCollectives(std::move(inner)), window_(window), record_(record) {}

  // Gradients move in these calls only. No plan predicts the time of a half.
  Result<sync::CallOutcome> ReduceToParts(const sync::CallTag& tag, const sync::Values& values,
                                          const sync::Reduction& reduction) override {
    window_.OnTransfer();
    return ForwardedCollectives::ReduceToParts(tag, values, reduction);
  }
  Result<sync::CallOutcome> GatherParts(const sync::CallTag& tag,
                                        const sync::Values& values) override {
    window_.OnTransfer();
    return ForwardedCollectives::GatherParts(tag, values);
  }
  Result<sync::CallOutcome> AllReduce(const sync::CallTag& tag, const sync::Values& values,
                                      const sync::Reduction& reduction) override {
    window_.OnTransfer();
    if (record_ == nullptr) return ForwardedCollectives::AllReduce(tag, values, reduction);
    const auto began = Clock::now();
    auto outcome = ForwardedCollectives::AllReduce(tag, values, reduction);
    const auto end = Clock::now();
    // A declined call has moved nothing.
    if (outcome && *outcome == sync::CallOutcome::kDone) {
      const std::chrono::nanoseconds took = end - began;
      const std::chrono::nanoseconds rest = began - last_end_.value_or(began);
      record_->Add({values.count * sync::ElementBytes(values.type), took.count()}, rest.count());
      last_end_ = end;
    }
    return outcome;
  }

 private:
  InputWindow& window_;
  TransferRecord* const record_;
  std::optional<Clock::time_point> last_end_;  // of a call
};

}  // namespace

std::unique_ptr<sync::Collectives> WatchTransfers(std::unique_ptr<sync::Collectives> inner,
                                                  InputWindow& window, TransferRecord* record) {
  return std::make_unique<WatchedCollectives>(std::move(inner), window, record);
}

}  // namespace lmdbio::bench
