#include "lmdbio/load/exchange/exchange_engine.h"

#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/net/wake_event.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::load {
namespace {

// More chunks would only cost time to look for one.
constexpr uint64_t kChunksMax = 256;

std::string NameOf(ExchangeLoop& loop) {
  return fmt::format("{}, exchange of {} readers", loop.engine().Describe(), loop.reader_count());
}

}  // namespace

Result<std::unique_ptr<ExchangeEngine>> ExchangeEngine::Open(
    std::unique_ptr<file::BlockEngine>& engine, ExchangeLinks links, const ExchangeLimits& limits,
    const CoreList& cores) {
  const uint64_t chunk_count = std::min(kChunksMax, kExchangeMemoryBytes / limits.chunk_bytes);
  LMDBIO_TRY(auto memory, ranks::AllocateAnonymous(chunk_count * limits.chunk_bytes));
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return ranks::CallFailed(ErrorCode::kResourceExhausted, "eventfd", errno);
  std::unique_ptr<ExchangeEngine> exchange(new ExchangeEngine(std::move(memory), std::move(event)));
  exchange->loop_ = std::make_unique<ExchangeLoop>(std::move(engine), std::move(links),
                                                   exchange->memory_->bytes(), limits);
  exchange->name_ = NameOf(*exchange->loop_);
  exchange->notes_ = exchange->loop_->TakeNotes();
  try {
    exchange->thread_ = std::thread([self = exchange.get(), cores] { self->Run(cores); });
  } catch (const std::system_error& failure) {
    engine = exchange->loop_->TakeEngine();
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot start the thread of the exchange: {}; raise ulimit -u",
                            failure.what()));
  }
  return exchange;
}

ExchangeEngine::~ExchangeEngine() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ranks::Signal(wake_event_);
  if (thread_.joinable()) thread_.join();
}

// --- The thread ---

void ExchangeEngine::Run(const CoreList& cores) {
  ::pthread_setname_np(::pthread_self(), "lmdbio-exchange");  // for ps, top and profilers
  static_cast<void>(PinThisThread(cores));  // Open has checked the cores; any core will do
  Status turned;
  while (turned && TakeReads()) {
    turned = loop_->Turn();
    Publish();
    if (turned) loop_->Sleep(wake_event_.get());
  }
  // Links close, and no destination is written afterwards. Only then is a failure told.
  loop_.reset();
  const std::lock_guard lock(mutex_);
  if (!turned) failure_.emplace(std::move(turned).error());
  done_came_.notify_all();
}

// Returns false at the end.
bool ExchangeEngine::TakeReads() {
  std::vector<file::BlockRead> reads;
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return false;
    // Cleared before the reads are taken, so a later Start signals again.
    ranks::Reset(wake_event_);
    reads = std::exchange(new_reads_, {});
  }
  loop_->Add(reads);
  return true;
}

void ExchangeEngine::Publish() {
  std::vector<file::BlockDone> done = loop_->TakeDone();
  std::vector<std::string> notes = loop_->TakeNotes();
  const file::EngineCounters counters = loop_->engine().counters();
  const std::lock_guard lock(mutex_);
  counters_ = counters;
  // A direct engine becomes a buffered one after a direct read was refused.
  if (!notes.empty()) name_ = NameOf(*loop_);
  std::move(notes.begin(), notes.end(), std::back_inserter(notes_));
  if (done.empty()) return;
  std::move(done.begin(), done.end(), std::back_inserter(done_));
  done_came_.notify_one();
}

// --- The reading thread ---

Status ExchangeEngine::Start(std::span<const file::BlockRead> blocks) {
  if (blocks.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (failure_) return Fail(failure_->Copy());
  if (new_reads_.empty()) ranks::Signal(wake_event_);
  new_reads_.insert(new_reads_.end(), blocks.begin(), blocks.end());
  outstanding_ += blocks.size();
  return {};
}

Result<std::span<file::BlockDone>> ExchangeEngine::WaitSome(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto has_come = [this] { return !done_.empty() || outstanding_ == 0 || failure_; };
  if (limit == kNoLimit) {
    done_came_.wait(lock, has_come);
  } else {
    done_came_.wait_for(lock, limit, has_come);
  }
  return TakeDone();
}

Result<std::span<file::BlockDone>> ExchangeEngine::Poll() {
  const std::lock_guard lock(mutex_);
  return TakeDone();
}

// Requires: the lock is held
Result<std::span<file::BlockDone>> ExchangeEngine::TakeDone() {
  if (failure_) return Fail(failure_->Copy());
  returned_ = std::exchange(done_, {});
  outstanding_ -= returned_.size();
  return std::span(returned_);
}

uint64_t ExchangeEngine::outstanding() const {
  const std::lock_guard lock(mutex_);
  return outstanding_;
}

file::EngineCounters ExchangeEngine::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::vector<std::string> ExchangeEngine::TakeNotes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

std::string ExchangeEngine::Describe() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

}  // namespace lmdbio::load
