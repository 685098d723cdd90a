// The locator of `scan`: a thread walks the leaf pages ahead of the reads. A joint walk also reads
// the values between the leaf pages, and the reader copies them (walked_source.h).
//
// The walk goes in steps of some leaf pages. The first steps are small, so that the first records
// are known at once. Each step yields a layout part. The parts are kept for later epochs. Several
// hosts walk one step each at a time, and exchange the parts. The databases of a list are walked
// one after the other; a database whose layout is known is one part.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
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
  ScanLocator(std::vector<ScanFile> files, std::unique_ptr<LayoutAllGather> gather,
              SharedLayout* host, ScanOptions options)
      : gather_(std::move(gather)), host_(host), options_(std::move(options)) {
    list_.files.reserve(files.size());
    list_.exact_count = 0;
    for (ScanFile& file : files) {
      const file::Database& database = file.database;
      if (!database.counts_exactly()) list_.exact_count.reset();
      if (list_.exact_count) *list_.exact_count += database.entry_count();
      list_.files.push_back({std::move(file), {}, {}});
    }
    try {
      walker_ = std::thread([this] { Run(); });
    } catch (const std::system_error& failure) {
      End(Fail(ErrorCode::kResourceExhausted,
               fmt::format("cannot start the thread of the page walk: {}; raise ulimit -u",
                           failure.code().message()),
               failure.code().value()));
    }
  }

  ~ScanLocator() override {
    stop_.store(true);
    if (gather_) gather_->Stop();
    Stop();
    if (walker_.joinable()) walker_.join();
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
    const uint64_t page_bytes = page_size_bytes();
    counters.reads = found.reads;
    counters.missed_pages = found.missed_bytes / page_bytes;
    counters.redundant_pages =
        (found.dropped_bytes - std::min(found.dropped_bytes, found.copied_bytes)) / page_bytes;
    counters.copy_wait_s = found.slept_s;
    return counters;
  }

  Result<uint64_t> RecordCount() override {
    if (list_.exact_count) return *list_.exact_count;
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

  Status VisitRuns(RecordRange range,
                   const std::function<void(const file::RunLocation&)>& visit) override {
    {
      std::unique_lock lock(mutex_);
      grown_.wait(lock, [this] { return ended_; });
      if (error_) return CopyOfError();
    }
    // After the end no part is added.
    for (const auto& part : parts_) {
      if (!range.Meets({part->first_record, part->layout.record_count()})) continue;
      for (uint64_t i = 0; i < part->layout.run_count(); ++i) {
        file::RunLocation run = part->layout.Run(i);
        run.first_record.value += part->first_record;
        if (range.Meets({run.first_record.value, run.record_count})) visit(run);
      }
    }
    return {};
  }

 private:
  struct LayoutPart {
    uint64_t first_record = 0;
    file::Layout layout;
  };

  // A database of the list, and what the walking thread has found of it.
  struct WalkedFile {
    ScanFile file;
    RecordRange records;
    std::vector<PageNo> leaves;  // none if it was not walked to its end
  };

  struct WalkedList {
    std::vector<WalkedFile> files;
    std::optional<uint64_t> exact_count;  // of records, if all databases count exactly
  };

  uint64_t page_size_bytes() const {
    return list_.files.front().file.database.pages().page_format().page_size_bytes();
  }
  file::ShiftedRuns::By ShiftOf(const ScanFile& file) const {
    return {0, file.first_page.value, file.first_page.value * page_size_bytes()};
  }

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
    const bool is_last = record + 1 == list_.exact_count;
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
                              list_.files.back().file.database.pages().source().name(),
                              known_count_, record));
    }
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), record,
                         [](uint64_t r, const auto& part) { return r < part->first_record; });
    return (after - 1)->get();
  }

  // The layout part of one host in a round. Its records count from 0.
  Result<file::Layout> WalkStep(const ScanFile& file, std::span<const PageNo> leaves,
                                file::PageClaims& claims) {
    file::LayoutBuilder builder;
    if (leaves.empty()) return builder.Finish();
    const file::Database& database = walked_ ? walked_->database : file.database;
    file::ShiftedRuns shifted(builder, ShiftOf(file));
    LMDBIO_TRY_VOID(file::WalkLeaves(database, leaves, {0}, claims, shifted));
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
  Result<std::vector<file::Layout>> WalkRound(const ScanFile& file,
                                              const std::vector<std::span<const PageNo>>& steps,
                                              file::PageClaims& claims) {
    std::vector<file::Layout> parts(steps.size());
    const size_t mine = is_alone_ ? 0 : gather_->host_index();
    LMDBIO_TRY(file::Layout own, WalkStep(file, steps[mine], claims));
    if (!is_alone_) {
      auto exchanged = gather_->Exchange(own);
      is_alone_ = !exchanged;
      if (exchanged) parts = std::move(*exchanged);
    }
    for (size_t i = 0; is_alone_ && i < steps.size(); ++i) {
      if (i == mine || stop_.load()) continue;
      LMDBIO_TRY(parts[i], WalkStep(file, steps[i], claims));
    }
    parts[mine] = std::move(own);
    return parts;
  }

  // The finished walks are passed on after the reads, because later jobs can wait.
  void Run() {
    Status status = PinThisThread(options_.cores);
    for (WalkedFile& file : list_.files) {
      if (!status || stop_.load()) break;
      status = LocateFile(file);
    }
    const bool is_whole = status.has_value();
    End(std::move(status));
    // The last values lie behind the last leaf page.
    if (walked_) walked_->source.ReadRest();
    walked_.reset();
    if (!is_whole) return;
    // Also if the loader closes now: a short job would else never keep its layout.
    for (const WalkedFile& file : list_.files) PassOn(file);
  }

  void PassOn(const WalkedFile& file) const {
    if (file.leaves.empty() || !file.file.on_walked) return;
    file.file.on_walked({file.leaves, file.records.count,
                         [&](file::RecordRunSink& sink) { return ExpandAll(file, sink); }});
  }

  // Requires: the walk has ended, so the parts no longer change
  Status ExpandAll(const WalkedFile& file, file::RecordRunSink& sink) const {
    file::ShiftedRuns own(sink, ShiftOf(file.file).Back());
    for (const auto& part : parts_) {
      if (!file.records.Meets({part->first_record, part->layout.record_count()})) continue;
      LMDBIO_TRY_VOID(part->layout.ExpandRange({0}, part->layout.record_count(),
                                               RecordIndex{part->first_record - file.records.first},
                                               own));
    }
    return {};
  }

  // Adds the parts of a database: its known layout, or those of a walk.
  Status LocateFile(WalkedFile& file) {
    file.records.first = known_count_;  // only this thread changes it
    if (file.file.find_layout) {
      LMDBIO_TRY(std::optional<file::Layout> layout, file.file.find_layout());
      if (layout) return AddKnown(file, *layout);
    }
    LMDBIO_TRY(file.leaves, Walk(file.file));
    file.records.count = known_count_ - file.records.first;
    return {};
  }

  Status AddKnown(WalkedFile& file, const file::Layout& layout) {
    file::LayoutBuilder builder;
    file::ShiftedRuns shifted(builder, ShiftOf(file.file));
    LMDBIO_TRY_VOID(layout.Expand(shifted));
    file.records.count = layout.record_count();
    AddPart(file.records.first, builder.Finish());
    return {};
  }

  // Returns the leaf pages; none if the walk was stopped. Every host reads all branch pages,
  // because they name the leaves of all steps. The claims cover the tree pages, and the overflow
  // runs of the steps that this host walks.
  Result<std::vector<PageNo>> Walk(const ScanFile& file) {
    const file::Database& database = file.database;
    file::PageClaims claims(database.pages().snapshot().page_count());
    const auto began = std::chrono::steady_clock::now();
    LMDBIO_TRY(std::vector<PageNo> leaves, file::ListLeaves(database, claims));
    // One batch of reads for each level of branch pages.
    const double read_s = SecondsSince(began) / std::max(1, database.record().depth - 1);
    const size_t joint_leaves = OpenJoint(leaves, read_s);
    const size_t step_max = joint_leaves > 0 ? joint_leaves : kStepLeavesMax;
    const uint64_t first_record = known_count_;
    uint64_t record = first_record;
    size_t step = joint_leaves > 0 ? kJointFirstLeaves : kFirstStepLeaves;
    std::span<const PageNo> left(leaves);
    while (!left.empty() && !stop_.load()) {
      const auto steps = CutRound(left, step, is_alone_ ? 1 : gather_->host_count());
      LMDBIO_TRY(auto parts, WalkRound(file, steps, claims));
      // A round that was stopped may lack parts, so none of them is used.
      if (stop_.load()) return std::vector<PageNo>();
      for (size_t i = 0; i < steps.size(); ++i) {
        const uint64_t added = parts[i].record_count();
        AddPart(record, std::move(parts[i]));
        record += added;
        left = left.subspan(steps[i].size());
      }
      // Steps double: the first is short, so that the first slot can be planned at once, and long
      // ones need fewer messages.
      step = std::min(step * 2, step_max);
    }
    if (!left.empty()) return std::vector<PageNo>();
    const uint64_t found = record - first_record;
    if (database.AcceptsRecordCount(found)) return leaves;
    return database.pages().Corrupt(
        database.record().root,
        fmt::format("the tree below it holds {} records, its description says {}", found,
                    database.entry_count()));
  }

  // Prepares a joint walk, if it pays. Returns the leaf pages of one step; 0 for a plain walk,
  // which does the same.
  size_t OpenJoint(std::span<const PageNo> leaves, double read_s) {
    if (!options_.joint || read_s < options_.joint->slow_read_s) return 0;
    const file::Database& database = list_.files.front().file.database;
    const auto range = JointRange(database, leaves, options_.joint->stream_bytes);
    if (!range) return 0;
    auto engine = file::OpenBlockEngine(options_.joint->data_path, options_.joint->engine);
    auto pool = BlockPool::Create(*range, {});
    if (!engine || !pool) return 0;
    walked_.emplace(database, std::move(*engine), **pool);
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

  WalkedList list_;
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
  std::vector<ScanFile> files;
  files.push_back({database, {0}, {}, std::move(options.on_walked)});
  return MakeScanLocator(std::move(files), std::move(gather), host, std::move(options));
}

std::unique_ptr<Locator> MakeScanLocator(std::vector<ScanFile> files,
                                         std::unique_ptr<LayoutAllGather> gather,
                                         SharedLayout* host, ScanOptions options) {
  if (files.size() > 1) options.joint.reset();
  return std::make_unique<ScanLocator>(std::move(files), std::move(gather), host,
                                       std::move(options));
}

}  // namespace lmdbio::load
