#include "lmdbio/file/blocks/uring_engine.h"

#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

namespace lmdbio::file {
namespace {

bool IsOnFuse(int fd) {
  struct statfs found = {};
  return ::fstatfs(fd, &found) == 0 &&
         static_cast<uint64_t>(found.f_type) == uint64_t{FUSE_SUPER_MAGIC};
}

}  // namespace

using Clock = ReadQueue::Clock;

Result<std::unique_ptr<BlockEngine>> UringEngine::Open(const std::string& data_path,
                                                       const EngineOptions& options) {
  LMDBIO_TRY(std::unique_ptr<UringRing> ring, UringRing::Create(options.queue_depth));
  LMDBIO_TRY(std::unique_ptr<BlockFile> file, BlockFile::Open(data_path, options));
  const BlockFile& registered = *file;
  std::unique_ptr<UringEngine> engine(
      new UringEngine(std::move(ring), std::move(file), options.retry_pause));
  engine->RegisterFile(registered);
  engine->RegisterMemory(options.memory);
  return engine;
}

Result<std::unique_ptr<BlockEngine>> UringEngine::Open(std::unique_ptr<BlockFiles> files,
                                                       const EngineOptions& options) {
  LMDBIO_TRY(std::unique_ptr<UringRing> ring, UringRing::Create(options.queue_depth));
  std::unique_ptr<UringEngine> engine(
      new UringEngine(std::move(ring), std::move(files), options.retry_pause));
  engine->RegisterMemory(options.memory);
  return engine;
}

// Registered descriptors and buffers save the kernel a lookup and the pinning of pages for each
// read. A refusal only costs this gain: the memory lock limit is low on many systems.
void UringEngine::RegisterFile(const BlockFile& file) {
  has_files_ = ring_->RegisterFiles(std::array{file.buffered_fd(), file.direct_fd()});
}

// Registers the memory as buffers of kPartBytesMax, the largest size that the kernel accepts.
void UringEngine::RegisterMemory(MutableBytes memory) {
  std::vector<iovec> buffers;
  for (uint64_t begin = 0; begin < memory.size(); begin += kPartBytesMax) {
    const MutableBytes rest = memory.subspan(begin);
    buffers.push_back({rest.data(), std::min<size_t>(rest.size(), kPartBytesMax)});
  }
  if (!buffers.empty() && ring_->RegisterBuffers(buffers)) fixed_memory_ = memory;
}

// The index of the registered buffer that contains all of `destination`, or -1.
int UringEngine::RegisteredBuffer(MutableBytes destination) const {
  const auto begin = reinterpret_cast<uintptr_t>(destination.data());
  const auto memory = reinterpret_cast<uintptr_t>(fixed_memory_.data());
  if (begin < memory || begin - memory >= fixed_memory_.size()) return -1;
  if (destination.size() > fixed_memory_.size() - (begin - memory)) return -1;
  // A destination that crosses two buffers is read without registration.
  const uint64_t first = (begin - memory) / kPartBytesMax;
  const uint64_t last = (begin - memory + destination.size() - 1) / kPartBytesMax;
  return first == last ? static_cast<int>(first) : -1;
}

std::string UringEngine::Describe() const {
  return fmt::format("uring, {}, {} deep", CachePolicyName(files_->policy()), ring_->depth());
}

Status UringEngine::CheckRing() const {
  if (failure_) return Fail(failure_->Copy());
  return {};
}

// Keeps the first failure of the ring itself. After it every call fails and no read starts.
Status UringEngine::Checked(Status status) {
  if (status) return status;
  failure_.emplace(std::move(status).error().Within(files_->name()));
  return CheckRing();
}

Status UringEngine::Start(std::span<const BlockRead> blocks) {
  LMDBIO_TRY_VOID(CheckRing());
  files_->Announce(blocks);
  queue_.Add(blocks);
  return SubmitReads();
}

// Moves waiting parts into the ring while it has room, and passes them to the kernel.
Status UringEngine::SubmitReads() {
  while (ring_->HasRoom()) {
    if (ring_->IsBatchFull()) LMDBIO_TRY_VOID(Checked(ring_->Submit()));
    const std::optional<PendingRead> part = queue_.Next();
    if (!part) break;
    ring_->Prepare(*part, {.fd = part->fd,
                           .registered_file = !has_files_       ? -1
                                              : part->is_direct ? 1
                                                                : 0,
                           .registered_buffer = RegisteredBuffer(part->progress.rest()),
                           .passes_on = PassesOn(*part)});
  }
  return Checked(ring_->Submit());
}

// A file on FUSE can be polled, and poll calls it readable at any time. io_uring believes that: it
// tries a buffered read of pages that are not cached up to 128 times (APOLL_MAX_RETRY), before one
// of its threads waits for them. That doubles the time of the processor.
bool UringEngine::PassesOn(const PendingRead& part) {
  if (part.is_direct) return false;
  if (!is_fuse_) is_fuse_ = IsOnFuse(part.fd);  // files of a list have one file system, as a rule
  return *is_fuse_;
}

// Passes all completed reads to the queue, which decides about retries.
void UringEngine::Reap() {
  while (const std::optional<RingResult> back = ring_->Take()) queue_.Take(back->read, back->got);
}

Result<std::span<BlockDone>> UringEngine::WaitSome(std::chrono::milliseconds limit) {
  LMDBIO_TRY_VOID(CheckRing());
  std::optional<Clock::time_point> end;
  if (limit != kNoLimit) end = Clock::now() + limit;
  Reap();
  LMDBIO_TRY_VOID(SubmitReads());
  // A turn may end without a block: a retry has become due, a read was short, or a signal came.
  while (!queue_.has_done() && queue_.outstanding() > 0) {
    // Sleeps until the next retry is due or the limit passes, whichever is earlier.
    const std::optional<Clock::time_point> due = queue_.next_due();
    LMDBIO_TRY_VOID(Checked(ring_->SubmitAndWait(due && (!end || *due < *end) ? due : end)));
    Reap();
    // Before returning, so the storage stays busy while the caller uses the blocks.
    LMDBIO_TRY_VOID(SubmitReads());
    if (end && Clock::now() >= *end) break;
  }
  return queue_.TakeDone();
}

// Reaps twice: the submission itself may complete reads that are in the page cache. It submits
// again afterwards: event() would never wake a caller whose reads only wait for room in the ring.
Result<std::span<BlockDone>> UringEngine::Poll() {
  LMDBIO_TRY_VOID(CheckRing());
  Reap();
  LMDBIO_TRY_VOID(SubmitReads());
  Reap();
  LMDBIO_TRY_VOID(SubmitReads());
  return queue_.TakeDone();
}

}  // namespace lmdbio::file
