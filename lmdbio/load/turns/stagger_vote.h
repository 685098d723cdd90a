// lmdbio/load/turns/stagger_vote.h - all readers of a job choose one number of tokens.
//
// The measured rates are added up in a tree of readers: a reader waits for the sums of its
// children, adds its own rates, and sends the sum to its parent. The root chooses
// (stagger_trial.h), and the choice travels down the same tree. This class has the state of one
// reader; the caller sends.
//
// Source: docs/many_hosts.md "Tokens".
#ifndef LMDBIO_LOAD_TURNS_STAGGER_VOTE_H_
#define LMDBIO_LOAD_TURNS_STAGGER_VOTE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lmdbio/load/turns/stagger_trial.h"

namespace lmdbio::load {

// Threads: one at a time.
class StaggerVote {
 public:
  enum class TreePosition { kRoot, kBelow };

  // way_count     the ways to choose among (stagger_trial.h)
  // reader_count  of the job
  // child_count   readers below this one, next to it
  StaggerVote(size_t way_count, uint64_t reader_count, size_t child_count, TreePosition position)
      : way_count_(way_count),
        reader_count_(reader_count),
        children_left_(child_count),
        position_(position) {}

  // The rates of this reader. Once.
  void AddOwn(const StaggerRates& rates);
  // The sum of a child. Once for each child.
  void AddChild(const StaggerRates& sum);

  // The sum for the parent, once, when it is complete. At the root the complete sum makes the
  // choice instead, and this returns nothing.
  std::optional<StaggerRates> TakeSum();

  // The choice, as the parent has sent it. A way that does not exist is ignored.
  void SetChoice(size_t way) {
    if (way < way_count_) choice_ = way;
  }
  // The way of all readers; nothing until it is known.
  std::optional<size_t> choice() const { return choice_; }

 private:
  void Add(const StaggerRates& rates);

  size_t way_count_;
  uint64_t reader_count_;
  size_t children_left_;  // that have not sent their sum
  TreePosition position_;
  StaggerRates sum_;
  bool has_own_ = false;
  bool is_taken_ = false;
  std::optional<size_t> choice_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_TURNS_STAGGER_VOTE_H_
