// Collectives that report the begin of each transfer of gradients, and do all else as others do.
#include <utility>

#include "bench/sync/gradient_sync.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"

namespace lmdbio::bench {
namespace {

// The library has no such report, because only this measurement needs it. A call more for each
// collective costs some nanoseconds of its microseconds.
class WatchedCollectives final : public sync::ForwardedCollectives {
 public:
  WatchedCollectives(std::unique_ptr<sync::Collectives> inner, InputWindow& window)
      : ForwardedCollectives(std::move(inner)), window_(window) {}

  // Gradients move in this call only.
  Result<sync::CallOutcome> AllReduce(const sync::CallTag& tag, const sync::Values& values,
                                      const sync::Reduction& reduction) override {
    window_.OnTransfer();
    return ForwardedCollectives::AllReduce(tag, values, reduction);
  }

 private:
  InputWindow& window_;
};

}  // namespace

std::unique_ptr<sync::Collectives> WatchTransfers(std::unique_ptr<sync::Collectives> inner,
                                                  InputWindow& window) {
  return std::make_unique<WatchedCollectives>(std::move(inner), window);
}

}  // namespace lmdbio::bench
