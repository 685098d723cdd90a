// The locator of `scan`: a thread walks the leaf pages ahead of the reads. A joint walk also reads
// the values between the leaf pages, and the reader copies them (walked_source.h).
//
// The walk goes in steps of some leaf pages. The first steps are small, so that the first records
// are known at once. Each step yields a layout part. The parts are kept for later epochs. Several
// hosts walk one step each at a time, and exchange the parts.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/load/locate/block_pool.h"
#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/walked_source.h"

namespace lmdbio::load {
namespace {

constexpr size_t kFirstStepLeaves = 64;
constexpr size_t kStepLeavesMax = 1024;
// The bytes of the file that one step of a joint walk covers. The first is small here, too.
constexpr uint64_t kJointStepBytes = 4 << 20;
constexpr size_t kJointFirstLeaves = 2;

class ScanLocator final : public Locator {
 public:
  ScanLocator(const file::Database& database, std::unique_ptr<LayoutAllGather> gather,
              SharedLayout* host, ScanOptions options)
      : database_(database), gather_(std::move(gather)), host_(host), options_(std::move(options)) {
    walker_ = std::thread([this] { Run(); });
  }

  ~ScanLocator() override {
    stop_.store(true);
    if (gather_) gather_->Stop();
    Stop();
    walker_.join();
  }

  void Stop() override {
    const std::lock_guard lock(mutex_);
    if (pool_) pool_->Stop();
  }

  // The pool exists before the first part does, so the reading thread needs no lock.
  bool CopyWalked(const Extent& file, MutableBytes to) override {
    return pool_ && pool_->Copy(file, to);
  }

  bool HasWalked() const override { return pool_ != nullptr; }

  LocatorCounters counters() const override {
    const std::lock_guard lock(mutex_);
    LocatorCounters counters;
    if (!pool_) return counters;
    const BlockPoolCounters found = pool_->counters();
    const uint64_t page_bytes = database_.pages().page_format().page_size_bytes();
    counters.reads = found.reads;
    counters.missed_pages = found.missed_bytes / page_bytes;
    counters.redundant_pages =
        (found.dropped_bytes - std::min(found.dropped_bytes, found.copied_bytes)) / page_bytes;
    counters.copy_wait_s = found.slept_s;
    return counters;
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
      LMDBIO_TRY(const LayoutPart* part, PartWith(next));
      const uint64_t from = next - part->first_record;
      const uint64_t length = std::min(end - next, part->layout.record_count() - from);
      // The last record of the database also needs the end of the walk.
      if (length > 1) LMDBIO_TRY_VOID(PartWith(next + length - 1));
      LMDBIO_TRY_VOID(
          part->layout.ExpandRange({from}, length, RecordIndex{part->first_record}, sink));
      next += length;
    }
    return {};
  }

  Status VisitRuns(const std::function<void(const file::RunLocation&)>& visit) override {
    {
      std::unique_lock lock(mutex_);
      grown_.wait(lock, [this] { return ended_; });
      if (error_) return CopyOfError();
    }
    // After the end no part is added.
    for (const auto& part : parts_) {
      for (uint64_t i = 0; i < part->layout.run_count(); ++i) {
        file::RunLocation run = part->layout.Run(i);
        run.first_record.value += part->first_record;
        visit(run);
      }
    }
    return {};
  }

 private:
  struct LayoutPart {
    uint64_t first_record = 0;
    file::Layout layout;
  };

  // The database as a joint walk reads it.
  struct JointDatabase {
    JointDatabase(const file::Database& from, std::unique_ptr<file::BlockEngine> engine,
                  BlockPool& pool)
        : source(from.pages().source(), std::move(engine), pool),
          database(file::PageReader(source, from.pages().snapshot()), from.name(), from.record()) {}

    WalkedSource source;
    file::Database database;  // borrows source
  };

  // Sleeps until the part with `record` is known. A part never changes and never moves.
  Result<const LayoutPart*> PartWith(uint64_t record) {
    std::unique_lock lock(mutex_);
    // Only the end of the walk proves that the last record is the last.
    const bool is_last = record + 1 == database_.entry_count() && database_.counts_exactly();
    const auto is_known = [&] { return (record < known_count_ && !is_last) || ended_; };
    if (pool_ && !is_known()) {
      pool_->BeginWaiting();
      grown_.wait(lock, is_known);
      pool_->EndWaiting();
    }
    grown_.wait(lock, is_known);
    if (error_ && (record >= known_count_ || is_last)) return CopyOfError();
    if (record >= known_count_) {
      return Fail(ErrorCode::kCorruption,
                  fmt::format("{}: the tree ends at record {}, before record {}",
                              database_.pages().source().name(), known_count_, record));
    }
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), record,
                         [](uint64_t r, const auto& part) { return r < part->first_record; });
    return (after - 1)->get();
  }

  // The layout part of one host in a round. Its records count from 0.
  Result<file::Layout> WalkStep(std::span<const PageNo> leaves, file::PageClaims& claims) {
    file::LayoutBuilder builder;
    if (leaves.empty()) return builder.Finish();
    const file::Database& database = walked_ ? walked_->database : database_;
    LMDBIO_TRY_VOID(file::WalkLeaves(database, leaves, {0}, claims, builder));
    return builder.Finish();
  }

  // The leaf pages of each host's next step. Fewer, or none, at the end of the walk.
  static std::vector<std::span<const PageNo>> CutRound(std::span<const PageNo> leaves, size_t step,
                                                       size_t hosts) {
    std::vector<std::span<const PageNo>> steps(hosts);
    for (auto& mine : steps) {
      mine = leaves.first(std::min(step, leaves.size()));
      leaves = leaves.subspan(mine.size());
    }
    return steps;
  }

  // Returns the parts of all hosts in a round. If a host leaves, the exchange is broken for good.
  // This host then walks the steps of all hosts, in this round and in all later ones.
  Result<std::vector<file::Layout>> WalkRound(const std::vector<std::span<const PageNo>>& steps,
                                              file::PageClaims& claims) {
    std::vector<file::Layout> parts(steps.size());
    const size_t mine = is_alone_ ? 0 : gather_->host_index();
    LMDBIO_TRY(file::Layout own, WalkStep(steps[mine], claims));
    if (!is_alone_) {
      auto exchanged = gather_->Exchange(own);
      is_alone_ = !exchanged;
      if (exchanged) parts = std::move(*exchanged);
    }
    for (size_t i = 0; is_alone_ && i < steps.size(); ++i) {
      if (i == mine || stop_.load()) continue;
      LMDBIO_TRY(parts[i], WalkStep(steps[i], claims));
    }
    parts[mine] = std::move(own);
    return parts;
  }

  // The finished walk is passed on after the reads, because later jobs can wait.
  void Run() {
    const Status pinned = PinThisThread(options_.cores);
    Result<std::vector<PageNo>> leaves =
        pinned ? Walk() : Result<std::vector<PageNo>>(Fail(pinned.error().Copy()));
    End(leaves ? Status() : Fail(leaves.error().Copy()));
    // The last values lie behind the last leaf page.
    if (walked_) walked_->source.ReadRest();
    walked_.reset();
    // Also if the loader closes now: a short job would else never keep its layout.
    if (!leaves || leaves->empty() || !options_.on_walked) return;
    options_.on_walked(
        {*leaves, known_count_, [this](file::RecordRunSink& sink) { return ExpandAll(sink); }});
  }

  // Requires: the walk has ended, so the parts no longer change
  Status ExpandAll(file::RecordRunSink& sink) const {
    for (const auto& part : parts_) {
      LMDBIO_TRY_VOID(part->layout.ExpandRange({0}, part->layout.record_count(),
                                               RecordIndex{part->first_record}, sink));
    }
    return {};
  }

  // Returns the leaf pages; none if the walk was stopped. Every host reads all branch pages,
  // because they name the leaves of all steps. The claims cover the tree pages, and the overflow
  // runs of the steps that this host walks.
  Result<std::vector<PageNo>> Walk() {
    file::PageClaims claims(database_.pages().snapshot().page_count());
    const auto began = std::chrono::steady_clock::now();
    LMDBIO_TRY(std::vector<PageNo> leaves, file::ListLeaves(database_, claims));
    // One batch of reads for each level of branch pages.
    const double read_s = SecondsSince(began) / std::max(1, database_.record().depth - 1);
    const size_t joint_leaves = OpenJoint(leaves, read_s);
    const size_t step_max = joint_leaves > 0 ? joint_leaves : kStepLeavesMax;
    uint64_t record = 0;
    size_t step = joint_leaves > 0 ? kJointFirstLeaves : kFirstStepLeaves;
    std::span<const PageNo> left(leaves);
    while (!left.empty() && !stop_.load()) {
      const auto steps = CutRound(left, step, is_alone_ ? 1 : gather_->host_count());
      LMDBIO_TRY(auto parts, WalkRound(steps, claims));
      // A round that was stopped may lack parts, so none of them is used.
      if (stop_.load()) return std::vector<PageNo>();
      for (size_t i = 0; i < steps.size(); ++i) {
        const uint64_t found = parts[i].record_count();
        AddPart(record, std::move(parts[i]));
        record += found;
        left = left.subspan(steps[i].size());
      }
      // Steps double: the first is short, so that the first slot can be planned at once, and long
      // ones need fewer messages.
      step = std::min(step * 2, step_max);
    }
    if (!left.empty()) return std::vector<PageNo>();
    if (database_.AcceptsRecordCount(record)) return leaves;
    return database_.pages().Corrupt(
        database_.record().root,
        fmt::format("the tree below it holds {} records, its description says {}", record,
                    database_.entry_count()));
  }

  // Prepares a joint walk, if it pays. Returns the leaf pages of one step; 0 for a plain walk,
  // which does the same.
  size_t OpenJoint(std::span<const PageNo> leaves, double read_s) {
    if (!options_.joint || read_s < options_.joint->slow_read_s) return 0;
    const auto range = JointRange(database_, leaves, options_.joint->stream_bytes);
    if (!range) return 0;
    auto engine = file::OpenBlockEngine(options_.joint->data_path, options_.joint->engine);
    auto pool = BlockPool::Create(*range, {});
    if (!engine || !pool) return 0;
    walked_.emplace(database_, std::move(*engine), **pool);
    const std::lock_guard lock(mutex_);
    pool_ = std::move(*pool);
    // The destructor may have looked for a pool before there was one.
    if (stop_.load()) pool_->Stop();
    return std::clamp<size_t>(leaves.size() * kJointStepBytes / range->length_bytes, 1,
                              kStepLeavesMax);
  }

  void AddPart(uint64_t first_record, file::Layout layout) {
    // The search in PartWith needs parts with different first records.
    if (layout.record_count() == 0) return;
    if (host_ != nullptr) {
      // From here on this reader uses the shared memory too, so the host stores the part once.
      if (auto shared = host_->Publish(first_record, layout)) layout = std::move(*shared);
    }
    auto part = std::make_unique<LayoutPart>(LayoutPart{first_record, std::move(layout)});
    const std::lock_guard lock(mutex_);
    known_count_ = first_record + part->layout.record_count();
    parts_.push_back(std::move(part));
    grown_.notify_all();
  }

  void End(Status status) {
    // The other hosts, and the other readers of this host, must not wait for parts that never come.
    if (!status && !is_alone_) gather_->Leave(status.error());
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
  std::unique_ptr<LayoutAllGather> gather_;  // null on the only host
  SharedLayout* host_;
  bool is_alone_ = gather_ == nullptr;  // used by the walking thread alone
  std::atomic<bool> stop_{false};
  ScanOptions options_;
  std::optional<JointDatabase> walked_;  // of the walking thread; none if the walk is plain

  mutable std::mutex mutex_;
  std::condition_variable grown_;
  // Guarded by mutex_:
  std::unique_ptr<BlockPool> pool_;
  std::vector<std::unique_ptr<const LayoutPart>> parts_;
  uint64_t known_count_ = 0;
  bool ended_ = false;
  std::optional<Error> error_;

  std::thread walker_;
};

}  // namespace

std::unique_ptr<Locator> MakeScanLocator(const file::Database& database,
                                         std::unique_ptr<LayoutAllGather> gather,
                                         SharedLayout* host, ScanOptions options) {
  return std::make_unique<ScanLocator>(database, std::move(gather), host, std::move(options));
}

}  // namespace lmdbio::load
