#include "tests/campaign/kills/kills_rank.h"

#include <csignal>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {
namespace {

// The kernel sends `signal` to this process after `delay`.
void ArmSignal(int signal, std::chrono::microseconds delay) {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = signal;
  timer_t timer = nullptr;
  itimerspec when = {};
  when.it_value.tv_sec = delay.count() / 1'000'000;
  when.it_value.tv_nsec = delay.count() % 1'000'000 * 1000 + 1;  // 0 would disarm it
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
      ::timer_settime(timer, 0, &when, nullptr) != 0) {
    throw std::runtime_error("no timer");
  }
}

class KillRank {
 public:
  KillRank(const KillJob& job, const KillRun& run, const ranks::Launch& launch, KillLog& log)
      : job_(job), run_(run), launch_(launch), log_(log) {}

  Status Work(const std::string& state) {
    Begin(KillPhase::kMeet);
    LMDBIO_TRY(group_, ranks::LaunchedGroup(launch_));
    if (job_.has_loader) LMDBIO_TRY_VOID(OpenLoader(state));
    if (job_.has_sync) LMDBIO_TRY_VOID(CreateSync());
    LMDBIO_TRY_VOID(job_.has_loader ? Train() : SumAll());
    if (job_.has_sync) {
      Begin(KillPhase::kShutdown);
      LMDBIO_TRY_VOID(sync_->Shutdown());
    }
    Begin(KillPhase::kClose);
    return group_->Barrier();
  }

  void Close() {
    log_.Enter(KillPhase::kClose);
    loader_.reset();
    sync_.reset();
    group_.reset();
  }

 private:
  void Begin(KillPhase phase) {
    log_.Enter(phase);
    const bool is_mine = run_.signal != KillSignal::kNone && launch_.rank == run_.victim;
    if (!is_mine || phase != run_.phase || ++begun_count_ != run_.nth) return;
    log_.ExpectSignal(MonotonicNs() + run_.delay / std::chrono::nanoseconds(1));
    ArmSignal(run_.signal == KillSignal::kKill ? SIGKILL : SIGSTOP, run_.delay);
  }

  Status OpenLoader(const std::string& state) {
    Begin(KillPhase::kOpen);
    load::LoaderOptions options = run_.options;
    options.state = state;
    LMDBIO_TRY(loader_, load::Loader::Open(*group_, job_.database->data_file.string(), options));
    return {};
  }

  Status CreateSync() {
    Begin(KillPhase::kCreate);
    LMDBIO_TRY(sync_, sync::Synchronizer::Create(*group_, run_.sync, {}));
    return {};
  }

  // Batches until the epochs end.
  Status Train() {
    for (bool is_last = false; !is_last;) {
      Begin(batch_count_ == 0 ? KillPhase::kFirst : KillPhase::kSteady);
      LMDBIO_TRY(const bool found, loader_->Next());
      if (!found) return Fail(ErrorCode::kInternal, "the stream ends early");
      LMDBIO_TRY(is_last, Consume());
      if (job_.has_sync) LMDBIO_TRY_VOID(Sum(batch_count_));
      std::this_thread::sleep_for(job_.pace);
      if (is_last || batch_count_ % job_.save_every == 0) Save(is_last);
      if (!is_last) LMDBIO_TRY_VOID(GoOn());
    }
    return {};
  }

  // Returns whether it was the last batch.
  Result<bool> Consume() {
    const load::Batch& batch = loader_->batch();
    std::vector<LoggedRecord> records;
    for (size_t i = 0; i < batch.record_count(); ++i) {
      records.push_back(
          {batch.position(i), RecordDigest(AsText(batch.key(i)), AsText(batch.value(i)))});
    }
    log_.AddBatch(records);
    ++batch_count_;
    ends_epoch_ = batch.ends_epoch();
    next_epoch_ = batch.epoch() + 1;
    const uint64_t end = batch.first_position() + batch.global_record_count();
    return (ends_epoch_ && next_epoch_ >= job_.epoch_count) ||
           end >= job_.epoch_count * job_.database->digests.size();
  }

  void Save(bool is_last) {
    Begin(KillPhase::kSave);
    const std::string state = loader_->Save();
    log_.AddState({state, is_last});
    if (batch_count_ == job_.restore_to && !has_restored_) restored_ = state;
  }

  // The steps between two batches.
  Status GoOn() {
    if (ends_epoch_) {
      Begin(KillPhase::kEpochEnd);
      if (job_.sets_epoch) LMDBIO_TRY_VOID(loader_->SetEpoch(next_epoch_));
    }
    if (job_.restore_at == 0 || batch_count_ != job_.restore_at || restored_.empty()) return {};
    Begin(KillPhase::kRestore);
    LMDBIO_TRY_VOID(loader_->Restore(std::exchange(restored_, "")));
    log_.GoBack(job_.restore_to);
    batch_count_ = job_.restore_to;
    has_restored_ = true;
    return {};
  }

  Status SumAll() {
    for (uint64_t i = 0; i < job_.sum_count; ++i) {
      LMDBIO_TRY_VOID(Sum(i));
      std::this_thread::sleep_for(job_.pace);
    }
    return {};
  }

  // Small whole numbers, so that sums are exact.
  Status Sum(uint64_t number) {
    Begin(KillPhase::kSubmit);
    const auto step = static_cast<float>(number % 100);
    const auto size = static_cast<float>(launch_.size);
    std::vector<float> values(job_.floats, static_cast<float>(launch_.rank) + step);
    LMDBIO_TRY(sync::Handle handle,
               sync_->Submit(sync::AllReduceOf(fmt::format("w{}", number % 4), values.data(),
                                               values.data(), static_cast<int64_t>(job_.floats))));
    LMDBIO_TRY_VOID(handle.Wait());
    const float wanted = size * (size - 1) / 2 + size * step;
    for (const float value : values) {
      if (value != wanted) return Fail(ErrorCode::kInternal, "a wrong sum");
    }
    return {};
  }

  const KillJob& job_;
  const KillRun& run_;
  const ranks::Launch& launch_;
  KillLog& log_;
  std::unique_ptr<ranks::Group> group_;
  std::unique_ptr<sync::Synchronizer> sync_;
  std::unique_ptr<load::Loader> loader_;
  uint64_t begun_count_ = 0;  // of the phase in which the signal comes
  uint64_t batch_count_ = 0;  // of this run, less what was taken back
  bool ends_epoch_ = false;   // the last batch
  uint64_t next_epoch_ = 0;
  std::string restored_;  // the state to go back to
  bool has_restored_ = false;
};

}  // namespace

void PlayKillRank(const KillJob& job, const KillRun& run, const std::string& state,
                  const ranks::Launch& launch, KillLog& log) {
  KillRank rank(job, run, launch, log);
  const Status done = rank.Work(state);
  if (done) {
    log.Finish();
  } else {
    log.Fail(done.error());
  }
  rank.Close();
  log.Leave();
}

}  // namespace lmdbio::test
