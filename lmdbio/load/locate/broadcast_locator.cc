// The locator of LMM-DIO on several hosts: one reader walks, and sends the locations to the others.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/run_joiner.h"

namespace lmdbio::load {
namespace {

using file::RecordLocation;

// Splits runs into locations of single records.
class LocationList final : public file::RecordRunSink {
 public:
  explicit LocationList(std::vector<RecordLocation>& locations) : locations_(locations) {}

  Status Add(const file::RecordRun& run) override {
    for (size_t i = 0; i < run.values.size(); ++i) {
      const auto step = run.kind == file::RunKind::kNodes ? static_cast<uint32_t>(i) : 0U;
      locations_.push_back({run.leaf, run.first_node + step, run.kind, run.home, run.values[i]});
    }
    return {};
  }

 private:
  std::vector<RecordLocation>& locations_;
};

class BroadcastLocator final : public Locator {
 public:
  BroadcastLocator(std::unique_ptr<Locator> walker, std::unique_ptr<LocationBroadcast> broadcast,
                   uint64_t record_count)
      : walker_(std::move(walker)), broadcast_(std::move(broadcast)), record_count_(record_count) {}

  Result<uint64_t> RecordCount() override { return record_count_; }

  // The walker begins a group only after the locations of the last one were sent. So at most one
  // group of locations waits for the connections.
  bool IsReady() override {
    const bool is_sent = broadcast_->Flush();
    return walker_ ? is_sent : broadcast_->HasPlaces();
  }

  Result<bool> BeginGroup(const BatchGroup& group) override {
    // The locations are in the order of the walk, which is the order of the database here: cursor
    // strategies refuse to shuffle.
    first_record_ = group.first_walk % record_count_;
    if (!walker_) return Receive(group.record_count);
    LMDBIO_TRY_VOID(broadcast_->Drain());
    locations_.clear();
    LocationList list(locations_);
    for (uint64_t done = 0; done < group.record_count;) {
      const RecordIndex record{(group.first_walk + done) % record_count_};
      const uint64_t count = std::min(group.record_count - done, record_count_ - record.value);
      // The walker touches tree pages only, and every host reads its values.
      LMDBIO_TRY_VOID(walker_->Locate(record, count, list));
      done += count;
    }
    LMDBIO_TRY_VOID(broadcast_->Send(locations_));
    return true;
  }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    // A record that occurs several times in a group has its first location.
    const uint64_t at = (first.value + record_count_ - first_record_) % record_count_;
    LMDBIO_CHECK(at + count <= locations_.size());
    RunJoiner runs(sink);
    for (uint64_t i = 0; i < count; ++i) {
      LMDBIO_TRY_VOID(runs.Add({first.value + i}, locations_[at + i]));
    }
    return runs.Flush();
  }

  Status Drain() override { return broadcast_->Drain(); }
  void Abandon(const Error& why) override { broadcast_->SendFailure(why); }
  void Stop() override { broadcast_->Stop(); }

  LocatorCounters counters() const override {
    return {.turn_s = turn_s_.load(std::memory_order_relaxed)};
  }

 private:
  Result<bool> Receive(uint64_t record_count) {
    const auto start = std::chrono::steady_clock::now();
    LMDBIO_TRY(auto locations, broadcast_->Receive());
    Add(turn_s_, SecondsSince(start));
    if (!locations) return false;
    // The schedule of this host must agree with that of the walker, or locations would belong to
    // other records.
    if (locations->size() != record_count) {
      return Fail(ErrorCode::kCorruption,
                  fmt::format("the walking reader has sent {} record locations for a group of {} "
                              "records; all hosts must run the same program",
                              locations->size(), record_count));
    }
    locations_ = std::move(*locations);
    return true;
  }

  std::unique_ptr<Locator> walker_;
  std::unique_ptr<LocationBroadcast> broadcast_;
  uint64_t record_count_;
  uint64_t first_record_ = 0;              // of the group at hand
  std::vector<RecordLocation> locations_;  // of all hosts' records in the group
  std::atomic<double> turn_s_{0};
};

}  // namespace

std::unique_ptr<Locator> MakeBroadcastLocator(std::unique_ptr<Locator> walker,
                                              std::unique_ptr<LocationBroadcast> broadcast,
                                              uint64_t record_count) {
  return std::make_unique<BroadcastLocator>(std::move(walker), std::move(broadcast), record_count);
}

}  // namespace lmdbio::load
