// Q7: which kinds of host memory the driver registers, and at what rate.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/probe_trials.h"
#include "lmdbio/base/errno_error.h"

namespace lmdbio::probe {
namespace {

using device::DeviceMemory;
using device::DeviceStream;
using device::PinnedBytes;

constexpr uint64_t kPinBytes = 256 << 20;
constexpr int kPinSamplesMax = 5;  // of 256 MiB each

constexpr const char* kOrdinaryNew = "ordinary memory, untouched";
constexpr const char* kOrdinary = "ordinary memory, touched";
constexpr const char* kFileNew = "lmdbio's memory file (memfd), untouched";
constexpr const char* kFile = "lmdbio's memory file (memfd), touched";
constexpr const char* kShared = "lmdbio's memory file (memfd), mapped twice";
constexpr const char* kUnpin = "ordinary memory, registration undone";
constexpr const char* kReadOnly = "a map of a file that may only be read";

// A map that is undone.
class HostMap {
 public:
  static Result<HostMap> Make(uint64_t size_bytes, int protection, int flags, int file) {
    void* const mapped = ::mmap(nullptr, size_bytes, protection, flags, file, 0);
    if (mapped == MAP_FAILED) return Fail(ErrnoError(errno, "host memory", "mmap"));
    return HostMap({static_cast<std::byte*>(mapped), size_bytes});
  }
  static Result<HostMap> Anonymous(uint64_t size_bytes) {
    return Make(size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  }
  HostMap(HostMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  HostMap& operator=(HostMap&&) = delete;
  ~HostMap() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  MutableBytes bytes() const { return bytes_; }

 private:
  explicit HostMap(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes_;
};

struct PinTimes {
  std::vector<double> pin;    // GB/s
  std::vector<double> unpin;  // GB/s
};

double RateOf(MutableBytes memory, double seconds) {
  return static_cast<double>(memory.size()) / 1e9 / std::max(seconds, 1e-9);
}

// The first and the last byte, as the device sees them.
Status CheckEnds(const ProbePart& part, const PinnedBytes& pinned) {
  const MutableBytes memory = pinned.bytes();
  LMDBIO_TRY(const DeviceMemory copy, part.device().Allocate(2));
  LMDBIO_TRY(const PinnedRoom back, PinnedRoom::Make(part, 2));
  LMDBIO_TRY(DeviceStream stream, part.device().MakeStream());
  LMDBIO_TRY_VOID(stream.CopyIn(copy.begin(), pinned, 0, 1));
  LMDBIO_TRY_VOID(stream.CopyIn(copy.begin() + 1, pinned, memory.size() - 1, 1));
  LMDBIO_TRY_VOID(stream.CopyOut(back.get(), 0, copy.begin(), 2));
  LMDBIO_TRY_VOID(part.AwaitDrained(stream));
  if (back.data()[0] == memory.front() && back.data()[1] == memory.back()) return {};
  return Fail(ErrorCode::kInternal, "the device sees other bytes than the host");
}

// One registration, which is undone.
Status PinOnce(const ProbePart& part, MutableBytes memory, PinTimes& times) {
  double begin = SecondsNow();
  LMDBIO_TRY(PinnedBytes made, part.device().Pin(memory));
  times.pin.push_back(RateOf(memory, SecondsNow() - begin));
  std::optional<PinnedBytes> pinned(std::move(made));
  LMDBIO_TRY_VOID(CheckEnds(part, *pinned));
  begin = SecondsNow();
  pinned.reset();
  times.unpin.push_back(RateOf(memory, SecondsNow() - begin));
  return {};
}

int PinSamples(const ProbePart& part) {
  return std::min(part.options().sample_count, kPinSamplesMax);
}

// New memory for each registration.
// make  gives an object with bytes()
template <typename Make>
Result<PinTimes> PinNew(const ProbePart& part, Make make) {
  PinTimes times;
  for (int i = 0; i < PinSamples(part); ++i) {
    LMDBIO_TRY(const auto memory, make());
    LMDBIO_TRY_VOID(PinOnce(part, memory->bytes(), times));
  }
  return times;
}

Result<PinTimes> PinTouched(const ProbePart& part, MutableBytes memory) {
  std::memset(memory.data(), 0x5E, memory.size());
  PinTimes times;
  for (int i = 0; i < PinSamples(part); ++i) LMDBIO_TRY_VOID(PinOnce(part, memory, times));
  return times;
}

void SayPin(const ProbePart& part, const char* row, Result<PinTimes> times) {
  if (!times) return part.SayError(row, times.error());
  part.SayFigure(row, "GB/s", std::move(times->pin));
}

Result<std::unique_ptr<ranks::SharedMapping>> NewFile(uint64_t size_bytes) {
  LMDBIO_TRY(const UniqueFd file, ranks::CreateMemoryFile(size_bytes));
  return ranks::SharedMapping::Map(file, size_bytes);
}

Status PlayOrdinary(const ProbePart& part) {
  const uint64_t size_bytes = part.AtMost(kPinBytes);
  SayPin(part, kOrdinaryNew, PinNew(part, [&]() -> Result<std::unique_ptr<HostMap>> {
           LMDBIO_TRY(HostMap made, HostMap::Anonymous(size_bytes));
           return std::make_unique<HostMap>(std::move(made));
         }));
  LMDBIO_TRY(const HostMap ordinary, HostMap::Anonymous(size_bytes));
  Result<PinTimes> times = PinTouched(part, ordinary.bytes());
  if (times) part.SayFigure(kUnpin, "GB/s", std::move(times->unpin));
  if (!times) part.SayError(kUnpin, times.error());
  SayPin(part, kOrdinary, std::move(times));
  return {};
}

Status PlayFiles(const ProbePart& part) {
  const uint64_t size_bytes = part.AtMost(kPinBytes);
  SayPin(part, kFileNew, PinNew(part, [&] { return NewFile(size_bytes); }));
  LMDBIO_TRY(const UniqueFd file, ranks::CreateMemoryFile(size_bytes));
  LMDBIO_TRY(const auto first, ranks::SharedMapping::Map(file, size_bytes));
  SayPin(part, kFile, PinTouched(part, first->bytes()));
  // As two ranks do that share memory; here both maps are of one process.
  LMDBIO_TRY(const auto second, ranks::SharedMapping::Map(file, size_bytes));
  const Result<PinnedBytes> kept = part.device().Pin(first->bytes());
  SayPin(part, kShared,
         kept ? PinTouched(part, second->bytes()) : Result<PinTimes>(Fail(kept.error().Copy())));
  return {};
}

Status PlayReadOnly(const ProbePart& part) {
  const UniqueFd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!program) return Fail(ErrnoError(errno, "/proc/self/exe", "open"));
  LMDBIO_TRY(const HostMap map, HostMap::Make(4096, PROT_READ, MAP_SHARED, program.get()));
  PinTimes times;
  const Status status = PinOnce(part, map.bytes(), times);
  if (status) {
    part.SayYes(kReadOnly);
  } else if (status.error().code() == ErrorCode::kInvalidArgument) {
    // Drivers call it an invalid argument, which is an answer here.
    part.SayError(kReadOnly, Error(ErrorCode::kUnsupported, status.error().message()));
  } else {
    part.SayError(kReadOnly, status.error());
  }
  return {};
}

Status PlayPinning(const ProbePart& part) {
  LMDBIO_TRY_VOID(PlayOrdinary(part));
  LMDBIO_TRY_VOID(PlayFiles(part));
  return PlayReadOnly(part);
}

}  // namespace

Result<std::vector<double>> PinningRates(const ProbePart& part, MutableBytes memory) {
  LMDBIO_TRY(PinTimes times, PinTouched(part, memory));
  return std::move(times.pin);
}

void AddPinning(std::vector<Trial>& trials) {
  trials.push_back({.question = "Q7",
                    .rows = {kOrdinaryNew, kOrdinary, kUnpin, kFileNew, kFile, kShared, kReadOnly},
                    .seconds_max = 40,
                    .play = &PlayPinning});
}

}  // namespace lmdbio::probe
