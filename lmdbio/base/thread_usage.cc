#include "lmdbio/base/thread_times.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio {
namespace {

// Reads the second number of "cpu run_delay timeslices". Returns false if the kernel does not
// provide the file.
bool ReadRunDelay(const std::string& path, uint64_t& run_delay_ns) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::array<char, 128> buffer;
  const ssize_t size = ::read(file.get(), buffer.data(), buffer.size());
  if (size <= 0) return false;
  const std::string_view text(buffer.data(), static_cast<size_t>(size));
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return false;
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data() + blank + 1, text.data() + text.size(), value);
  if (error != std::errc()) return false;
  run_delay_ns = value;
  return true;
}

}  // namespace

// The number of the thread and its clock are taken by the thread itself. Read then works from any
// thread of the process.
ThreadWatch::ThreadWatch()
    : thread_id_(static_cast<pid_t>(::syscall(SYS_gettid))),
      schedule_path_(fmt::format("/proc/self/task/{}/schedstat", thread_id_)) {
  ::pthread_getcpuclockid(::pthread_self(), &clock_);
}

Result<ThreadUsage> ThreadWatch::Read() const {
  timespec time = {};
  // The clock of an ended thread is invalid, and so is that of a parent after fork.
  if (::clock_gettime(clock_, &time) != 0) {
    return Fail(ErrorCode::kNotFound, fmt::format("thread {} has ended", thread_id_));
  }
  ThreadUsage usage;
  usage.cpu_ns =
      static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  usage.has_run_delay = ReadRunDelay(schedule_path_, usage.run_delay_ns);
  return usage;
}

}  // namespace lmdbio
