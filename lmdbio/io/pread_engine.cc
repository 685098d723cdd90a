#include "lmdbio/io/pread_engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <fmt/format.h>

#include "lmdbio/io/errno_error.h"

namespace lmdbio::io {
namespace {

void Add(const EngineCounters& more, EngineCounters& counters) {
  counters.request_count += more.request_count;
  counters.bytes += more.bytes;
  counters.direct_bytes += more.direct_bytes;
  counters.retry_count += more.retry_count;
}

// While it lives, threads that this one starts take no signals: handlers belong to the program.
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
  return std::unique_ptr<PreadEngine>(
      new PreadEngine(std::move(file), std::min(options.queue_depth, kThreadsMax)));
}

PreadEngine::~PreadEngine() {
  {
    const std::scoped_lock lock(mutex_);
    waiting_.clear();
    is_ending_ = true;
  }
  work_came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string PreadEngine::Describe() const {
  return fmt::format("pread, {}, {} deep", file_->is_direct() ? "direct" : "buffered",
                     threads_max_);
}

// Fewer threads than wanted do the same work, later; none at all is an error.
Status PreadEngine::StartThreads(uint64_t wanted) {
  const NoSignals no_signals;
  try {
    while (threads_.size() < std::min<uint64_t>(wanted, threads_max_)) {
      threads_.emplace_back([this] { Work(); });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) {
      return Fail(
          ErrorCode::kResourceExhausted,
          fmt::format("{}: no thread to read with: {}", file_->path(), error.code().message()),
          error.code().value());
    }
  }
  return {};
}

Status PreadEngine::Start(std::span<const BlockRead> blocks) {
  if (blocks.empty()) return {};
  LMDBIO_TRY_VOID(StartThreads(outstanding_ + blocks.size()));
  outstanding_ += blocks.size();
  file_->Announce(blocks);
  {
    const std::scoped_lock lock(mutex_);
    waiting_.insert(waiting_.end(), blocks.begin(), blocks.end());
  }
  // No more threads than there are blocks: those that wake for nothing cost as much as a read.
  for (size_t i = 0; i < std::min(blocks.size(), threads_.size()); ++i) work_came_.notify_one();
  return {};
}

void PreadEngine::Work() {
  std::vector<BlockPart> parts;
  std::unique_lock lock(mutex_);
  while (true) {
    work_came_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    const BlockRead block = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    EngineCounters counters;
    Status status = Read(block, parts, counters);
    lock.lock();
    Add(counters, counters_);
    done_.Add(block.tag, std::move(status));
    block_done_.notify_one();
  }
}

Status PreadEngine::Read(const BlockRead& block, std::vector<BlockPart>& parts,
                         EngineCounters& counters) {
  parts.clear();
  LMDBIO_TRY_VOID(file_->Split(block, parts));
  for (const BlockPart& part : parts) {
    const int fd = part.is_direct ? file_->direct_fd() : file_->buffered_fd();
    const ssize_t got = ::pread(fd, part.destination.data(), part.destination.size(),
                                static_cast<off_t>(part.offset));
    LMDBIO_TRY_VOID(file_->Finish(part, got < 0 ? -errno : got, counters));
  }
  return {};
}

std::span<BlockDone> PreadEngine::TakeDone() {
  const std::span<BlockDone> done = done_.Take();
  outstanding_ -= done.size();
  return done;
}

Result<std::span<BlockDone>> PreadEngine::WaitSome(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto has_come = [this] { return outstanding_ == 0 || !done_.empty(); };
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

EngineCounters PreadEngine::counters() const {
  const std::scoped_lock lock(mutex_);
  return counters_;
}

}  // namespace lmdbio::io
