#include "lmdbio/ranks/shm/failure_cell.h"

#include <algorithm>

namespace lmdbio::ranks {

bool FailureCell::Record(const Error& error, int rank, FailureUrgency urgency) {
  uint32_t expected = kEmpty;
  if (!state_.compare_exchange_strong(expected, kClaimed)) return false;
  code_ = static_cast<int32_t>(error.code());
  error_number_ = error.error_number();
  rank_ = rank;
  urgency_ = urgency;
  text_bytes_ = static_cast<uint32_t>(error.message().copy(text_.data(), text_.size()));
  // Fails if this writer was stopped since its claim, and a reader set the cell to unknown.
  expected = kClaimed;
  return state_.compare_exchange_strong(expected, kRecorded);
}

std::optional<RecordedFailure> FailureCell::Find() const {
  const uint32_t state = state_.load();
  if (state < kRecorded) return std::nullopt;
  // A late writer may still write the fields of a cell whose cause is unknown.
  if (state == kUnknown) {
    return RecordedFailure{.text = "a rank ended before it could report its failure"};
  }
  return RecordedFailure{.code = static_cast<ErrorCode>(code_),
                         .error_number = error_number_,
                         .rank = rank_,
                         .urgency = urgency_,
                         .text = std::string(text_.data(), text_bytes_)};
}

std::optional<RecordedFailure> FailureReader::Look() {
  const uint32_t state = cell_.state_.load();
  if (state == FailureCell::kEmpty) [[likely]]
    return std::nullopt;
  if (state == FailureCell::kClaimed) LookAtWriter();
  return cell_.Find();
}

// The first look starts the clock; so it takes at least two more to exceed the limit.
void FailureReader::LookAtWriter() {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (last_look_) {
    looked_for_ += std::min<std::chrono::nanoseconds>(now - *last_look_, FailureCell::kWriterLimit);
  }
  last_look_ = now;
  if (looked_for_ <= FailureCell::kWriterLimit) return;
  uint32_t claimed = FailureCell::kClaimed;
  cell_.state_.compare_exchange_strong(claimed, FailureCell::kUnknown);
}

}  // namespace lmdbio::ranks
