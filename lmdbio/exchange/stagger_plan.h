// lmdbio/exchange/stagger_plan.h - how many readers shall read at a time: tried, then chosen.
//
// A way is 0, everybody reads when it likes, or one of some numbers of tokens. Which is best
// depends on the storage; the dissertation found it by hand. Here the first slots are read in every
// way in turn - they are needed anyway, so nothing is read twice - and each reader measures its
// rate. The rates of all readers are added up, and the way with the greatest sum is chosen; tokens
// must be worth it.
//
// Source: dissertation 5.2.4; docs/many_hosts.md "Tokens".
#ifndef LMDBIO_EXCHANGE_STAGGER_PLAN_H_
#define LMDBIO_EXCHANGE_STAGGER_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lmdbio::exchange {

inline constexpr size_t kStaggerWaysMax = 4;

struct StaggerRates {
  std::array<double, kStaggerWaysMax> bytes_per_s{};  // [ways], summed over readers
  // Readers that mostly waited for their trainers: what they measured says little.
  uint64_t unclear_count = 0;
};

// The way with the greatest rate; 0 unless another is better by a twentieth, or if most trainers
// are slower than the storage.
size_t ChooseStaggerWay(const StaggerRates& rates, size_t way_count, uint64_t reader_count);

// The numbers of tokens worth trying for so many readers: a half and a quarter of them.
std::vector<uint32_t> TokenCountsToTry(uint64_t reader_count);

// One reader's trial. Threads: one at a time.
class StaggerTrial {
 public:
  // Slots that are read before the first way is measured, and in each way.
  static constexpr uint64_t kWarmSlots = 2;
  static constexpr uint64_t kSlotsPerWay = 4;

  // way_count  [1 to kStaggerWaysMax]; of 1 nothing is to be tried
  explicit StaggerTrial(size_t way_count) : way_count_(way_count) {}

  uint64_t slot_count() const { return kWarmSlots + kSlotsPerWay * way_count_; }

  // How to read slot `slot` of the stream. After the trial, and before everybody's choice is known:
  // freely.
  size_t WayOf(uint64_t slot) const;

  // This reader's part of the next slot has been read.
  // now_s  of a clock of this reader that does not jump
  void SlotDone(uint64_t bytes, double now_s);

  // The reader had to wait for its trainers; that time does not count.
  void Waited(double seconds) { way_waited_s_ += seconds; }

  // What was measured, when the trial is over; once.
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

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_STAGGER_PLAN_H_
