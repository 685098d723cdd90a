#include "lmdbio/sync/schedule/transfer_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// The key of each unit, or of a unit that needs it, if that is less. Sorted by these keys, and
// equal ones by index, all that a unit needs comes before it: units up to `needs_up_to` have
// smaller indexes and no larger keys.
std::vector<int64_t> WithNeeds(std::span<const TransferUnit> units, std::vector<int64_t> keys) {
  // The least key of the units that need all units up to this one.
  std::vector<int64_t> needed(units.size(), kScheduleEndNs);
  int64_t least = kScheduleEndNs;  // of those that need all units up to this one or a later one
  for (size_t unit = units.size(); unit-- > 0;) {
    least = std::min(least, needed[unit]);
    keys[unit] = std::min(keys[unit], least);
    const int64_t needs = units[unit].needs_up_to;
    LMDBIO_CHECK(needs < static_cast<int64_t>(unit));
    if (needs < 0) continue;
    int64_t& key = needed[static_cast<size_t>(needs)];
    key = std::min(key, keys[unit]);
  }
  return keys;
}

// Plays the channel, which makes one step after the other.
class DueOrder {
 public:
  DueOrder(std::span<const TransferUnit> units, const TransferModel& model)
      : units_(units), model_(model), is_done_(units.size()), next_byte_(units.size()) {
    std::vector<int64_t> due;
    for (const TransferUnit& unit : units) due.push_back(unit.due_ns);
    due_ = WithNeeds(units, std::move(due));
    arrivals_.resize(units.size());
    std::iota(arrivals_.begin(), arrivals_.end(), size_t{0});
    std::sort(arrivals_.begin(), arrivals_.end(), [&](size_t a, size_t b) {
      return std::pair(units[a].ready_ns, a) < std::pair(units[b].ready_ns, b);
    });
  }

  std::vector<TransferStep> Make() {
    while (done_count_ < units_.size()) {
      Release();
      if (ready_.empty()) {
        // All units that were submitted are done: the unit with the least index that is not done
        // needs no others.
        now_ns_ = units_[arrivals_[arrived_count_]].ready_ns;
      } else {
        MakeStep(ready_.top().second);
      }
    }
    return std::move(steps_);
  }

 private:
  using Keyed = std::pair<int64_t, size_t>;  // a key and a unit
  using LeastFirst = std::priority_queue<Keyed, std::vector<Keyed>, std::greater<>>;

  void Release() {
    while (arrived_count_ < arrivals_.size()) {
      const size_t unit = arrivals_[arrived_count_];
      if (units_[unit].ready_ns > now_ns_) break;
      ++arrived_count_;
      blocked_.emplace(units_[unit].needs_up_to, unit);
    }
    while (!blocked_.empty() && blocked_.top().first < static_cast<int64_t>(done_up_to_)) {
      const size_t unit = blocked_.top().second;
      blocked_.pop();
      ready_.emplace(due_[unit], unit);
    }
  }

  void MakeStep(size_t unit) {
    const uint64_t begin = next_byte_[unit];
    const uint64_t left = units_[unit].bytes - begin;
    const uint64_t slice = units_[unit].slice_bytes;
    const uint64_t bytes = slice == 0 ? left : std::min(left, slice);
    steps_.push_back({unit, begin, bytes});
    now_ns_ = AddNs(now_ns_, model_.TimeOf(bytes));
    next_byte_[unit] += bytes;
    if (next_byte_[unit] < units_[unit].bytes) return;
    ready_.pop();
    is_done_[unit] = 1;
    ++done_count_;
    while (done_up_to_ < units_.size() && is_done_[done_up_to_] != 0) ++done_up_to_;
  }

  std::span<const TransferUnit> units_;
  const TransferModel& model_;
  std::vector<int64_t> due_;         // [units] of each, or of a unit that needs it
  std::vector<size_t> arrivals_;     // units by their ready times
  size_t arrived_count_ = 0;         // of arrivals_
  LeastFirst blocked_;               // submitted, by the units that they need
  LeastFirst ready_;                 // submitted, and all that they need is done; by due times
  std::vector<uint8_t> is_done_;     // [units]
  std::vector<uint64_t> next_byte_;  // [units]
  size_t done_count_ = 0;
  size_t done_up_to_ = 0;  // all units before this one are done
  int64_t now_ns_ = -kTimeMaxNs;
  std::vector<TransferStep> steps_;
};

// A time in which the channel makes one unit.
struct TransferWindow {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  friend auto operator<=>(const TransferWindow&, const TransferWindow&) = default;
};

// The places of units beside one pass, which do not overlap.
class PassBins {
 public:
  // The first gap of `ns` in [begin_ns, end_ns].
  bool PlaceFirst(size_t unit, int64_t begin_ns, int64_t end_ns, int64_t ns) {
    for (const auto& [window, other] : places_) {
      if (begin_ns + ns <= window.begin_ns) break;
      begin_ns = std::max(begin_ns, window.end_ns);
    }
    if (begin_ns + ns > end_ns) return false;
    Place(unit, {begin_ns, begin_ns + ns});
    return true;
  }

  // The last gap of `ns` in [begin_ns, end_ns].
  bool PlaceLast(size_t unit, int64_t begin_ns, int64_t end_ns, int64_t ns) {
    for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
      if (end_ns - ns >= place->first.end_ns) break;
      end_ns = std::min(end_ns, place->first.begin_ns);
    }
    if (end_ns - ns < begin_ns) return false;
    Place(unit, {end_ns - ns, end_ns});
    return true;
  }

  void Place(size_t unit, TransferWindow window) {
    const std::pair place(window, unit);
    places_.insert(std::upper_bound(places_.begin(), places_.end(), place), place);
  }

  // The begin of the first place, and the end of the last one; `otherwise` without any.
  int64_t BeginOr(int64_t otherwise) const {
    return places_.empty() ? otherwise : places_.front().first.begin_ns;
  }
  int64_t EndOr(int64_t otherwise) const {
    return places_.empty() ? otherwise : places_.back().first.end_ns;
  }

  void AppendUnits(std::vector<size_t>& order) const {
    for (const auto& [window, unit] : places_) order.push_back(unit);
  }

 private:
  std::vector<std::pair<TransferWindow, size_t>> places_;  // with the unit, in order
};

// The third stage of 4.3: outside of the pass, where the iteration grows less.
void PlaceOutside(size_t unit, const TransferUnit& times, int64_t ns, int64_t backward_end_ns,
                  PassBins& backward, PassBins& forward) {
  const int64_t tail_ns = backward.EndOr(times.ready_ns);
  const int64_t begin_ns = std::max(times.ready_ns, tail_ns);
  const int64_t tail_growth_ns = begin_ns + ns - std::max(tail_ns, backward_end_ns);
  const int64_t head_ns = forward.BeginOr(kScheduleEndNs);
  const int64_t end_ns = std::min(head_ns, times.due_ns);
  const int64_t head_begin_ns = std::max(end_ns - ns, -kScheduleEndNs);
  const int64_t head_growth_ns = std::min(head_ns, backward_end_ns) - head_begin_ns;
  if (tail_growth_ns <= head_growth_ns) {
    backward.Place(unit, {begin_ns, AddNs(begin_ns, ns)});
  } else {
    forward.Place(unit, {head_begin_ns, end_ns});
  }
}

std::vector<TransferStep> WholeSteps(std::span<const TransferUnit> units,
                                     const std::vector<size_t>& order) {
  std::vector<TransferStep> steps;
  steps.reserve(order.size());
  for (const size_t unit : order) steps.push_back({unit, 0, units[unit].bytes});
  return steps;
}

}  // namespace

std::vector<TransferStep> OrderAsGiven(std::span<const TransferUnit> units) {
  std::vector<size_t> order(units.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return WholeSteps(units, order);
}

std::vector<TransferStep> OrderByDue(std::span<const TransferUnit> units,
                                     const TransferModel& model) {
  return DueOrder(units, model).Make();
}

std::vector<TransferStep> OrderInBins(std::span<const TransferUnit> units,
                                      const TransferModel& model, int64_t length_ns) {
  std::vector<size_t> by_size(units.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return units[a].bytes > units[b].bytes; });
  int64_t backward_end_ns = 0;
  for (const TransferUnit& unit : units) {
    backward_end_ns = std::max(backward_end_ns, unit.ready_ns);
  }
  PassBins backward;
  PassBins forward;
  std::vector<size_t> rest;
  for (const size_t unit : by_size) {
    const TransferUnit& times = units[unit];
    const int64_t ns = model.TimeOf(times.bytes);
    if (backward.PlaceFirst(unit, times.ready_ns, backward_end_ns, ns)) continue;
    const int64_t forward_end_ns = std::min(times.due_ns, length_ns);
    if (forward.PlaceLast(unit, backward_end_ns, forward_end_ns, ns)) continue;
    rest.push_back(unit);
  }
  for (const size_t unit : rest) {
    PlaceOutside(unit, units[unit], model.TimeOf(units[unit].bytes), backward_end_ns, backward,
                 forward);
  }
  std::vector<size_t> order;
  backward.AppendUnits(order);
  forward.AppendUnits(order);

  std::vector<int64_t> ranks(units.size());
  for (size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<int64_t>(i);
  ranks = WithNeeds(units, std::move(ranks));
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(ranks[a], a) < std::pair(ranks[b], b); });
  return WholeSteps(units, order);
}

}  // namespace lmdbio::sync
