#include "lmdbio/order/schedule.h"

#include <algorithm>

namespace lmdbio::order {
namespace {

// n * part / whole without overflow: a batch may be as large as a database.
uint64_t PartOf(uint64_t n, int part, int whole) {
  const auto p = static_cast<uint64_t>(part);
  const auto w = static_cast<uint64_t>(whole);
  return n / w * p + n % w * p / w;
}

}  // namespace

BatchSpan Schedule::Batch(uint64_t number) const {
  BatchSpan batch;
  batch.number = number;
  batch.record_count = batch_size_;
  if (tail_ == Tail::kWrap) {
    batch.first_position = number * batch_size_;
    batch.epoch = batch.first_position / record_count_;
    batch.ends_epoch = (batch.first_position + batch_size_) / record_count_ != batch.epoch;
    return batch;
  }
  const uint64_t into = number % batches_per_epoch() * batch_size_;
  batch.epoch = number / batches_per_epoch();
  batch.first_position = batch.epoch * record_count_ + into;
  batch.record_count = std::min(batch_size_, record_count_ - into);
  batch.ends_epoch = number % batches_per_epoch() + 1 == batches_per_epoch();
  return batch;
}

BatchGroup Schedule::Group(uint64_t number) const {
  const BatchSpan batch = Batch(number);
  const BatchGroup alone{number, 1, batch.first_position, batch.record_count};
  const uint64_t epoch_begin = batch.epoch * record_count_;
  const uint64_t into = batch.first_position - epoch_begin;
  // Whole batches of this epoch before and from this one on.
  const uint64_t before = into / batch_size_;
  const uint64_t left = (record_count_ - into) / batch_size_;
  if (chunk_batches_ == 1 || left == 0) return alone;
  const uint64_t in_group = before % chunk_batches_;
  return {number - in_group, std::min(chunk_batches_, in_group + left),
          batch.first_position - in_group * batch_size_,
          std::min(chunk_batches_, in_group + left) * batch_size_};
}

int OwnerOf(const BatchSpan& batch, uint64_t position, Share share, int rank_count) {
  const auto ranks = static_cast<uint64_t>(rank_count);
  if (share == Share::kRoundRobin) return static_cast<int>(position % ranks);
  // The rank r with PartOf(n, r) <= into < PartOf(n, r + 1), found from a guess next to it.
  const uint64_t n = batch.record_count;
  const uint64_t into = position - batch.first_position;
  int rank = static_cast<int>(std::min(ranks - 1, into / std::max<uint64_t>(1, n / ranks)));
  while (PartOf(n, rank, rank_count) > into) --rank;
  while (PartOf(n, rank + 1, rank_count) <= into) ++rank;
  return rank;
}

uint64_t ShareCount(const BatchSpan& batch, Share share, int rank, int rank_count) {
  if (share == Share::kBlock) {
    return PartOf(batch.record_count, rank + 1, rank_count) -
           PartOf(batch.record_count, rank, rank_count);
  }
  const auto ranks = static_cast<uint64_t>(rank_count);
  const auto r = static_cast<uint64_t>(rank);
  // Positions below `end` that are r modulo P.
  const auto below = [&](uint64_t end) { return end / ranks + (end % ranks > r ? 1 : 0); };
  return below(batch.first_position + batch.record_count) - below(batch.first_position);
}

}  // namespace lmdbio::order
