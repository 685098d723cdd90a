#include "tools/timeline/time_spans.h"

#include <algorithm>

namespace lmdbio::tools {

void TimeSpans::Add(double begin, double end) {
  if (!(end > begin)) return;
  // Spans that arrive almost in order are joined at once, so they take little memory.
  if (!spans_.empty() && begin >= spans_.back().begin && begin <= spans_.back().end) {
    spans_.back().end = std::max(spans_.back().end, end);
    return;
  }
  is_joined_ = is_joined_ && (spans_.empty() || begin > spans_.back().end);
  spans_.push_back({begin, end});
}

// Sorts the spans by begin and joins those that overlap or touch. The result is kept.
const std::vector<TimeSpan>& TimeSpans::Joined() const {
  if (is_joined_) return spans_;
  std::ranges::sort(spans_, {}, &TimeSpan::begin);
  size_t last = 0;
  for (size_t i = 1; i < spans_.size(); ++i) {
    if (spans_[i].begin <= spans_[last].end) {
      spans_[last].end = std::max(spans_[last].end, spans_[i].end);
    } else {
      spans_[++last] = spans_[i];
    }
  }
  spans_.resize(spans_.empty() ? 0 : last + 1);
  is_joined_ = true;
  return spans_;
}

double TimeSpans::Length() const {
  double length = 0;
  for (const TimeSpan& span : Joined()) length += span.end - span.begin;
  return length;
}

// Merges two sorted lists: intersects the current spans and advances the one that ends first.
TimeSpans TimeSpans::And(const TimeSpans& other) const {
  const std::vector<TimeSpan>& a = Joined();
  const std::vector<TimeSpan>& b = other.Joined();
  TimeSpans both;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    both.Add(std::max(a[i].begin, b[k].begin), std::min(a[i].end, b[k].end));
    if (a[i].end < b[k].end) {
      ++i;
    } else {
      ++k;
    }
  }
  return both;
}

// Cuts the spans of `other` out of each span. `k` only grows, because both lists are sorted.
TimeSpans TimeSpans::Without(const TimeSpans& other) const {
  const std::vector<TimeSpan>& b = other.Joined();
  TimeSpans rest;
  size_t k = 0;
  for (const TimeSpan& span : Joined()) {
    double from = span.begin;
    while (k < b.size() && b[k].end <= from) ++k;
    for (size_t i = k; i < b.size() && b[i].begin < span.end; ++i) {
      rest.Add(from, b[i].begin);
      from = std::max(from, b[i].end);
    }
    rest.Add(from, span.end);
  }
  return rest;
}

}  // namespace lmdbio::tools
