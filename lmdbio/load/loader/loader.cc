#include "lmdbio/load/loader/loader.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/load/baseline/lmdb_stream.h"
#include "lmdbio/load/loader/batch_cursor.h"
#include "lmdbio/load/loader/batch_source.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/loader/host_runtime.h"
#include "lmdbio/load/loader/idle_options.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/loader/opened_file.h"
#include "lmdbio/load/slots/notes.h"

namespace lmdbio::load {
namespace {

// Windows and links say so of a process that is gone. Other failures of a rank have other words.
bool SaysEnded(const Error& error) {
  return error.code() == ErrorCode::kPeerFailed &&
         error.message().ends_with("has ended unexpectedly");
}

rusage ProcessUsage() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage;
}

std::string_view LocatingName(LocateMethod locating) {
  switch (locating) {
    case LocateMethod::kNone:
      return "liblmdb's cursor";
    case LocateMethod::kCursor:
      return "a cursor over a map";
    case LocateMethod::kHandedCursor:
      return "a cursor over a map, handed from host to host";
    case LocateMethod::kOneWalker:
      return "a cursor over a map, on one host for all";
    case LocateMethod::kProvenance:
      return "provenance";
    case LocateMethod::kScan:
      return "a page walk";
    case LocateMethod::kBest:
      break;
  }
  return "";
}

}  // namespace

// Connects the parts of a loader: the decision of all ranks, the runtime of the host, and the
// cursor of this rank. The members are declared in the order in which they borrow from each other.
class Loader::Impl {
 public:
  Impl(ranks::Group& group, WantedFiles wanted, const LoaderOptions& options)
      : group_(group), wanted_(std::move(wanted)), options_(options), cursor_(options) {}
  ~Impl() { cursor_.LeaveSource(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Opens in the steps of docs/loader.md "Opening". Collective.
  Status Open();

  // For a loader that replaces this one and goes on elsewhere.
  ranks::Group& group() const { return group_; }
  // A folder or a glob may have other files by now, so a list stays as it was found.
  WantedFiles wanted() const {
    if (!file_.is_list()) return wanted_;
    return {{}, file_.list, wanted_.view, file_.own_count};
  }
  const LoaderOptions& options() const { return options_; }
  const ViewSpec* view_spec() const { return wanted_.view.get(); }
  const OpenDecision& decision() const { return decision_; }
  Status CheckSameOnAll(const std::string& position);
  Status CheckState(const std::string& state) const;
  void TakeOver(const Impl& before);

  BatchCursor& cursor() { return cursor_; }
  const BatchCursor& cursor() const { return cursor_; }
  const Schedule& schedule() const { return cursor_.schedule(); }
  LoaderCounters counters() const;
  std::string Describe() const;
  const Placement& placement() const { return member_.placement; }
  MutableBytes window() const { return runtime_ ? runtime_->UsedWindow() : MutableBytes(); }
  std::vector<std::string> TakeNotes() { return notes_.Take(); }

 private:
  bool uses_window() const { return decision_.locating != LocateMethod::kNone; }

  Status CheckArguments() const;
  Status LookAtFile();
  Status AgreeOnFile();
  Status AgreeOnHandOff();
  Status OpenRuntime();

  ranks::Group& group_;
  WantedFiles wanted_;
  LoaderOptions options_;
  Notes notes_;
  HostMember member_;
  OpenedFile file_;
  OpenDecision decision_;             // constant from AgreeOnHandOff on
  FileListing listing_;               // of rank 0, once all have agreed
  std::unique_ptr<LmdbStream> lmdb_;  // of the baseline, until the batches take it
  BatchCursor cursor_;
  std::unique_ptr<HostRuntime> runtime_;  // if uses_window()
  std::unique_ptr<BatchSource> batches_;  // borrows the runtime's memory
  rusage usage_at_open_ = {};
  bool is_reopened_ = false;
};

Status Loader::Impl::CheckArguments() const {
  if (wanted_.path.empty() && wanted_.list.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the path, or the list of files, is empty");
  }
  LMDBIO_TRY_VOID(CheckOptions(options_));
  if (!wanted_.view) return {};
  LMDBIO_TRY_VOID(CheckView(*wanted_.view));
  return CheckServesView(options_);
}

// Readers open the file. Job rank 0 decides for all ranks. The ranks of the baseline open it too,
// with liblmdb.
Status Loader::Impl::LookAtFile() {
  const bool is_baseline = CompositionOf(options_.strategy).locating == LocateMethod::kNone;
  if (!member_.is_reader() && !is_baseline) return {};
  LMDBIO_TRY_VOID(file_.Find(wanted_, options_));
  if (is_baseline && file_.is_list()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: strategy {} needs a single file; use auto", NameOfList(file_.list),
                            CompositionOf(options_.strategy).name));
  }
  if (is_baseline) {
    LMDBIO_TRY(lmdb_, LmdbStream::Open(file_.data_path, options_.database_name));
    if (group_.rank() != 0) return {};
  }
  LMDBIO_TRY_VOID(file_.Open(options_));
  // Each reader resolves the view for itself, all at the same time.
  LMDBIO_TRY_VOID(file_.ResolveView(wanted_.view.get(), notes_));
  if (group_.rank() != 0) return {};
  LMDBIO_TRY(decision_, file_.Decide(options_, member_, notes_, listing_));
  return {};
}

// Broadcasts the decision of rank 0, checks that readers see the same file, and derives the stream.
// The stream is computed on every rank from the same input, so it needs no agreement.
Status Loader::Impl::AgreeOnFile() {
  LMDBIO_TRY_VOID(group_.Broadcast(0, std::as_writable_bytes(std::span(&decision_, 1))));
  if (decision_.file_count > 1) LMDBIO_TRY_VOID(BroadcastListing(group_, listing_));
  Status same;
  const bool has_list = decision_.file_count > 1 || file_.is_list();
  if (file_.is_open() && has_list) {
    same = CheckSameFiles(listing_, *file_.files, file_.list);
  } else if (file_.is_open()) {
    same = CheckSameFile(decision_, file_.files->snapshot(0), file_.data_path);
  }
  if (same && file_.view) same = CheckSameResolved(decision_, *file_.view, file_.files->name());
  LMDBIO_TRY_VOID(ranks::Agree(group_, std::move(same)));
  LMDBIO_TRY(const StreamState stream, StreamFor(decision_, options_, listing_.files));
  cursor_.Seek(stream);
  return {};
}

// With several hosts, the cursor hand-off depends on the records of every host. If it is not
// possible, each host walks with a cursor of its own.
Status Loader::Impl::AgreeOnHandOff() {
  if (member_.is_only_host || decision_.locating != LocateMethod::kHandedCursor) return {};
  LMDBIO_TRY(const bool can_hand_on, CanHandOn(group_, options_, member_));
  if (can_hand_on) return {};
  decision_.locating = LocateMethod::kCursor;
  notes_.Add(
      "strategy lmm-dm: the cursor hand-off needs share block, reuse 1 and consecutive ranks on "
      "each host; every host uses a cursor of its own instead");
  return {};
}

Status Loader::Impl::OpenRuntime() {
  runtime_ = std::make_unique<HostRuntime>(OpenContext{group_, wanted_, options_, member_,
                                                       decision_, cursor_.schedule(), file_, notes_,
                                                       cursor_.next_batch(), !is_reopened_});
  LMDBIO_TRY_VOID(runtime_->Open());
  if (!is_reopened_) usage_at_open_ = ProcessUsage();
  runtime_->StartReader();
  batches_ = runtime_->MakeBatches();
  return {};
}

Status Loader::Impl::Open() {
  // Every step that can fail is collective or ends in Agree. So all ranks reach the next step, or
  // none does.
  LMDBIO_TRY_VOID(ranks::Agree(group_, CheckArguments()));
  LMDBIO_TRY_VOID(CheckSameOptions(group_, options_));
  LMDBIO_TRY_VOID(CheckSameView(group_, wanted_.view.get()));
  LMDBIO_TRY(member_, HostMember::Find(group_, options_, notes_));
  LMDBIO_TRY_VOID(ranks::Agree(group_, LookAtFile()));
  LMDBIO_TRY_VOID(AgreeOnFile());
  if (!is_reopened_) usage_at_open_ = ProcessUsage();
  if (group_.rank() == 0 && !is_reopened_) {
    if (!group_.note().empty()) notes_.Add(std::string(group_.note()));
    notes_.Add(IdleOptionNotes(options_, decision_, member_));
  }
  if (uses_window()) {
    LMDBIO_TRY_VOID(AgreeOnHandOff());
    LMDBIO_TRY_VOID(OpenRuntime());
  } else {
    batches_ = MakeLmdbBatches(std::move(lmdb_), cursor_.schedule(), cursor_.next_batch(), member_);
  }
  cursor_.ReadFrom(*batches_);
  return {};
}

// Checks that all ranks want to continue at the same position. Collective.
Status Loader::Impl::CheckSameOnAll(const std::string& position) {
  // A digest is enough to find a difference, and has the same size on all ranks.
  const uint64_t mine = TextDigest(position);
  LMDBIO_TRY(const auto all, group_.AllGather(std::as_bytes(std::span(&mine, 1))));
  for (int rank = 1; rank < group_.size(); ++rank) {
    if (std::memcmp(all.data(), all.data() + static_cast<size_t>(rank) * sizeof mine,
                    sizeof mine) != 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} continues at another position than rank 0; give all ranks "
                              "the same state or epoch, after the same number of batches",
                              rank));
    }
  }
  return {};
}

Status Loader::Impl::CheckState(const std::string& state) const {
  LMDBIO_TRY_VOID(ContinueFrom(state, decision_, options_, listing_.files));
  return {};
}

// The decision and the position stay valid if this loader fails to open.
void Loader::Impl::TakeOver(const Impl& before) {
  decision_ = before.decision_;
  listing_ = before.listing_;
  cursor_.TakeOver(before.cursor_, before.counters());
  notes_.TakeOver(before.notes_);
  usage_at_open_ = before.usage_at_open_;
  is_reopened_ = true;
}

LoaderCounters Loader::Impl::counters() const {
  LoaderCounters counters = cursor_.counters();
  if (runtime_ && runtime_->reader() != nullptr) runtime_->reader()->AddTo(counters);
  // Faults and switches are those of the whole process since Open, other threads included.
  const rusage now = ProcessUsage();
  const auto grown = [](long after, long before) { return static_cast<uint64_t>(after - before); };
  counters.major_faults = grown(now.ru_majflt, usage_at_open_.ru_majflt);
  counters.minor_faults = grown(now.ru_minflt, usage_at_open_.ru_minflt);
  counters.context_switches =
      grown(now.ru_nvcsw + now.ru_nivcsw, usage_at_open_.ru_nvcsw + usage_at_open_.ru_nivcsw);
  counters.memory_bytes_max = static_cast<uint64_t>(now.ru_maxrss) * 1024;
  return counters;
}

std::string Loader::Impl::Describe() const {
  if (!uses_window()) return std::string(LocatingName(decision_.locating));
  const uint64_t group_batches = schedule().group_batches();
  std::string extras =
      group_batches > 1 ? fmt::format("; groups of {} batches", group_batches) : "";
  const std::string placed = placement().Describe();
  if (!placed.empty()) extras += "; " + placed;
  if (decision_.view_digest) extras += "; samples of a view";
  // The reader walks if the kept layout has vanished.
  const bool is_lost = decision_.is_kept_layout && member_.is_reader() && !file_.is_kept_layout;
  const std::string of_list =
      decision_.locating == LocateMethod::kProvenance
          ? fmt::format("{} files; provenance", decision_.file_count)
          : fmt::format("{} files; a layout of each, or a page walk", decision_.file_count);
  const std::string_view located = decision_.file_count > 1   ? std::string_view(of_list)
                                   : is_lost                  ? LocatingName(LocateMethod::kScan)
                                   : decision_.is_kept_layout ? "a kept layout"
                                                              : LocatingName(decision_.locating);
  if (runtime_ && runtime_->is_in_place()) {
    const std::string_view alone = runtime_->reads_alone() ? "; each rank reads for itself" : "";
    return fmt::format("{}; in place, in a map{}{}", located, alone, extras);
  }
  const SlotReader* reader = runtime_ ? runtime_->reader() : nullptr;
  const uint32_t token_count = reader != nullptr ? reader->token_count() : 0;
  const std::string turns =
      token_count > 0 ? fmt::format("; {} reader(s) at a time", token_count) : "";
  const std::string engine =
      reader != nullptr ? reader->engine_name() : file::EngineKindName(decision_.engine);
  const std::string_view kept = reader != nullptr && reader->keeps() ? "; with a file cache" : "";
  const uint64_t huge_mib = reader != nullptr ? reader->huge_bytes() >> 20 : 0;
  const uint64_t whole_bytes = runtime_ ? runtime_->whole_bytes_max() : 0;
  const uint64_t block_bytes = whole_bytes > 0 ? whole_bytes : options_.block_bytes;
  const std::string pages = huge_mib > 0 ? fmt::format("; {} MiB in huge pages", huge_mib) : "";
  return fmt::format("{}; {}; blocks of up to {} bytes{}{}{}{}", located, engine, block_bytes,
                     extras, turns, kept, pages);
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::~Loader() = default;

Result<std::unique_ptr<Loader>> Loader::Open(ranks::Group& group, const std::string& path,
                                             const LoaderOptions& options,
                                             std::shared_ptr<const ViewSpec> view) {
  auto impl = std::make_unique<Impl>(group, WantedFiles{path, {}, std::move(view)}, options);
  LMDBIO_TRY_VOID(impl->Open());
  return std::unique_ptr<Loader>(new Loader(std::move(impl)));
}

Result<std::unique_ptr<Loader>> Loader::Open(ranks::Group& group,
                                             const std::vector<DatabasePath>& list,
                                             const LoaderOptions& options,
                                             std::shared_ptr<const ViewSpec> view) {
  if (list.size() != 1) {
    auto impl = std::make_unique<Impl>(group, WantedFiles{{}, list, std::move(view)}, options);
    LMDBIO_TRY_VOID(impl->Open());
    return std::unique_ptr<Loader>(new Loader(std::move(impl)));
  }
  // A list of one file is that file, and its streams can be continued with its path.
  LoaderOptions of_one = options;
  of_one.database_name = list.front().database_name;
  return Open(group, list.front().path, of_one, std::move(view));
}

std::string Loader::Save() const {
  const std::shared_lock lock(replaced_);
  return EncodeStreamState(impl_->cursor().State());
}

std::optional<std::string> Loader::TrySave() const {
  const std::shared_lock lock(replaced_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  return EncodeStreamState(impl_->cursor().State());
}

std::string Loader::SaveBefore(uint64_t batch_number) const {
  const std::shared_lock lock(replaced_);
  StreamState state = impl_->cursor().State();
  state.next_batch = batch_number;
  return EncodeStreamState(state);
}

uint64_t Loader::next_batch() const {
  const std::shared_lock lock(replaced_);
  return impl_->cursor().next_batch();
}

Status Loader::Restore(const std::string& state, const std::function<Status()>& leave) {
  current_.Return();
  const std::lock_guard turn(turn_);
  LMDBIO_TRY_VOID(impl_->CheckSameOnAll(state));
  // Checked while this loader still lives: a state that does not fit leaves the stream as it is.
  LMDBIO_TRY_VOID(impl_->CheckState(state));
  return Reopen(state, leave);
}

Status Loader::SetEpoch(uint64_t epoch, uint64_t next_batch, const std::function<Status()>& leave) {
  current_.Return();
  const std::lock_guard turn(turn_);
  StreamState state = impl_->cursor().State();
  state.next_batch = next_batch;
  LMDBIO_TRY_VOID(impl_->CheckSameOnAll(fmt::format("epoch {} {}", epoch, state.next_batch)));
  LMDBIO_TRY_VOID(CheckEpoch(epoch, impl_->schedule().positions_per_epoch()));
  const uint64_t first = epoch * impl_->schedule().positions_per_epoch();
  if (impl_->schedule().Batch(state.next_batch).first_position == first) return {};
  // Batch numbers go on, and batches are cut anew from the first position of the epoch.
  state.schedule.origin = {state.next_batch, first};
  return Reopen(EncodeStreamState(state), leave);
}

Status Loader::CheckNothingHeld() const {
  const size_t held_count = impl_->cursor().held_count();
  if (held_count == 0) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("the stream cannot go on elsewhere while threads hold batches of it ({} "
                          "held); return them first",
                          held_count));
}

// Opens a second loader in place of this one. The first one is closed before, because the memory of
// both may not fit. If the second one fails to open, it keeps the position and returns the error
// from every call of Next.
// Requires: this thread has the turn, so nobody takes a batch meanwhile
Status Loader::Reopen(const std::string& state, const std::function<Status()>& leave) {
  Status left = leave ? leave() : Status();
  if (left) left = CheckNothingHeld();
  LMDBIO_TRY_VOID(ranks::Agree(impl_->group(), std::move(left)));
  const std::lock_guard lock(replaced_);
  LoaderOptions options = impl_->options();
  options.state = state;
  options.epoch = 0;
  auto next = std::make_unique<Impl>(impl_->group(), impl_->wanted(), options);
  next->TakeOver(*impl_);
  impl_ = nullptr;
  impl_ = std::move(next);
  Status opened = impl_->Open();
  if (!opened) impl_->cursor().Break(opened.error());
  return opened;
}

Result<bool> Loader::Next() {
  LMDBIO_TRY(const Step step, NextWithin(kNoLimit));
  return step == Step::kBatch;
}

Result<Loader::Step> Loader::NextWithin(std::chrono::milliseconds limit) {
  return NextWithin(limit, current_);
}

Result<Loader::Step> Loader::NextWithin(std::chrono::milliseconds limit, HeldBatch& batch) {
  // Returned before anything is waited for: its memory may be what another thread waits for.
  batch.Return();
  const auto give_up = std::chrono::steady_clock::now() + limit;
  std::unique_lock turn(turn_, give_up);
  if (!turn.owns_lock()) return Step::kNothing;
  while (true) {
    // Another rank may end while this one waits, or reads for itself. If it is on another host,
    // only the group knows.
    LMDBIO_TRY_VOID(impl_->group().CheckRanks());
    const auto now = std::chrono::steady_clock::now();
    const auto look_at = std::min(give_up, now + Window::kHealthCheckPeriod);
    const auto this_time = std::chrono::ceil<std::chrono::milliseconds>(look_at - now);
    Result<Step> step =
        impl_->cursor().Next(std::max(this_time, std::chrono::milliseconds(0)), batch);
    if (!step && SaysEnded(step.error())) {
      LMDBIO_TRY_VOID(impl_->group().CheckRanksWithin(ranks::kReasonLimit));
    }
    if (!step || *step != Step::kNothing || look_at == give_up) return step;
  }
}

Placement Loader::placement() const {
  const std::shared_lock lock(replaced_);
  return impl_->placement();
}
MutableBytes Loader::window() const {
  const std::shared_lock lock(replaced_);
  return impl_->window();
}
uint64_t Loader::record_count() const {
  const std::shared_lock lock(replaced_);
  return impl_->schedule().record_count();
}
uint64_t Loader::batches_per_epoch() const {
  const std::shared_lock lock(replaced_);
  return impl_->schedule().batches_per_epoch();
}
std::vector<std::string> Loader::field_names() const {
  const std::shared_lock lock(replaced_);
  return FieldNamesOf(impl_->view_spec());
}
uint64_t Loader::view_digest() const {
  const std::shared_lock lock(replaced_);
  return impl_->decision().view_digest.value_or(0);
}
LoaderCounters Loader::counters() const {
  const std::shared_lock lock(replaced_);
  return impl_->counters();
}
std::string Loader::Describe() const {
  const std::shared_lock lock(replaced_);
  return impl_->Describe();
}
std::vector<std::string> Loader::TakeNotes() {
  const std::shared_lock lock(replaced_);
  return impl_->TakeNotes();
}

}  // namespace lmdbio::load
