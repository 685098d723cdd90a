// lmdbio/sync/schedule/transfer_model.h - the time of a collective call, by its bytes.
//
// The model is made of points. Between two points it is straight, and behind the last one it goes
// on with the last slope. A call of fewer bytes than the first point takes the time of that point.
// All results are integers, so ranks with the same points compute the same.
//
// Source: Hashemi et al. 4.2; docs/caramel.md "Transfer model".
#ifndef LMDBIO_SYNC_SCHEDULE_TRANSFER_MODEL_H_
#define LMDBIO_SYNC_SCHEDULE_TRANSFER_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// The times that a schedule is made of are in [-kTimeMaxNs, kTimeMaxNs], 2 years. Sums of them stay
// below kScheduleEndNs, so that no sum overflows.
inline constexpr int64_t kTimeMaxNs = int64_t{1} << 56;
inline constexpr int64_t kScheduleEndNs = int64_t{1} << 60;

// Requires: both are at most kScheduleEndNs, in amount
constexpr int64_t AddNs(int64_t a, int64_t b) { return std::min(a + b, kScheduleEndNs); }

// The time of one call. As a sample, it was measured; as a point, it is part of a model.
struct TransferSample {
  uint64_t bytes = 0;
  int64_t ns = 0;
  friend bool operator==(const TransferSample&, const TransferSample&) = default;
};

class TransferModel {
 public:
  // The limits of a point.
  static constexpr uint64_t kBytesMax = uint64_t{1} << 48;
  static constexpr int64_t kPointNsMax = int64_t{1} << 50;  // 13 days

  // Makes a model of measured times. Other work makes a call slower, but nothing makes it faster.
  // So of several samples of one size the least counts, and a sample that took no less time than
  // one of more bytes is dropped.
  // samples  in any order
  // Errors: kInvalidArgument  a sample outside the limits of a point; samples of fewer than two
  //                           sizes; the call of the most bytes took the least time
  // Cost: O(n log n)
  static Result<TransferModel> FromSamples(std::span<const TransferSample> samples);

  // A model with these points, for example those that another rank has sent.
  // Errors: kInvalidArgument  a point outside the limits; fewer than two points; sizes or times
  //                           that do not rise
  static Result<TransferModel> FromPoints(std::vector<TransferSample> points);

  // Two or more, rising in bytes and in time. A temporary model gives a copy.
  const std::vector<TransferSample>& points() const& { return points_; }
  std::vector<TransferSample> points() && { return std::move(points_); }

  // The time of a call, rounded up; at most kTimeMaxNs. It does not fall with the bytes.
  // Cost: O(log points)
  int64_t TimeOf(uint64_t bytes) const;

  // The most bytes, kBytesMax at most, that one call moves in this time. 0: it moves nothing.
  uint64_t BytesWithin(int64_t ns) const;

  // A time that calls of any sizes need at least to move so many bytes together, rounded down.
  int64_t LeastTimeOf(uint64_t bytes) const;

  // The least size from which on a call of twice the bytes takes more than 0.8 of the time of two
  // calls: the first x with f(2x) > 1.6 f(x). For f = a + b x that is 1.5 a / b. At most kBytesMax.
  // Smaller tensors are worth batching.
  // Source: Hashemi et al. 4.2
  uint64_t Threshold() const;

  // The greatest relative error of the model, in 1/1000: of a point, if the model is made without
  // it, and of a sample that was dropped. The first point is not left out, because nothing tells
  // the time of fewer bytes. None for a model of two points, with no sample dropped.
  std::optional<uint32_t> error_permille() const { return error_permille_; }

 private:
  explicit TransferModel(std::vector<TransferSample> points);

  bool IsAboveThreshold(uint64_t bytes) const;

  std::vector<TransferSample> points_;
  TransferSample best_;  // the fewest nanoseconds for a byte: a point, or the last slope
  std::optional<uint32_t> error_permille_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_TRANSFER_MODEL_H_
