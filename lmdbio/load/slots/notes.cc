#include "lmdbio/load/slots/notes.h"

#include <algorithm>
#include <utility>

namespace lmdbio::load {

void Notes::Add(std::string line) {
  const std::lock_guard lock(mutex_);
  if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return;
  lines_.push_back(std::move(line));
}

void Notes::Add(std::vector<std::string> lines) {
  for (std::string& line : lines) Add(std::move(line));
}

// Lines that were taken stay in the list, so that Add recognises a repetition.
std::vector<std::string> Notes::Take() {
  const std::lock_guard lock(mutex_);
  const auto first =
      lines_.begin() + static_cast<ptrdiff_t>(std::exchange(taken_count_, lines_.size()));
  return {first, lines_.end()};
}

void Notes::TakeOver(const Notes& other) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  lines_ = other.lines_;
  taken_count_ = other.taken_count_;
}

}  // namespace lmdbio::load
