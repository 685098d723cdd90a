// The locator of `scan`: a thread walks the leaf pages ahead of what is asked for.
//
// The walk goes in steps of some leaf pages, small ones first, so that the first records are known
// at once. Each step gives a piece of layout; the pieces are kept, so that later epochs find
// everything in memory. Several hosts walk a step each at a time and exchange the pieces.
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
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {
namespace {

constexpr size_t kFirstStepLeaves = 64;
constexpr size_t kStepLeavesMax = 1024;

class ScanLocator final : public Locator {
 public:
  ScanLocator(const file::Database& database, std::unique_ptr<load::LayoutAllGather> ring,
              load::SharedLayout* host, CoreList cores)
      : database_(database), ring_(std::move(ring)), host_(host) {
    walker_ = std::thread([this, cores = std::move(cores)] {
      Status pinned = PinThisThread(cores);
      End(pinned ? Walk() : std::move(pinned));
    });
  }

  ~ScanLocator() override {
    stop_.store(true);
    if (ring_) ring_->Stop();
    walker_.join();
  }

  Result<uint64_t> RecordCount() override {
    if (database_.counts_exactly()) return database_.entry_count();
    std::unique_lock lock(mutex_);
    grown_.wait(lock, [this] { return ended_; });
    if (error_) return CopyOfError();
    return known_count_;
  }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    uint64_t next = first.value;
    const uint64_t end = first.value + count;
    while (next < end) {
      LMDBIO_TRY(const LayoutPart* piece, PieceWith(next));
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
  struct LayoutPart {
    uint64_t first_record = 0;
    file::Layout layout;
  };

  // Pieces never change and never move once they are known.
  Result<const LayoutPart*> PieceWith(uint64_t record) {
    std::unique_lock lock(mutex_);
    // Only the end of the walk proves that the last record is the last.
    const bool is_last = record + 1 == database_.entry_count() && database_.counts_exactly();
    grown_.wait(lock, [&] { return (record < known_count_ && !is_last) || ended_; });
    if (error_ && (record >= known_count_ || is_last)) return CopyOfError();
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

  // One host's part of a round; its records are counted from 0.
  Result<file::Layout> WalkStep(std::span<const PageNo> leaves, file::PageClaims& claims) {
    file::LayoutBuilder builder;
    if (leaves.empty()) return builder.Finish();
    LMDBIO_TRY_VOID(file::WalkLeaves(database_, leaves, {0}, claims, builder));
    return builder.Finish();
  }

  // The next steps of all hosts: [leaves of each]; fewer, or none, at the end.
  static std::vector<std::span<const PageNo>> CutRound(std::span<const PageNo> leaves, size_t step,
                                                       size_t hosts) {
    std::vector<std::span<const PageNo>> steps(hosts);
    for (auto& mine : steps) {
      mine = leaves.first(std::min(step, leaves.size()));
      leaves = leaves.subspan(mine.size());
    }
    return steps;
  }

  // Everybody's pieces of a round. Hosts that cannot be heard any more are done without: what they
  // would have walked is walked here, now and from then on.
  Result<std::vector<file::Layout>> WalkRound(const std::vector<std::span<const PageNo>>& steps,
                                              file::PageClaims& claims) {
    std::vector<file::Layout> pieces(steps.size());
    const size_t mine = is_alone_ ? 0 : ring_->host_index();
    LMDBIO_TRY(file::Layout own, WalkStep(steps[mine], claims));
    if (!is_alone_) {
      auto exchanged = ring_->Exchange(own);
      is_alone_ = !exchanged;
      if (exchanged) pieces = std::move(*exchanged);
    }
    for (size_t i = 0; is_alone_ && i < steps.size(); ++i) {
      if (i == mine || stop_.load()) continue;
      LMDBIO_TRY(pieces[i], WalkStep(steps[i], claims));
    }
    pieces[mine] = std::move(own);
    return pieces;
  }

  Status Walk() {
    file::PageClaims claims(database_.pages().snapshot().page_count());
    LMDBIO_TRY(const std::vector<PageNo> leaves, file::ListLeaves(database_, claims));
    uint64_t record = 0;
    size_t step = kFirstStepLeaves;
    std::span<const PageNo> left(leaves);
    while (!left.empty() && !stop_.load()) {
      const auto steps = CutRound(left, step, is_alone_ ? 1 : ring_->host_count());
      LMDBIO_TRY(auto pieces, WalkRound(steps, claims));
      if (stop_.load()) return {};
      for (size_t i = 0; i < steps.size(); ++i) {
        const uint64_t found = pieces[i].record_count();
        AddPiece(record, std::move(pieces[i]));
        record += found;
        left = left.subspan(steps[i].size());
      }
      step = std::min(step * 2, kStepLeavesMax);
    }
    if (stop_.load() || database_.AcceptsRecordCount(record)) return {};
    return database_.pages().Corrupt(
        database_.record().root,
        fmt::format("the tree below it holds {} records, its description says {}", record,
                    database_.entry_count()));
  }

  void AddPiece(uint64_t first_record, file::Layout layout) {
    if (layout.record_count() == 0) return;
    if (host_ != nullptr) {
      if (auto shared = host_->Publish(first_record, layout)) layout = std::move(*shared);
    }
    auto piece = std::make_unique<LayoutPart>(LayoutPart{first_record, std::move(layout)});
    const std::lock_guard lock(mutex_);
    known_count_ = first_record + piece->layout.record_count();
    pieces_.push_back(std::move(piece));
    grown_.notify_all();
  }

  void End(Status status) {
    // The others shall not wait for what will not come.
    if (!status && !is_alone_) ring_->Leave(status.error());
    if (host_ != nullptr && stop_.load()) {
      host_->End(Fail(ErrorCode::kPeerFailed, "the reader that walks for this host has left"));
    } else if (host_ != nullptr) {
      host_->End(status);
    }
    const std::lock_guard lock(mutex_);
    if (!status) error_.emplace(std::move(status).error());
    ended_ = true;
    grown_.notify_all();
  }

  tl::unexpected<Error> CopyOfError() const { return Fail(error_->code(), error_->message()); }

  file::Database database_;
  std::unique_ptr<load::LayoutAllGather> ring_;
  load::SharedLayout* host_;
  bool is_alone_ = ring_ == nullptr;  // the walking thread's
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable grown_;
  // Guarded by mutex_:
  std::vector<std::unique_ptr<const LayoutPart>> pieces_;
  uint64_t known_count_ = 0;
  bool ended_ = false;
  std::optional<Error> error_;

  std::thread walker_;
};

}  // namespace

std::unique_ptr<Locator> MakeScanLocator(const file::Database& database,
                                         std::unique_ptr<load::LayoutAllGather> ring,
                                         load::SharedLayout* host, CoreList cores) {
  return std::make_unique<ScanLocator>(database, std::move(ring), host, std::move(cores));
}

}  // namespace lmdbio::load
