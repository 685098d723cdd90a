// lmdbio/load/turns/stagger_trial.h - tries several token counts and chooses the best.
//
// A "way" is an index: 0 is reading without tokens, w > 0 is the w-th token count. The best way
// depends on the storage; the dissertation found it by hand. Here the first slots are read in every
// way in turn, and each reader measures its rate. No record is read twice, because the slots are
// needed anyway. The way with the greatest sum over all readers is chosen. Tokens are chosen only
// if they are better by a twentieth.
//
// Source: dissertation 5.2.4; docs/many_hosts.md "Tokens".
#ifndef LMDBIO_LOAD_TURNS_STAGGER_TRIAL_H_
#define LMDBIO_LOAD_TURNS_STAGGER_TRIAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lmdbio::load {

// Without tokens, and R/2, R/4, ..., 1 tokens for up to 131,072 readers.
inline constexpr size_t kStaggerWaysMax = 18;

struct StaggerRates {
  std::array<double, kStaggerWaysMax> bytes_per_s{};  // [ways], summed over readers
  // Number of readers that mostly waited for their trainers, so that their rates mean little.
  uint64_t unclear_count = 0;
};

// The way with the greatest rate. 0 if no other way is better by a twentieth, or if more than half
// of the readers mostly waited for their trainers.
size_t ChooseStaggerWay(const StaggerRates& rates, size_t way_count, uint64_t reader_count);

// The token counts to try for R readers: R/2, R/4, ..., 1, but no more than `count_max` of them.
std::vector<uint32_t> TokenCountsToTry(uint64_t reader_count,
                                       size_t count_max = kStaggerWaysMax - 1);

// One reader's trial. Threads: one at a time.
class StaggerTrial {
 public:
  // Slots that are read before the first way is measured, and in each way.
  static constexpr uint64_t kWarmSlots = 2;
  static constexpr uint64_t kSlotsPerWay = 4;

  // way_count  [1 to kStaggerWaysMax]; 1: there is nothing to try
  explicit StaggerTrial(size_t way_count) : way_count_(way_count) {}

  uint64_t slot_count() const { return kWarmSlots + kSlotsPerWay * way_count_; }

  // The way in which to read slot `slot` of the stream. 0 after the trial, which is used until the
  // choice is known.
  size_t WayOf(uint64_t slot) const;

  // To be called when this reader has read its part of the next slot.
  // now_s  from a monotonic clock
  void SlotDone(uint64_t bytes, double now_s);

  // Time in which the reader waited for its trainers. It does not count.
  void Waited(double seconds) { way_waited_s_ += seconds; }

  // The measured rates, once, after the end of the trial.
  std::optional<StaggerRates> TakeRates();

 private:
  bool IsOver() const { return done_count_ >= slot_count(); }

  size_t way_count_;
  uint64_t done_count_ = 0;
  double way_began_s_ = 0;
  uint64_t way_bytes_ = 0;
  double way_waited_s_ = 0;
  bool is_unclear_ = false;
  bool is_taken_ = false;
  StaggerRates rates_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_TURNS_STAGGER_TRIAL_H_
