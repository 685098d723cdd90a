// The locator of `scan`: a thread walks the leaf pages ahead of what is asked for.
//
// The walk goes in steps of some leaf pages, small ones first, so that the first records are known
// at once. Each step gives a piece of layout; the pieces are kept, so that later epochs find
// everything in memory.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/layout/page_walk.h"
#include "lmdbio/loader/locator.h"

namespace lmdbio::loader {
namespace {

constexpr size_t kFirstStepLeaves = 64;
constexpr size_t kStepLeavesMax = 1024;

// Gives runs that are numbered through the whole walk to a builder that counts from 0.
class Renumber final : public layout::RecordRunSink {
 public:
  Renumber(uint64_t base, layout::LayoutBuilder& builder) : base_(base), builder_(builder) {}
  Status Add(const layout::RecordRun& run) override {
    layout::RecordRun moved = run;
    moved.first_record = {run.first_record.value - base_};
    return builder_.Add(moved);
  }

 private:
  uint64_t base_;
  layout::LayoutBuilder& builder_;
};

class ScanLocator final : public Locator {
 public:
  explicit ScanLocator(const layout::Database& database) : database_(database) {
    walker_ = std::thread([this] { End(Walk()); });
  }

  ~ScanLocator() override {
    stop_.store(true);
    walker_.join();
  }

  Result<uint64_t> RecordCount() override {
    if (database_.counts_exactly()) return database_.entry_count();
    std::unique_lock lock(mutex_);
    grown_.wait(lock, [this] { return ended_; });
    if (error_) return CopyOfError();
    return known_count_;
  }

  Status Locate(RecordIndex first, uint64_t count, layout::RecordRunSink& sink) override {
    uint64_t next = first.value;
    const uint64_t end = first.value + count;
    while (next < end) {
      LMDBIO_TRY(const Piece* piece, PieceWith(next));
      const uint64_t from = next - piece->first_record;
      const uint64_t length = std::min(end - next, piece->layout.record_count() - from);
      if (length > 1) LMDBIO_TRY_VOID(PieceWith(next + length - 1));
      LMDBIO_TRY_VOID(
          piece->layout.ExpandRange({from}, length, RecordIndex{piece->first_record}, sink));
      next += length;
    }
    return {};
  }

 private:
  struct Piece {
    uint64_t first_record = 0;
    layout::Layout layout;
  };

  // Pieces never change and never move once they are known.
  Result<const Piece*> PieceWith(uint64_t record) {
    std::unique_lock lock(mutex_);
    // Only the end of the walk proves that the last record is the last.
    const bool is_last = record + 1 == database_.entry_count() && database_.counts_exactly();
    grown_.wait(lock, [&] { return (record < known_count_ && !is_last) || ended_; });
    if (error_) return CopyOfError();
    if (record >= known_count_) {
      return Fail(ErrorCode::kCorruption,
                  fmt::format("{}: the tree ends at record {}, before record {}",
                              database_.pages().source().name(), known_count_, record));
    }
    const auto after =
        std::upper_bound(pieces_.begin(), pieces_.end(), record,
                         [](uint64_t r, const auto& piece) { return r < piece->first_record; });
    return (after - 1)->get();
  }

  Status Walk() {
    layout::PageClaims claims(database_.pages().snapshot().page_count());
    LMDBIO_TRY(const std::vector<PageNo> leaves, layout::ListLeaves(database_, claims));
    const std::span<const PageNo> all(leaves);
    uint64_t record = 0;
    size_t step = kFirstStepLeaves;
    for (size_t done = 0; done < all.size() && !stop_.load();) {
      const auto some = all.subspan(done, std::min(step, all.size() - done));
      layout::LayoutBuilder builder;
      Renumber sink(record, builder);
      LMDBIO_TRY(const uint64_t found, layout::WalkLeaves(database_, some, {record}, claims, sink));
      AddPiece(record, builder.Finish());
      record += found;
      done += some.size();
      step = std::min(step * 2, kStepLeavesMax);
    }
    if (stop_.load() || database_.AcceptsRecordCount(record)) return {};
    return database_.pages().Corrupt(
        database_.record().root,
        fmt::format("the tree below it holds {} records, its description says {}", record,
                    database_.entry_count()));
  }

  void AddPiece(uint64_t first_record, layout::Layout layout) {
    if (layout.record_count() == 0) return;
    auto piece = std::make_unique<Piece>(Piece{first_record, std::move(layout)});
    const std::lock_guard lock(mutex_);
    known_count_ = first_record + piece->layout.record_count();
    pieces_.push_back(std::move(piece));
    grown_.notify_all();
  }

  void End(Status status) {
    const std::lock_guard lock(mutex_);
    if (!status) error_.emplace(std::move(status).error());
    ended_ = true;
    grown_.notify_all();
  }

  tl::unexpected<Error> CopyOfError() const { return Fail(error_->code(), error_->message()); }

  layout::Database database_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable grown_;
  // Guarded by mutex_:
  std::vector<std::unique_ptr<const Piece>> pieces_;
  uint64_t known_count_ = 0;
  bool ended_ = false;
  std::optional<Error> error_;

  std::thread walker_;
};

}  // namespace

std::unique_ptr<Locator> MakeScanLocator(const layout::Database& database) {
  return std::make_unique<ScanLocator>(database);
}

}  // namespace lmdbio::loader
