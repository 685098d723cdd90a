#include "lmdbio/sync/schedule/transfer_model.h"

#include <cstddef>

#include <fmt/format.h>

namespace lmdbio::sync {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint32_t kPermilleMax = 1'000'000;  // of an error

Wide WideOf(int64_t ns) { return static_cast<Wide>(static_cast<uint64_t>(ns)); }

// The straight line through two points, at `bytes` or more than the first point has; rounded up.
int64_t OnLine(const TransferSample& a, const TransferSample& b, uint64_t bytes) {
  const Wide run = b.bytes - a.bytes;
  const Wide rise = WideOf(b.ns - a.ns) * (bytes - a.bytes);
  const Wide ns = WideOf(a.ns) + (rise + run - 1) / run;
  return ns > WideOf(kTimeMaxNs) ? kTimeMaxNs : static_cast<int64_t>(ns);
}

// The model of these points. `points` are two or more.
int64_t TimeOn(std::span<const TransferSample> points, uint64_t bytes) {
  if (bytes <= points.front().bytes) return points.front().ns;
  auto next = std::lower_bound(
      points.begin(), points.end(), bytes,
      [](const TransferSample& point, uint64_t size) { return point.bytes < size; });
  if (next == points.end()) --next;
  return OnLine(*(next - 1), *next, bytes);
}

uint32_t ErrorPermille(int64_t predicted_ns, int64_t ns) {
  const Wide difference = WideOf(predicted_ns > ns ? predicted_ns - ns : ns - predicted_ns);
  const Wide permille = difference * 1000 / WideOf(ns);
  return permille > kPermilleMax ? kPermilleMax : static_cast<uint32_t>(permille);
}

// The greatest error of a point, if the model is made without it.
std::optional<uint32_t> LeaveOneOutPermille(const std::vector<TransferSample>& points) {
  std::optional<uint32_t> greatest;
  for (size_t left_out = 1; points.size() > 2 && left_out < points.size(); ++left_out) {
    std::vector<TransferSample> others = points;
    others.erase(others.begin() + static_cast<ptrdiff_t>(left_out));
    const TransferSample& point = points[left_out];
    greatest = std::max(greatest.value_or(0), ErrorPermille(TimeOn(others, point.bytes), point.ns));
  }
  return greatest;
}

Status CheckPoint(const TransferSample& point) {
  if (point.bytes > 0 && point.bytes <= TransferModel::kBytesMax && point.ns > 0 &&
      point.ns <= TransferModel::kPointNsMax) {
    return {};
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("transfer model: {} bytes in {} ns; expected 1 to {} bytes in 1 to {} ns",
                  point.bytes, point.ns, TransferModel::kBytesMax, TransferModel::kPointNsMax));
}

}  // namespace

Result<TransferModel> TransferModel::FromSamples(std::span<const TransferSample> samples) {
  for (const TransferSample& sample : samples) LMDBIO_TRY_VOID(CheckPoint(sample));
  std::vector<TransferSample> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end(), [](const TransferSample& a, const TransferSample& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.ns < b.ns;
  });
  sorted.erase(std::unique(sorted.begin(), sorted.end(),
                           [](const auto& a, const auto& b) { return a.bytes == b.bytes; }),
               sorted.end());
  if (sorted.size() < 2) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("transfer model: samples of {} sizes; expected 2 or more", sorted.size()));
  }
  // From the largest size down, each point is faster than the one after it.
  std::vector<TransferSample> points;
  std::vector<TransferSample> dropped;
  for (auto sample = sorted.rbegin(); sample != sorted.rend(); ++sample) {
    const bool is_rising = points.empty() || sample->ns < points.back().ns;
    (is_rising ? points : dropped).push_back(*sample);
  }
  if (points.size() < 2) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("transfer model: no call is faster than that of {} bytes, which took "
                            "{} ns; repeat the trials, or measure larger calls",
                            points[0].bytes, points[0].ns));
  }
  std::reverse(points.begin(), points.end());
  TransferModel model(std::move(points));
  for (const TransferSample& sample : dropped) {
    model.error_permille_ = std::max(model.error_permille_.value_or(0),
                                     ErrorPermille(model.TimeOf(sample.bytes), sample.ns));
  }
  return model;
}

Result<TransferModel> TransferModel::FromPoints(std::vector<TransferSample> points) {
  for (const TransferSample& point : points) LMDBIO_TRY_VOID(CheckPoint(point));
  if (points.size() < 2) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("transfer model: {} points; expected 2 or more", points.size()));
  }
  for (size_t i = 1; i < points.size(); ++i) {
    if (points[i].bytes > points[i - 1].bytes && points[i].ns > points[i - 1].ns) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("transfer model: {} bytes in {} ns come after {} bytes in {} ns; "
                            "expected more of both",
                            points[i].bytes, points[i].ns, points[i - 1].bytes, points[i - 1].ns));
  }
  return TransferModel(std::move(points));
}

// On each piece the time of a byte, f(x) / x, rises or falls throughout. So it is least at a point,
// or far behind the last one.
TransferModel::TransferModel(std::vector<TransferSample> points)
    : points_(std::move(points)), error_permille_(LeaveOneOutPermille(points_)) {
  const TransferSample& last = points_.back();
  const TransferSample& before = points_[points_.size() - 2];
  best_ = {last.bytes - before.bytes, last.ns - before.ns};
  for (const TransferSample& point : points_) {
    if (WideOf(point.ns) * best_.bytes < WideOf(best_.ns) * point.bytes) best_ = point;
  }
}

int64_t TransferModel::TimeOf(uint64_t bytes) const { return TimeOn(points_, bytes); }

uint64_t TransferModel::BytesWithin(int64_t ns) const {
  if (ns < points_.front().ns) return 0;
  uint64_t least = points_.front().bytes;
  uint64_t most = kBytesMax;
  while (least < most) {
    const uint64_t middle = most - (most - least) / 2;
    if (TimeOf(middle) <= ns) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

int64_t TransferModel::LeastTimeOf(uint64_t bytes) const {
  const Wide ns = WideOf(best_.ns) * bytes / best_.bytes;
  return ns > WideOf(kTimeMaxNs) ? kTimeMaxNs : static_cast<int64_t>(ns);
}

bool TransferModel::IsAboveThreshold(uint64_t bytes) const {
  return 5 * WideOf(TimeOf(2 * bytes)) > 8 * WideOf(TimeOf(bytes));
}

// f(2x) - 1.6 f(x) is straight between the points and their halves. Half of an odd size lies
// between two sizes. If the difference is positive at the end of such a piece and not at its begin,
// its first positive x is found by halving.
uint64_t TransferModel::Threshold() const {
  std::vector<uint64_t> ends = {kBytesMax};
  for (const TransferSample& point : points_) {
    ends.push_back(point.bytes);
    ends.push_back(point.bytes / 2);
    ends.push_back(point.bytes / 2 + 1);
  }
  std::sort(ends.begin(), ends.end());
  uint64_t below = 0;
  for (uint64_t above : ends) {
    if (!IsAboveThreshold(above)) {
      below = above;
      continue;
    }
    while (above - below > 1) {
      const uint64_t middle = below + (above - below) / 2;
      (IsAboveThreshold(middle) ? above : below) = middle;
    }
    return above;
  }
  return kBytesMax;
}

}  // namespace lmdbio::sync
