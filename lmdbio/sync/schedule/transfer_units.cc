#include "lmdbio/sync/schedule/transfer_units.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

constexpr int64_t kNoUnit = -1;
constexpr int64_t kSliceDivisor = 100;  // of an iteration

// The largest index of a unit among those of the tensors up to a position. Units are set in any
// order of positions. A Fenwick tree: each call is O(log n).
class LastUnits {
 public:
  explicit LastUnits(size_t tensor_count) : largest_(tensor_count + 1, kNoUnit) {}

  void Set(size_t position, int64_t unit) {
    for (size_t i = position + 1; i < largest_.size(); i += i & (~i + 1)) {
      largest_[i] = std::max(largest_[i], unit);
    }
  }

  // position  -1: none of the tensors
  int64_t UpTo(int64_t position) const {
    int64_t unit = kNoUnit;
    for (auto i = static_cast<size_t>(position + 1); i > 0; i -= i & (~i + 1)) {
      unit = std::max(unit, largest_[i]);
    }
    return unit;
  }

 private:
  std::vector<int64_t> largest_;
};

// When each tensor is ready, but not before those that it needs.
std::vector<int64_t> ReadyTimes(std::span<const TimedTensor> tensors) {
  std::vector<int64_t> ready(tensors.size());
  std::vector<int64_t> latest(tensors.size());  // of the tensors up to a position
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t needs = tensors[i].needs_up_to;
    LMDBIO_CHECK(needs < static_cast<int64_t>(i));
    ready[i] = tensors[i].ready_ns;
    if (needs >= 0) ready[i] = std::max(ready[i], latest[static_cast<size_t>(needs)]);
    latest[i] = i == 0 ? ready[i] : std::max(ready[i], latest[i - 1]);
  }
  return ready;
}

void AddTensor(TransferUnit& unit, size_t position, const TimedTensor& tensor, int64_t ready_ns,
               int64_t needs) {
  const bool is_first = unit.tensors.empty();
  unit.tensors.push_back(position);
  unit.ready_ns = is_first ? ready_ns : std::max(unit.ready_ns, ready_ns);
  unit.due_ns = is_first ? tensor.due_ns : std::min(unit.due_ns, tensor.due_ns);
  unit.needs_up_to = std::max(unit.needs_up_to, needs);
  unit.bytes = is_first
                   ? tensor.bytes
                   : AlignUp(unit.bytes, kCacheLineBytes) + AlignUp(tensor.bytes, kCacheLineBytes);
}

// Distributes tensors, in the order of their ready times, to units.
class UnitMaker {
 public:
  UnitMaker(size_t tensor_count, const TransferModel& model, uint64_t threshold_bytes,
            uint64_t bucket_bytes_max)
      : model_(model),
        threshold_bytes_(threshold_bytes),
        bucket_bytes_max_(bucket_bytes_max),
        last_units_(tensor_count) {}

  void Add(size_t position, const TimedTensor& tensor, int64_t ready_ns) {
    CloseIdle(ready_ns);
    const int64_t needs = last_units_.UpTo(tensor.needs_up_to);
    // Units that this tensor needs must not wait for tensors that come after it.
    while (!open_.empty() && static_cast<int64_t>(open_.begin()->first) <= needs) CloseFirst();
    size_t unit = units_.size();
    if (tensor.bytes < threshold_bytes_) {
      unit = OpenBatch(tensor);
    } else {
      units_.emplace_back();
    }
    AddTensor(units_[unit], position, tensor, ready_ns, needs);
    last_units_.Set(position, static_cast<int64_t>(unit));
    if (units_[unit].bytes < threshold_bytes_) return;
    if (open_.contains(unit)) {
      Close(open_.find(unit));
    } else {
      Send(unit);
    }
  }

  std::vector<TransferUnit> Take() { return std::move(units_); }

 private:
  using OpenBatches = std::map<size_t, uint32_t>;  // by unit, with the kind

  // The batch that the tensor joins, or a new one.
  size_t OpenBatch(const TimedTensor& tensor) {
    const auto found = open_of_kind_.find(tensor.kind);
    if (found != open_of_kind_.end()) {
      const uint64_t bytes = AlignUp(units_[found->second].bytes, kCacheLineBytes) +
                             AlignUp(tensor.bytes, kCacheLineBytes);
      if (bytes <= bucket_bytes_max_) return found->second;
      Close(open_.find(found->second));
    }
    const size_t unit = units_.size();
    units_.emplace_back();
    open_.emplace(unit, tensor.kind);
    open_of_kind_.emplace(tensor.kind, unit);
    return unit;
  }

  // The channel takes open batches as long as it would be idle before this time.
  void CloseIdle(int64_t ready_ns) {
    while (!open_.empty()) {
      const int64_t batch_ready_ns = units_[open_.begin()->first].ready_ns;
      if (std::max(free_ns_, batch_ready_ns) >= ready_ns) return;
      CloseFirst();
    }
  }

  void CloseFirst() { Close(open_.begin()); }
  void Close(OpenBatches::iterator batch) {
    Send(batch->first);
    open_of_kind_.erase(batch->second);
    open_.erase(batch);
  }

  void Send(size_t unit) {
    const TransferUnit& sent = units_[unit];
    free_ns_ = AddNs(std::max(free_ns_, sent.ready_ns), model_.TimeOf(sent.bytes));
  }

  const TransferModel& model_;
  const uint64_t threshold_bytes_;
  const uint64_t bucket_bytes_max_;
  std::vector<TransferUnit> units_;
  LastUnits last_units_;
  OpenBatches open_;                         // batches that may grow
  std::map<uint32_t, size_t> open_of_kind_;  // the same, by kind
  int64_t free_ns_ = -kTimeMaxNs;            // the channel has made all closed units
};

// The least size of a slice, if the caller leaves it open.
uint64_t SliceBytesMin(const std::vector<TransferUnit>& units, const TransferModel& model,
                       int64_t length_ns, uint64_t threshold_bytes) {
  int64_t channel_ns = 0;
  for (const TransferUnit& unit : units) channel_ns = AddNs(channel_ns, model.TimeOf(unit.bytes));
  const int64_t iteration_ns = std::max(length_ns, channel_ns);
  return std::max(threshold_bytes, model.BytesWithin(iteration_ns / kSliceDivisor));
}

// Equal slices, but for whole lines. 0: one slice
uint64_t SliceBytes(uint64_t bytes, uint64_t slice_bytes_min) {
  const uint64_t count = std::min(bytes / std::max<uint64_t>(slice_bytes_min, 1), kSlicesMax);
  if (count < 2) return 0;
  const uint64_t slice_bytes = AlignUp((bytes + count - 1) / count, kCacheLineBytes);
  return slice_bytes < bytes ? slice_bytes : 0;
}

}  // namespace

std::vector<TransferUnit> MakeUnits(std::span<const TimedTensor> tensors,
                                    const TransferModel& model, const UnitOptions& options) {
  const std::vector<int64_t> ready = ReadyTimes(tensors);
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // All that a tensor needs comes before it: it is ready no later, and has a smaller position.
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return ready[a] != ready[b] ? ready[a] < ready[b] : a < b; });
  const uint64_t threshold_bytes =
      options.threshold_bytes > 0 ? options.threshold_bytes : model.Threshold();
  UnitMaker maker(tensors.size(), model, threshold_bytes, options.bucket_bytes_max);
  for (const size_t position : order) maker.Add(position, tensors[position], ready[position]);
  std::vector<TransferUnit> units = maker.Take();

  const uint64_t slice_bytes_min =
      options.slice_bytes > 0 ? options.slice_bytes
                              : SliceBytesMin(units, model, options.length_ns, threshold_bytes);
  for (TransferUnit& unit : units) {
    const bool may_slice = unit.tensors.size() == 1 && tensors[unit.tensors[0]].may_slice;
    if (may_slice) unit.slice_bytes = SliceBytes(unit.bytes, slice_bytes_min);
  }
  return units;
}

std::vector<TransferUnit> UnitsOfBuckets(std::span<const TimedTensor> tensors,
                                         const std::vector<std::vector<size_t>>& buckets) {
  const std::vector<int64_t> ready = ReadyTimes(tensors);
  LastUnits last_units(tensors.size());
  std::vector<TransferUnit> units(buckets.size());
  for (size_t unit = 0; unit < buckets.size(); ++unit) {
    for (const size_t position : buckets[unit]) {
      LMDBIO_CHECK(position < tensors.size());
      const TimedTensor& tensor = tensors[position];
      const int64_t needs = last_units.UpTo(tensor.needs_up_to);
      LMDBIO_CHECK(needs < static_cast<int64_t>(unit));
      AddTensor(units[unit], position, tensor, ready[position], needs);
      last_units.Set(position, static_cast<int64_t>(unit));
    }
  }
  return units;
}

}  // namespace lmdbio::sync
