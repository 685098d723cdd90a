// Batches of the baseline: every rank steps liblmdb's cursor over all records.
#include <span>
#include <utility>
#include <vector>

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

  Result<BatchStep> Take(const BatchSpan& span, std::chrono::milliseconds /*limit*/,
                         Batch& batch) override {
    const BatchGroup group = schedule_.Group(span.number);
    // A stream may begin within a group.
    if (span.number == group.first_batch || entries_.empty()) {
      LMDBIO_TRY_VOID(lmdb_->Gather(group, share_, rank_, rank_count_, entries_));
    }
    // A group is stepped through once, for all of its batches.
    const size_t count = entries_.size() / group.batch_count;
    const size_t first = (span.number - group.first_batch) * count;
    batch = Batch(span, lmdb_->base(), std::span(entries_).subspan(first, count), 0);
    return BatchStep::kBatch;
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
  std::vector<RecordEntry> entries_;  // of the group at hand
};

}  // namespace

std::unique_ptr<BatchSource> MakeLmdbBatches(std::unique_ptr<LmdbStream> lmdb,
                                             const Schedule& schedule, uint64_t first_batch,
                                             const HostMember& member) {
  return std::make_unique<LmdbBatches>(std::move(lmdb), schedule, first_batch, member);
}

}  // namespace lmdbio::load
