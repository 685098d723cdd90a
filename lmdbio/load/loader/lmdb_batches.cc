// Batches of the baseline: every rank steps liblmdb's cursor over all records.
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lmdbio/load/loader/batch_returns.h"
#include "lmdbio/load/loader/batch_source.h"

namespace lmdbio::load {
namespace {

class LmdbBatches final : public BatchSource {
 public:
  LmdbBatches(std::unique_ptr<LmdbStream> lmdb, const Schedule& schedule, uint64_t first_batch,
              const HostMember& member)
      : lmdb_(std::move(lmdb)),
        schedule_(schedule),
        share_(member.ranks.share),
        rank_(member.rank),
        rank_count_(member.ranks.rank_count) {
    // The cursor goes round, so whole epochs before the first batch need no steps.
    lmdb_->SkipEpochs(schedule_.Group(first_batch).first_walk, schedule_.record_count());
  }

  Result<TakeStep> Take(const BatchSpan& span, std::chrono::milliseconds /*limit*/,
                        Batch& batch) override {
    const BatchGroup group = schedule_.Group(span.number);
    // A stream may begin within a group.
    if (span.number == group.first_batch || !entries_) {
      std::vector<RecordEntry> entries;
      LMDBIO_TRY_VOID(lmdb_->Gather(group, share_, rank_, rank_count_, entries));
      const std::lock_guard lock(mutex_);
      entries_ =
          groups_.Open(span.number, group.first_batch + group.batch_count, std::move(entries));
    }
    // A group is stepped through once, for all of its batches.
    const size_t count = entries_->size() / group.batch_count;
    const size_t first = (span.number - group.first_batch) * count;
    batch = Batch(span, lmdb_->base(), entries_->subspan(first, count), 0);
    return TakeStep::kBatch;
  }

  void Return(uint64_t batch_number) override {
    const std::lock_guard lock(mutex_);
    groups_.Return(batch_number, [](const std::vector<RecordEntry>&) {});
  }

  void AddTo(LoaderCounters& counters) const override {
    counters.locate_s += lmdb_->locate_s();
    counters.read_s += lmdb_->read_s();
  }

 private:
  std::unique_ptr<LmdbStream> lmdb_;
  Schedule schedule_;
  Share share_;
  int rank_;
  int rank_count_;
  std::optional<std::span<RecordEntry>> entries_;  // of the group of the batch taken last
  std::mutex mutex_;
  BatchesInUse<std::vector<RecordEntry>> groups_;  // their entries
};

}  // namespace

std::unique_ptr<BatchSource> MakeLmdbBatches(std::unique_ptr<LmdbStream> lmdb,
                                             const Schedule& schedule, uint64_t first_batch,
                                             const HostMember& member) {
  return std::make_unique<LmdbBatches>(std::move(lmdb), schedule, first_batch, member);
}

}  // namespace lmdbio::load
