#include "lmdbio/file/io/read_queue.h"

namespace lmdbio::file {

void ReadQueue::AddAgain(const PendingRead& read, std::chrono::milliseconds pause) {
  // Without a pause the rest of a read is next, so that the read completes early.
  if (pause.count() == 0) {
    ready_.push_front(read);
  } else {
    later_.emplace(Clock::now() + pause, read);
  }
}

std::optional<PendingRead> ReadQueue::Next() {
  std::optional<PendingRead> next;
  // Retries that are due come first: their blocks have waited longest.
  if (!later_.empty() && later_.begin()->first <= Clock::now()) {
    next = later_.begin()->second;
    later_.erase(later_.begin());
  } else if (!ready_.empty()) {
    next = ready_.front();
    ready_.pop_front();
  }
  return next;
}

std::optional<ReadQueue::Clock::time_point> ReadQueue::next_due() const {
  if (later_.empty()) return std::nullopt;
  return later_.begin()->first;
}

void ReadQueue::Clear() {
  ready_.clear();
  later_.clear();
}

}  // namespace lmdbio::file
