#include "lmdbio/file/io/uring_ring.h"

#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongSubmission = std::chrono::microseconds(200);
constexpr int kRefusalsMax = 8;            // with nothing in flight: 255 ms in total
constexpr size_t kReadBytesMax = 1 << 30;  // the kernel reads at most 2 GiB less a page at once

// Whether the same call may succeed later, when the kernel has resources again.
bool IsTransient(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EBUSY;
}

// The number of times that this thread has slept.
long SleepCount() {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

Error Refused(int error_number) {
  return Error(ErrorCode::kUnsupported, fmt::format("io_uring is refused ({})",
                                                    std::generic_category().message(error_number)));
}

}  // namespace

void UringRing::RingDeleter::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

// The faster flags that tie a ring to its creating thread are not used, because one thread opens an
// engine and another uses it. IORING_SETUP_CLAMP and the read requests below both came with kernel
// 5.6. So an older kernel refuses the ring as a whole, not each read.
Result<std::unique_ptr<UringRing>> UringRing::Create(uint32_t depth) {
  auto memory = std::make_unique<io_uring>();
  const int rc = io_uring_queue_init(depth, memory.get(), IORING_SETUP_CLAMP);
  if (rc < 0) return Fail(Refused(-rc));
  UniqueRing ring(memory.release());
  LMDBIO_TRY_VOID(Try(ring.get()));
  const uint32_t entries = ring->sq.ring_entries;
  return std::unique_ptr<UringRing>(new UringRing(std::move(ring), std::min(depth, entries)));
}

int UringRing::fd() const { return ring_->ring_fd; }

// Submits one empty request, because some sandboxes allow a ring to be created but not to be used.
Status UringRing::Try(io_uring* ring) {
  io_uring_prep_nop(io_uring_get_sqe(ring));
  int rc = 0;
  do {
    rc = io_uring_submit_and_wait(ring, 1);
  } while (rc == -EINTR);
  io_uring_cqe* cqe = nullptr;
  if (rc >= 0) rc = io_uring_peek_cqe(ring, &cqe);
  if (rc < 0) return Fail(Refused(-rc));
  io_uring_cqe_seen(ring, cqe);
  return {};
}

UringRing::UringRing(UniqueRing ring, uint32_t depth) : ring_(std::move(ring)), places_(depth) {
  for (uint32_t i = depth; i > 0; --i) free_places_.push_back(i - 1);
}

// The kernel may still write to the caller's memory, so the ring ends after its reads.
UringRing::~UringRing() { AwaitInFlight(); }

bool UringRing::RegisterFiles(std::span<const int> fds) {
  return io_uring_register_files(ring_.get(), fds.data(), static_cast<unsigned>(fds.size())) == 0;
}

bool UringRing::RegisterBuffers(std::span<const iovec> buffers) {
  const auto count = static_cast<unsigned>(buffers.size());
  return io_uring_register_buffers(ring_.get(), buffers.data(), count) == 0;
}

void UringRing::Prepare(const PendingRead& read, const RingFile& file) {
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  LMDBIO_CHECK(HasRoom() && sqe != nullptr);  // the ring has at least places_.size() entries
  // The place is the user data of the request, so a completion leads back to its read.
  const uint32_t place = free_places_.back();
  free_places_.pop_back();
  places_[place] = {read, file.fd};
  const MutableBytes rest = read.progress.rest();
  const auto length_bytes = static_cast<unsigned>(std::min(rest.size(), kReadBytesMax));
  const bool is_registered = file.registered_file >= 0;
  const int fd = is_registered ? file.registered_file : file.fd;
  if (file.registered_buffer >= 0) {
    io_uring_prep_read_fixed(sqe, fd, rest.data(), length_bytes, read.progress.offset(),
                             file.registered_buffer);
  } else {
    io_uring_prep_read(sqe, fd, rest.data(), length_bytes, read.progress.offset());
  }
  io_uring_sqe_set_flags(sqe, (is_registered ? IOSQE_FIXED_FILE : 0U) |
                                  (submits_async_ || file.passes_on ? IOSQE_ASYNC : 0U));
  ++prepared_count_;
  io_uring_sqe_set_data64(sqe, place);
}

Status UringRing::Submit() {
  // A transient refusal leaves the requests in the ring, and the next call submits them again.
  prepared_count_ = 0;
  if (io_uring_sq_ready(ring_.get()) == 0) return {};
  const long slept = submits_async_ ? 0 : SleepCount();
  const auto began = ReadQueue::Clock::now();
  const int rc = io_uring_submit(ring_.get());
  // A sleep alone may be an accident, as a wait for a lock.
  if (!submits_async_ && ReadQueue::Clock::now() - began >= kLongSubmission) {
    submits_async_ = SleepCount() != slept;
  }
  return rc < 0 && !IsTransient(-rc) ? FailRing(-rc) : Status();
}

// Kernels before 5.11 take no time limit. The workaround of liburing needs an entry of the ring, so
// this waits without a limit there.
int UringRing::SubmitAndSleep(std::optional<TimePoint> until) {
  if (!until || (ring_->features & IORING_FEAT_EXT_ARG) == 0) {
    return io_uring_submit_and_wait(ring_.get(), 1);
  }
  const nanoseconds limit = std::max(nanoseconds(0), nanoseconds(*until - ReadQueue::Clock::now()));
  __kernel_timespec time = {};
  time.tv_sec = std::chrono::duration_cast<seconds>(limit).count();
  time.tv_nsec = (limit - seconds(time.tv_sec)).count();
  io_uring_cqe* cqe = nullptr;
  return io_uring_submit_and_wait_timeout(ring_.get(), &cqe, 1, &time, /*sigmask=*/nullptr);
}

Status UringRing::SubmitAndWait(std::optional<TimePoint> until) {
  // Nothing is in flight, so only the retry time can end the sleep. The kernel would wait for a
  // completion.
  if (free_places_.size() == places_.size()) {
    LMDBIO_CHECK(until.has_value());  // without a read or a limit the sleep would never end
    std::this_thread::sleep_until(*until);
    return {};
  }
  auto pause = kFirstPause;
  for (int refusals = 0; refusals < kRefusalsMax; ++refusals) {
    const int rc = SubmitAndSleep(until);
    if (rc >= 0 || rc == -EINTR || rc == -ETIME) return {};
    if (!IsTransient(-rc)) return FailRing(-rc);
    // The kernel lacks resources. A completed read returns some, so wait for one.
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

// The reads in flight still write to the caller's memory, so they end before the error is returned.
Status UringRing::FailRing(int error_number) {
  AwaitInFlight();
  const Error error = ErrnoError(error_number, "", "io_uring_enter");
  return Fail(ErrorCode::kIo, error.message(), error_number);
}

std::optional<RingResult> UringRing::Take() {
  io_uring_cqe* cqe = nullptr;
  if (io_uring_peek_cqe(ring_.get(), &cqe) != 0) return std::nullopt;
  const auto place = static_cast<uint32_t>(io_uring_cqe_get_data64(cqe));
  ssize_t got = cqe->res;
  io_uring_cqe_seen(ring_.get(), cqe);
  free_places_.push_back(place);
  const auto& [read, fd] = places_[place];
  // A final error may come from the ring and not from the storage; pread decides.
  if (got < 0 && !MayPass(static_cast<int>(-got))) got = CallPread(fd, read.progress);
  return RingResult{read, got};
}

// The number of reads that the kernel has taken and not completed. Prepared reads do not count.
uint32_t UringRing::InFlight() const {
  return static_cast<uint32_t>(places_.size() - free_places_.size()) -
         io_uring_sq_ready(ring_.get());
}

// Waits until the kernel has completed all reads that it has taken. If the system call fails, this
// polls: completions appear in the ring without a call.
void UringRing::AwaitInFlight() {
  while (InFlight() > 0) {
    io_uring_cqe* cqe = nullptr;
    const int rc = io_uring_wait_cqe(ring_.get(), &cqe);
    if (rc == 0) {
      free_places_.push_back(static_cast<uint32_t>(io_uring_cqe_get_data64(cqe)));
      io_uring_cqe_seen(ring_.get(), cqe);
    } else if (rc != -EINTR) {
      std::this_thread::sleep_for(kFirstPause);
    }
  }
}

}  // namespace lmdbio::file
