#include "lmdbio/file/blocks/pread_engine.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <system_error>

#include <fmt/format.h>

namespace lmdbio::file {
namespace {

// Blocks all signals in threads that the calling thread starts during the object's life. Signal
// handlers of the program must run in its own threads.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Result<std::unique_ptr<PreadEngine>> PreadEngine::Open(const std::string& data_path,
                                                       const EngineOptions& options) {
  LMDBIO_TRY(std::unique_ptr<BlockFile> file, BlockFile::Open(data_path, options));
  return std::unique_ptr<PreadEngine>(new PreadEngine(std::move(file), options));
}

std::unique_ptr<PreadEngine> PreadEngine::Open(std::unique_ptr<BlockFiles> files,
                                               const EngineOptions& options) {
  return std::unique_ptr<PreadEngine>(new PreadEngine(std::move(files), options));
}

PreadEngine::PreadEngine(std::unique_ptr<ReadableFiles> files, const EngineOptions& options)
    : files_(std::move(files)),
      threads_max_(std::min(options.queue_depth, kThreadsMax)),
      queue_(*files_, options.retry_pause) {}

// A thread ends after the read that it is in, because a blocking read cannot be cancelled.
PreadEngine::~PreadEngine() {
  {
    const std::scoped_lock lock(mutex_);
    queue_.Clear();
    is_ending_ = true;
  }
  work_came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string PreadEngine::Describe() const {
  return fmt::format("pread, {}, {} deep", CachePolicyName(files_->policy()), threads_max_);
}

// Fewer threads than wanted do the same work in more time, so only zero threads are an error.
Status PreadEngine::StartThreads(uint64_t wanted) {
  const NoSignals no_signals;
  try {
    while (threads_.size() < std::min<uint64_t>(wanted, threads_max_)) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) {
      return Fail(ErrorCode::kResourceExhausted,
                  fmt::format("{}: cannot start a reading thread: {}", files_->name(),
                              error.code().message()),
                  error.code().value());
    }
  }
  return {};
}

Status PreadEngine::Start(std::span<const BlockRead> blocks) {
  if (blocks.empty()) return {};
  // Threads start with the first blocks that need them. An engine that reads little has few.
  LMDBIO_TRY_VOID(StartThreads(outstanding() + blocks.size()));
  files_->Announce(blocks);
  {
    const std::scoped_lock lock(mutex_);
    queue_.Add(blocks);
    if (queue_.has_done()) SignalDone();  // an empty block, or one behind the end of the file
  }
  // Wakes no more threads than there are blocks: waking a thread in vain costs as much as a read.
  for (size_t i = 0; i < std::min(blocks.size(), threads_.size()); ++i) work_came_.notify_one();
  return {};
}

// The loop of each thread. The lock is released only during the read itself.
void PreadEngine::Work() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    const std::optional<PendingRead> part = queue_.Next();
    if (queue_.has_done()) SignalDone();  // a file that cannot be opened
    if (!part) {
      AwaitWork(lock);
      continue;
    }
    // This read may take long. If a retry waits for its due time, wake an idle thread to await it.
    if (queue_.next_due()) work_came_.notify_one();
    lock.unlock();
    const ssize_t got = CallPread(part->fd, part->progress);
    lock.lock();
    if (queue_.lacks_descriptor()) work_came_.notify_one();
    queue_.Take(*part, got);
    if (queue_.has_done()) SignalDone();
  }
}

// Requires: the lock is held
void PreadEngine::SignalDone() {
  block_done_.notify_one();
  if (!done_event_) return;
  const uint64_t one = 1;
  // The write fails only if the counter is full, and then the event is set already.
  [[maybe_unused]] const ssize_t written = ::write(done_event_.get(), &one, sizeof one);
}

// Requires: the lock is held
std::span<BlockDone> PreadEngine::TakeDone() {
  if (done_event_) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(done_event_.get(), &count, sizeof count);
  }
  return queue_.TakeDone();
}

int PreadEngine::event() {
  const std::scoped_lock lock(mutex_);
  if (!done_event_) {
    done_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (done_event_ && queue_.has_done()) SignalDone();
  }
  return done_event_.get();
}

// Sleeps until blocks arrive, a retry is due, or the engine ends.
void PreadEngine::AwaitWork(std::unique_lock<std::mutex>& lock) {
  if (const auto due = queue_.next_due()) {
    work_came_.wait_until(lock, *due);
  } else {
    work_came_.wait(lock);
  }
}

Result<std::span<BlockDone>> PreadEngine::WaitSome(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  // Without outstanding blocks none would ever come, so the wait ends.
  const auto has_come = [this] { return queue_.outstanding() == 0 || queue_.has_done(); };
  if (limit == kNoLimit) {
    block_done_.wait(lock, has_come);
  } else {
    block_done_.wait_for(lock, limit, has_come);
  }
  return TakeDone();
}

Result<std::span<BlockDone>> PreadEngine::Poll() {
  const std::scoped_lock lock(mutex_);
  return TakeDone();
}

uint64_t PreadEngine::outstanding() const {
  const std::scoped_lock lock(mutex_);
  return queue_.outstanding();
}

EngineCounters PreadEngine::counters() const {
  const std::scoped_lock lock(mutex_);
  return queue_.counters();
}

}  // namespace lmdbio::file
