// Q2: marks, 64-bit words in shared memory that is registered with the driver.

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceMark;
using device::DeviceStream;
using device::PinnedBytes;

constexpr const char* kRegisters = "shared memory is registered";
constexpr const char* kByHost = "a stream waits for the host to raise a mark, round trip";
constexpr const char* kToHost = "a stream raises a mark, until the host sees it";
constexpr const char* kByOther = "a stream waits for a stream of another process to raise a mark";
constexpr const char* kMany = "a stream waits for 255 marks in one call";
constexpr const char* kPoison = "poison ends a wait";

constexpr double kEarlySeconds = 0.05;
constexpr uint64_t kManyOffset = 4096;
constexpr size_t kManyMarks = 255;

// Role 0 waits; role 1 raises one mark by its stream.
class Waiter {
 public:
  Waiter(const ProbePart& part, const PinnedBytes& marks, DeviceStream& stream)
      : part_(part), marks_(marks), stream_(stream) {}

  Status Play() {
    Say(kByHost, "us", ByHost());
    Say(kToHost, "us", ToHost());
    Say(kMany, "", Many());
    if (const auto status = ByOther(); !status) part_.SayError(kByOther, status.error());
    Say(kPoison, "", Poison());  // last, because it stays
    return {};
  }

 private:
  void Say(const char* row, const char* unit, Result<std::vector<double>> samples) {
    if (samples && samples->empty()) return part_.SayYes(row);
    part_.SayResult(row, unit, std::move(samples));
  }

  Result<DeviceMark> Mark(uint64_t offset) const { return DeviceMark::In(marks_, offset); }

  // Errors: kInternal  the stream is done although nothing has raised the mark
  Status CheckWaits() {
    LMDBIO_TRY(const auto early, part_.Drain(stream_, kEarlySeconds));
    return early ? Fail(ErrorCode::kInternal, "the stream did not wait") : Status();
  }

  Result<std::vector<double>> ByHost() {
    LMDBIO_TRY(const DeviceMark mark, Mark(MarkOffset(0)));
    std::vector<double> micros;
    for (uint64_t value = 1; value <= Samples(); ++value) {
      LMDBIO_TRY_VOID(stream_.AwaitAll(std::array{device::MarkWait{mark, value}}));
      if (value == 1) LMDBIO_TRY_VOID(CheckWaits());
      const double begin = SecondsNow();
      mark.Raise(value);
      LMDBIO_TRY_VOID(part_.AwaitDrained(stream_));
      micros.push_back((SecondsNow() - begin) * 1e6);
    }
    return micros;
  }

  Result<std::vector<double>> ToHost() {
    LMDBIO_TRY(const DeviceMark mark, Mark(128));
    std::vector<double> micros;
    for (uint64_t value = 1; value <= Samples(); ++value) {
      const double begin = SecondsNow();
      LMDBIO_TRY_VOID(stream_.Raise(mark, value));
      while (!mark.HasReached(value)) {
        // A look at the stream reports an error, if there is one.
        LMDBIO_TRY_VOID(stream_.IsDone());
        if (SecondsNow() - begin > 5) return Fail(ErrorCode::kInternal, "the host sees no change");
      }
      micros.push_back((SecondsNow() - begin) * 1e6);
      LMDBIO_TRY_VOID(part_.AwaitDrained(stream_));
    }
    return micros;
  }

  Result<std::vector<double>> Many() {
    std::vector<device::MarkWait> waits;
    for (size_t i = 0; i < kManyMarks; ++i) {
      LMDBIO_TRY(const DeviceMark mark, Mark(kManyOffset + 64 * i));
      waits.push_back({mark, 1});
    }
    LMDBIO_TRY_VOID(stream_.AwaitAll(waits));
    for (size_t i = 0; i + 1 < kManyMarks; ++i) waits[i].mark.Raise(1);
    LMDBIO_TRY_VOID(CheckWaits());
    waits.back().mark.Raise(1);
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream_));
    return std::vector<double>();
  }

  // The other process says the row, if this one has nothing against it.
  Status ByOther() {
    LMDBIO_TRY(const DeviceMark mark, Mark(MarkOffset(1)));
    LMDBIO_TRY_VOID(stream_.AwaitAll(std::array{device::MarkWait{mark, 1}}));
    LMDBIO_TRY_VOID(CheckWaits());
    part_.Reach(1);
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream_));
    part_.Reach(2);
    return {};
  }

  Result<std::vector<double>> Poison() {
    LMDBIO_TRY(const DeviceMark mark, Mark(256));
    LMDBIO_TRY_VOID(stream_.AwaitAll(std::array{device::MarkWait{mark, 1}}));
    LMDBIO_TRY_VOID(CheckWaits());
    mark.Poison();
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream_));
    return std::vector<double>();
  }

  uint64_t Samples() const { return static_cast<uint64_t>(part_.options().sample_count); }

  const ProbePart& part_;
  const PinnedBytes& marks_;
  DeviceStream& stream_;
};

Status PlayMarks(const ProbePart& part) {
  Result<PinnedBytes> marks = part.PinMarks();
  if (part.role() == 0 && marks) part.SayYes(kRegisters);
  if (!marks) return Fail(std::move(marks).error());
  LMDBIO_TRY(DeviceStream stream, part.device().MakeStream());
  if (part.role() == 0) {
    Status status = Waiter(part, *marks, stream).Play();
    // A stream that still waits would block its own destructor.
    const Result<bool> is_done = stream.IsDone();
    if (!is_done || !*is_done) ProbePart::Leave();
    return status;
  }
  LMDBIO_TRY_VOID(part.AwaitStep(1));
  LMDBIO_TRY(const DeviceMark mark, DeviceMark::In(*marks, MarkOffset(1)));
  const Status raised = stream.Raise(mark, 1);
  if (!raised) {
    part.SayError(kByOther, raised.error());
    mark.Raise(1);  // the other process goes on
  }
  LMDBIO_TRY_VOID(part.AwaitDrained(stream));
  LMDBIO_TRY_VOID(part.AwaitStep(2));
  if (raised) part.SayYes(kByOther);
  part.AwaitEndOfOther();
  return {};
}

}  // namespace

void AddMarks(std::vector<Trial>& trials) {
  trials.push_back({.question = "Q2",
                    .rows = {kRegisters, kByHost, kToHost, kMany, kByOther, kPoison},
                    .process_count = 2,
                    .seconds_max = 40,
                    .play = &PlayMarks});
}

}  // namespace lmdbio::probe
