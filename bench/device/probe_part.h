// bench/device/probe_part.h - what a trial of the device probe sees in one of its processes.
#ifndef LMDBIO_BENCH_DEVICE_PROBE_PART_H_
#define LMDBIO_BENCH_DEVICE_PROBE_PART_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/probe_board.h"
#include "bench/device/probe_row.h"
#include "lmdbio/device/device.h"
#include "lmdbio/ranks/shm/memory_file.h"

namespace lmdbio::probe {

inline double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Places of marks on the board, a cache line each.
inline constexpr uint64_t kGateOffset = 1024;
inline uint64_t MarkOffset(int role) { return 64 * static_cast<uint64_t>(role); }

// One process of a trial. Rows leave the process when they are said, so a later crash or hang does
// not take them along.
class ProbePart {
 public:
  // Opens the driver and the device.
  // rows  a descriptor to write rows to; null board: the first process itself
  // Errors: as SystemDriver, Device::Open
  static Result<ProbePart> Open(const TrialOptions& options, ProbeBoard* board, int role, int rows);

  const TrialOptions& options() const { return options_; }
  ProbeBoard& board() const { return *board_; }
  int role() const { return role_; }
  int other() const { return 1 - role_; }
  const device::DriverTable& driver() const { return context_->driver(); }
  device::Device& device() const { return *device_; }
  // For calls that the room device does not offer.
  device::PrimaryContext& context() const { return *context_; }

  // --- rows ---
  void Say(const ProbeRow& row) const;
  void SayYes(std::string name, std::string note = "") const;
  void SayFigure(std::string name, std::string unit, std::vector<double> samples,
                 std::string note = "") const;
  void SayError(std::string name, const Error& error) const {
    Say(RowOfError(std::move(name), error));
  }
  // A figure or the error.
  void SayResult(std::string name, std::string unit, Result<std::vector<double>> samples) const;

  // The object about the device.
  void SayFacts(const nlohmann::ordered_json& facts) const;

  // --- the other process ---
  void Reach(uint64_t step) const { board_->steps[static_cast<size_t>(role_)].store(step); }
  // Errors: kPeerFailed  the other process has ended before
  Status AwaitStep(uint64_t step) const;
  void AwaitEndOfOther() const;
  // Asks the first process for the end of this one, by SIGKILL.
  [[noreturn]] void AwaitKill() const;
  // Ends without destructors, because some would wait for a stream that never drains.
  [[noreturn]] static void Leave();

  // --- streams ---
  // The seconds until the stream was done; nothing if it was not in time. Does not block.
  Result<std::optional<double>> Drain(const device::DeviceStream& stream, double seconds_max) const;
  // The same, and too long is an error.
  // Errors: kInternal  not done in 10 s; and as DeviceStream::IsDone
  Result<double> AwaitDrained(const device::DeviceStream& stream) const;

  // The marks of the board, pinned by this process.
  Result<device::PinnedBytes> PinMarks() const { return device_->Pin(board_->marks); }
  uint64_t AtMost(uint64_t size_bytes) const {
    return std::min(size_bytes, options_.size_bytes_max);
  }

 private:
  ProbePart(const TrialOptions& options, ProbeBoard* board, int role, int rows,
            std::shared_ptr<device::PrimaryContext> context, std::shared_ptr<device::Device> device)
      : options_(options),
        board_(board),
        role_(role),
        rows_(rows),
        context_(std::move(context)),
        device_(std::move(device)) {}

  TrialOptions options_;
  ProbeBoard* board_;
  int role_;
  int rows_;
  std::shared_ptr<device::PrimaryContext> context_;
  std::shared_ptr<device::Device> device_;
};

// Pinned memory of a trial: a memory file, as the memory that ranks share.
struct PinnedRoom {
  std::unique_ptr<ranks::SharedMapping> mapping;
  std::optional<device::PinnedBytes> pinned;

  // Errors: as CreateMemoryFile, Device::Pin
  static Result<PinnedRoom> Make(const ProbePart& part, uint64_t size_bytes);
  const device::PinnedBytes& get() const { return *pinned; }
  std::byte* data() const { return mapping->bytes().data(); }
};

// The first words of the command line of such a process.
inline constexpr const char* kPartWord = "device-part";

// Plays a part if the command line asks for one: `device-part TRIAL ROLE PARENT`, with the board as
// descriptor 3 and the rows as descriptor 4. main calls it before all else.
// Returns: the exit code; nothing for any other command line
std::optional<int> PlayPartIfAsked(int argc, char** argv);

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_PROBE_PART_H_
