#include "lmdbio/load/turns/stagger_vote.h"

namespace lmdbio::load {

void StaggerVote::Add(const StaggerRates& rates) {
  for (size_t way = 0; way < kStaggerWaysMax; ++way) {
    sum_.bytes_per_s[way] += rates.bytes_per_s[way];
  }
  sum_.unclear_count += rates.unclear_count;
}

// Each reader adds its rates once, and a sum leaves it once. So no rate is counted twice.
void StaggerVote::AddOwn(const StaggerRates& rates) {
  if (has_own_) return;
  has_own_ = true;
  Add(rates);
}

void StaggerVote::AddChild(const StaggerRates& sum) {
  if (children_left_ == 0) return;
  --children_left_;
  Add(sum);
}

std::optional<StaggerRates> StaggerVote::TakeSum() {
  if (is_taken_ || !has_own_ || children_left_ > 0) return std::nullopt;
  is_taken_ = true;
  if (position_ == TreePosition::kBelow) return sum_;
  choice_ = ChooseStaggerWay(sum_, way_count_, reader_count_);
  return std::nullopt;
}

}  // namespace lmdbio::load
