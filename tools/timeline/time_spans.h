// tools/timeline/time_spans.h - sets of times, given by spans that may overlap.
#ifndef LMDBIO_TOOLS_TIMELINE_TIME_SPANS_H_
#define LMDBIO_TOOLS_TIMELINE_TIME_SPANS_H_

#include <vector>

namespace lmdbio::tools {

struct TimeSpan {
  double begin = 0;
  double end = 0;
};

// Threads: one at a time.
class TimeSpans {
 public:
  // Adds a span. Spans may arrive in any order and may overlap. Empty spans are ignored.
  void Add(double begin, double end);

  // The total length of the set; overlapping spans count once.
  double Length() const;
  // The intersection with `other`, and this set without `other`.
  TimeSpans And(const TimeSpans& other) const;
  TimeSpans Without(const TimeSpans& other) const;

 private:
  const std::vector<TimeSpan>& Joined() const;  // in order, without overlap or contact

  mutable std::vector<TimeSpan> spans_;
  mutable bool is_joined_ = true;
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_TIMELINE_TIME_SPANS_H_
