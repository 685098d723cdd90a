// The locator of readers that look into the layout which another reader of their host finds.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {
namespace {

class SharedLayoutLocator final : public Locator {
 public:
  SharedLayoutLocator(const SharedLayout& host,
                      std::function<Result<std::unique_ptr<Locator>>()> make_own,
                      uint64_t record_count)
      : host_(host), make_own_(std::move(make_own)), record_count_(record_count) {}

  Result<uint64_t> RecordCount() override { return record_count_; }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    const uint64_t end = first.value + count;
    for (uint64_t next = first.value; next < end;) {
      LMDBIO_TRY_VOID(LearnOf(next));
      // The shared memory has no room for this record. From now on this reader locates every record
      // by itself, those of the shared parts too.
      if (own_) return own_->Locate({next}, end - next, sink);
      const auto& piece = *(std::upper_bound(pieces_.begin(), pieces_.end(), next,
                                             [](uint64_t record, const auto& one) {
                                               return record < one.first_record;
                                             }) -
                            1);
      const uint64_t from = next - piece.first_record;
      const uint64_t length = std::min(end - next, piece.layout.record_count() - from);
      LMDBIO_TRY_VOID(
          piece.layout.ExpandRange({from}, length, RecordIndex{piece.first_record}, sink));
      next += length;
    }
    // Only the end of the walk proves that the last record is the last.
    return end == record_count_ && !own_ ? LearnOfEnd() : Status();
  }

  void Stop() override { stop_.store(true); }

 private:
  // Sleeps until the piece with `record` is known, or that it has to be found alone.
  Status LearnOf(uint64_t record) {
    while (!own_ && (pieces_.empty() || record >= known_count())) {
      LMDBIO_TRY(const bool has_more, LearnMore());
      if (has_more) continue;
      return Fail(
          ErrorCode::kCorruption,
          fmt::format("the tree ends at record {}, before record {}", known_count(), record));
    }
    return {};
  }

  Status LearnOfEnd() {
    while (!own_ && !is_ended_) LMDBIO_TRY_VOID(LearnMore());
    return {};
  }

  // False at the end.
  Result<bool> LearnMore() {
    SharedLayout::Piece piece;
    LMDBIO_TRY(const SharedLayout::PartLookup found, host_.Await(pieces_.size(), stop_, piece));
    switch (found) {
      case SharedLayout::PartLookup::kPiece:
        // A part is a view of shared memory, so keeping it costs a few words.
        pieces_.push_back(std::move(piece));
        return true;
      case SharedLayout::PartLookup::kEnd:
        is_ended_ = true;
        return false;
      case SharedLayout::PartLookup::kNoRoom: {
        LMDBIO_TRY(own_, make_own_());
        return true;
      }
      case SharedLayout::PartLookup::kStopped:
        break;
    }
    return Fail(ErrorCode::kPeerFailed, "the loader was closed");
  }

  uint64_t known_count() const {
    return pieces_.empty() ? 0 : pieces_.back().first_record + pieces_.back().layout.record_count();
  }

  const SharedLayout& host_;
  std::function<Result<std::unique_ptr<Locator>>()> make_own_;
  uint64_t record_count_;
  std::atomic<bool> stop_{false};
  std::vector<SharedLayout::Piece> pieces_;
  bool is_ended_ = false;
  std::unique_ptr<Locator> own_;
};

}  // namespace

std::unique_ptr<Locator> MakeHostLayoutLocator(
    const SharedLayout& host, std::function<Result<std::unique_ptr<Locator>>()> make_own,
    uint64_t record_count) {
  return std::make_unique<SharedLayoutLocator>(host, std::move(make_own), record_count);
}

}  // namespace lmdbio::load
