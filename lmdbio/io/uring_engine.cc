#include "lmdbio/io/uring_engine.h"

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/io/errno_error.h"

namespace lmdbio::io {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr int kRefusalsMax = 8;  // of the ring with nothing in flight: after 255 ms in all

bool IsTransient(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EBUSY;
}

// Kernels before 5.11 take no limit; liburing's way around it needs room in the ring.
int SubmitAndSleep(io_uring* ring, std::chrono::milliseconds limit) {
  if (limit == BlockEngine::kNoLimit || (ring->features & IORING_FEAT_EXT_ARG) == 0) {
    return io_uring_submit_and_wait(ring, 1);
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  __kernel_timespec time = {};
  time.tv_sec = seconds.count();
  time.tv_nsec = std::chrono::nanoseconds(limit - seconds).count();
  io_uring_cqe* cqe = nullptr;
  return io_uring_submit_and_wait_timeout(ring, &cqe, 1, &time, /*sigmask=*/nullptr);
}

}  // namespace

Result<std::unique_ptr<BlockEngine>> UringEngine::Open(const std::string& data_path,
                                                       const EngineOptions& options) {
  LMDBIO_TRY(UniqueRing ring, CreateRing(options.queue_depth));
  LMDBIO_TRY(std::unique_ptr<BlockFile> file, BlockFile::Open(data_path, options));
  const uint32_t depth = std::min(options.queue_depth, ring->sq.ring_entries);
  std::unique_ptr<UringEngine> engine(new UringEngine(std::move(ring), std::move(file), depth));
  engine->RegisterFiles();
  engine->RegisterMemory(options.memory);
  return engine;
}

UringEngine::UringEngine(UniqueRing ring, std::unique_ptr<BlockFile> file, uint32_t depth)
    : file_(std::move(file)), ring_(std::move(ring)), depth_(depth), reads_(depth) {
  for (uint32_t i = depth; i > 0; --i) free_reads_.push_back(i - 1);
}

UringEngine::~UringEngine() { AwaitInFlight(); }

// Registering saves the kernel some work for each read. Where it is refused - by a container, or by
// a limit on locked memory - reads work without.
void UringEngine::RegisterFiles() {
  const std::array fds = {file_->buffered_fd(), file_->direct_fd()};
  has_files_ = io_uring_register_files(ring_.get(), fds.data(), fds.size()) == 0;
}

void UringEngine::RegisterMemory(MutableBytes memory) {
  std::vector<iovec> buffers;
  for (uint64_t begin = 0; begin < memory.size(); begin += kPartBytesMax) {
    const MutableBytes rest = memory.subspan(begin);
    buffers.push_back({rest.data(), std::min<size_t>(rest.size(), kPartBytesMax)});
  }
  if (buffers.empty()) return;
  const auto count = static_cast<unsigned>(buffers.size());
  if (io_uring_register_buffers(ring_.get(), buffers.data(), count) == 0) fixed_memory_ = memory;
}

// The index of the buffer that `destination` lies in as a whole, or -1.
int UringEngine::RegisteredBuffer(MutableBytes destination) const {
  const auto begin = reinterpret_cast<uintptr_t>(destination.data());
  const auto memory = reinterpret_cast<uintptr_t>(fixed_memory_.data());
  if (begin < memory || begin - memory >= fixed_memory_.size()) return -1;
  if (destination.size() > fixed_memory_.size() - (begin - memory)) return -1;
  const uint64_t first = (begin - memory) / kPartBytesMax;
  const uint64_t last = (begin - memory + destination.size() - 1) / kPartBytesMax;
  return first == last ? static_cast<int>(first) : -1;
}

std::string UringEngine::Describe() const {
  return fmt::format("uring, {}, {} deep", file_->is_direct() ? "direct" : "buffered", depth_);
}

Status UringEngine::CheckRing() const {
  if (failure_) return Fail(failure_->Copy());
  return {};
}

Status UringEngine::Start(std::span<const BlockRead> blocks) {
  LMDBIO_TRY_VOID(CheckRing());
  file_->Announce(blocks);
  for (const BlockRead& block : blocks) Enqueue(block);
  outstanding_ += blocks.size();
  PrepareReads();
  return Submit();
}

void UringEngine::Enqueue(const BlockRead& block) {
  parts_.clear();
  Status status = file_->Split(block, parts_);
  if (!status || parts_.empty()) {
    done_.Add(block.tag, std::move(status));
    return;
  }
  if (free_blocks_.empty()) {
    free_blocks_.push_back(blocks_.size());
    blocks_.emplace_back();
  }
  const size_t place = free_blocks_.back();
  free_blocks_.pop_back();
  blocks_[place] = {block.tag, parts_.size(), {}};
  for (const BlockPart& part : parts_) waiting_.push_back({part, place});
}

// Moves waiting parts into the ring while it has room. The kernel learns of them by Submit.
void UringEngine::PrepareReads() {
  while (!waiting_.empty() && !free_reads_.empty()) {
    const uint32_t place = free_reads_.back();
    free_reads_.pop_back();
    PartRead& read = reads_[place];
    read = waiting_.front();
    waiting_.pop_front();
    BlockPart& part = read.part;
    part.is_direct = part.is_direct && file_->is_direct();  // it may have been refused since
    const int fd = part.is_direct ? file_->direct_fd() : file_->buffered_fd();
    const int file_index = part.is_direct ? 1 : 0;
    const auto length_bytes = static_cast<unsigned>(part.destination.size());
    io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
    LMDBIO_CHECK(sqe != nullptr);  // the ring has as many entries as reads_, or more
    if (const int buffer = RegisteredBuffer(part.destination); buffer >= 0) {
      io_uring_prep_read_fixed(sqe, has_files_ ? file_index : fd, part.destination.data(),
                               length_bytes, part.offset, buffer);
    } else {
      io_uring_prep_read(sqe, has_files_ ? file_index : fd, part.destination.data(), length_bytes,
                         part.offset);
    }
    if (has_files_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, place);
  }
}

// What the kernel has no resources for now stays in the ring until the next call.
Status UringEngine::Submit() {
  if (io_uring_sq_ready(ring_.get()) == 0) return {};
  const int rc = io_uring_submit(ring_.get());
  return rc < 0 && !IsTransient(-rc) ? FailRing(-rc) : Status();
}

// Submits, and sleeps until something has completed, a signal came or the limit is over.
// Requires: a read is in the ring or in flight
Status UringEngine::SubmitAndWait(std::chrono::milliseconds limit) {
  auto pause = kFirstPause;
  for (int refusals = 0; refusals < kRefusalsMax; ++refusals) {
    const int rc = SubmitAndSleep(ring_.get(), limit);
    if (rc >= 0 || rc == -EINTR || rc == -ETIME) return {};
    if (!IsTransient(-rc)) return FailRing(-rc);
    // The kernel has no resources for more. What is in flight will give some back.
    if (InFlight() > 0) {
      io_uring_cqe* cqe = nullptr;
      const int waited = io_uring_wait_cqe(ring_.get(), &cqe);
      return waited < 0 && !IsTransient(-waited) ? FailRing(-waited) : Status();
    }
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
  return FailRing(EAGAIN);
}

// The ring itself has failed: no read stays in flight, and no call starts another.
Status UringEngine::FailRing(int error_number) {
  const Error error = ErrnoError(error_number, file_->path(), "io_uring_enter");
  failure_.emplace(ErrorCode::kIo, error.message(), error_number);
  AwaitInFlight();
  return Fail(failure_->Copy());
}

void UringEngine::Reap() {
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
    const auto place = static_cast<uint32_t>(io_uring_cqe_get_data64(cqe));
    const int got = cqe->res;
    io_uring_cqe_seen(ring_.get(), cqe);
    free_reads_.push_back(place);
    FinishPart(reads_[place], got);
  }
}

void UringEngine::FinishPart(const PartRead& read, int got) {
  Block& block = blocks_[read.block];
  Status status = file_->Finish(read.part, got, counters_);
  if (!status && block.status) block.status = std::move(status);
  if (--block.parts_left > 0) return;
  done_.Add(block.tag, std::move(block.status));
  free_blocks_.push_back(read.block);
}

std::span<BlockDone> UringEngine::TakeDone() {
  const std::span<BlockDone> done = done_.Take();
  outstanding_ -= done.size();
  return done;
}

Result<std::span<BlockDone>> UringEngine::WaitSome(std::chrono::milliseconds limit) {
  LMDBIO_TRY_VOID(CheckRing());
  Reap();
  PrepareReads();
  while (done_.empty() && outstanding_ > 0) {
    LMDBIO_TRY_VOID(SubmitAndWait(limit));
    Reap();
    PrepareReads();
    if (limit != kNoLimit) break;
  }
  LMDBIO_TRY_VOID(Submit());  // the storage stays busy while the caller works on what is done
  return TakeDone();
}

Result<std::span<BlockDone>> UringEngine::Poll() {
  LMDBIO_TRY_VOID(CheckRing());
  Reap();
  PrepareReads();
  LMDBIO_TRY_VOID(Submit());
  Reap();
  return TakeDone();
}

// Reads that the kernel has taken and not completed. A prepared one is not among them.
uint32_t UringEngine::InFlight() const {
  return depth_ - static_cast<uint32_t>(free_reads_.size()) - io_uring_sq_ready(ring_.get());
}

// Where the system call fails, too, it goes without: completions come to the ring by themselves.
void UringEngine::AwaitInFlight() {
  while (InFlight() > 0) {
    io_uring_cqe* cqe = nullptr;
    const int rc = io_uring_wait_cqe(ring_.get(), &cqe);
    if (rc == 0) {
      free_reads_.push_back(static_cast<uint32_t>(io_uring_cqe_get_data64(cqe)));
      io_uring_cqe_seen(ring_.get(), cqe);
    } else if (rc != -EINTR) {
      std::this_thread::sleep_for(kFirstPause);
    }
  }
}

}  // namespace lmdbio::io
