// tools/timeline/time_spans.h - sets of times: what is covered by spans that overlap.
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
  // Spans may come in any order and overlap. One that does not end after it begins is ignored.
  void Add(double begin, double end);

  // How long at least one span covers.
  double Length() const;
  // The times that both cover, and those that this covers and `other` does not.
  TimeSpans And(const TimeSpans& other) const;
  TimeSpans Without(const TimeSpans& other) const;

 private:
  const std::vector<TimeSpan>& Joined() const;  // in order, none touches the next

  mutable std::vector<TimeSpan> spans_;
  mutable bool is_joined_ = true;
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_TIMELINE_TIME_SPANS_H_
