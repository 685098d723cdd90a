#include "bench/device/probe_part.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

constexpr int kBoardDescriptor = 3;
constexpr int kRowsDescriptor = 4;
constexpr double kDrainSecondsMax = 10;

void WriteLine(int descriptor, const std::string& line) {
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(descriptor, line.data() + written, line.size() - written);
    if (count <= 0) return;  // the first process has ended, and this one is about to
    written += static_cast<size_t>(count);
  }
}

// Spins at first, because most waits take microseconds.
class Pause {
 public:
  void operator()() {
    if (++looks_ < 2000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  int looks_ = 0;
};

std::string JsonLine(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// The error for all rows that are missing at the end.
int SayReason(const Error& error) {
  WriteLine(kRowsDescriptor,
            JsonLine({{"error", error.message()}, {"code", static_cast<int>(error.code())}}));
  return 1;
}

Status Play(const Trial& trial, ProbeBoard* board, int role) {
  LMDBIO_TRY(const ProbePart part, ProbePart::Open(board->options, board, role, kRowsDescriptor));
  return trial.play(part);
}

}  // namespace

Result<ProbePart> ProbePart::Open(const TrialOptions& options, ProbeBoard* board, int role,
                                  int rows) {
  LMDBIO_TRY(const device::DriverTable* const driver, device::SystemDriver());
  LMDBIO_TRY(auto device, device::Device::Open(options.ordinal, *driver));
  device::DeviceNumber number = 0;
  driver->DeviceGet(&number, options.ordinal);
  LMDBIO_TRY(auto context, device::PrimaryContext::Retain(*driver, options.ordinal, number));
  return ProbePart(options, board, role, rows, std::move(context), std::move(device));
}

void ProbePart::Say(const ProbeRow& row) const { WriteLine(rows_, ToLine(row)); }

void ProbePart::SayYes(std::string name, std::string note) const {
  Say({.name = std::move(name), .state = RowState::kYes, .note = std::move(note)});
}

void ProbePart::SayFigure(std::string name, std::string unit, std::vector<double> samples,
                          std::string note) const {
  Say({.name = std::move(name),
       .state = RowState::kYes,
       .unit = std::move(unit),
       .samples = std::move(samples),
       .note = std::move(note)});
}

void ProbePart::SayResult(std::string name, std::string unit,
                          Result<std::vector<double>> samples) const {
  if (!samples) return SayError(std::move(name), samples.error());
  SayFigure(std::move(name), std::move(unit), std::move(*samples));
}

void ProbePart::SayFacts(const nlohmann::ordered_json& facts) const {
  WriteLine(rows_, JsonLine({{"facts", facts}}));
}

Status ProbePart::AwaitStep(uint64_t step) const {
  const auto place = static_cast<size_t>(other());
  Pause pause;
  while (board_->steps[place].load() < step) {
    // A process may have reached the step and ended between the two looks.
    if (board_->is_gone[place].load() != 0 && board_->steps[place].load() < step) {
      return Fail(ErrorCode::kPeerFailed, "the other process of the trial has ended");
    }
    pause();
  }
  return {};
}

void ProbePart::AwaitEndOfOther() const {
  Pause pause;
  while (board_->is_gone[static_cast<size_t>(other())].load() == 0) pause();
}

void ProbePart::AwaitKill() const {
  board_->wants_kill[static_cast<size_t>(role_)].store(1);
  while (true) ::pause();
}

void ProbePart::Leave() { std::_Exit(0); }

Result<std::optional<double>> ProbePart::Drain(const device::DeviceStream& stream,
                                               double seconds_max) const {
  const double begin = SecondsNow();
  while (true) {
    LMDBIO_TRY(const bool is_done, stream.IsDone());
    const double seconds = SecondsNow() - begin;
    if (is_done) return seconds;
    if (seconds > seconds_max) return std::nullopt;
    std::this_thread::yield();
  }
}

Result<double> ProbePart::AwaitDrained(const device::DeviceStream& stream) const {
  LMDBIO_TRY(const std::optional<double> seconds, Drain(stream, kDrainSecondsMax));
  if (seconds) return *seconds;
  return Fail(ErrorCode::kInternal,
              fmt::format("the stream was not done in {} s", kDrainSecondsMax));
}

Result<PinnedRoom> PinnedRoom::Make(const ProbePart& part, uint64_t size_bytes) {
  PinnedRoom room;
  LMDBIO_TRY(const UniqueFd file, ranks::CreateMemoryFile(size_bytes));
  LMDBIO_TRY(room.mapping, ranks::SharedMapping::Map(file, size_bytes));
  LMDBIO_TRY(device::PinnedBytes pinned, part.device().Pin(room.mapping->bytes()));
  room.pinned.emplace(std::move(pinned));
  return room;
}

std::optional<int> PlayPartIfAsked(int argc, char** argv) {
  if (argc != 5 || std::string_view(argv[1]) != kPartWord) return std::nullopt;
  const auto trial_number = static_cast<size_t>(std::strtoul(argv[2], nullptr, 10));
  const int role = std::atoi(argv[3]);
  // The kernel ends this process with its parent, which may have ended already.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(argv[4])) return 1;
  const std::vector<Trial>& trials = AllTrials();
  if (trial_number >= trials.size() || role < 0 || role >= kRolesMax) return 1;
  const auto mapping = ranks::SharedMapping::Map(UniqueFd(kBoardDescriptor), sizeof(ProbeBoard));
  if (!mapping) return SayReason(mapping.error());
  auto* const board = reinterpret_cast<ProbeBoard*>((*mapping)->bytes().data());
  if (const Status status = Play(trials[trial_number], board, role); !status) {
    return SayReason(status.error());
  }
  if (!trials[trial_number].stays) return 0;
  ::close(kRowsDescriptor);
  while (true) ::pause();  // until the first process ends it, or ends
}

}  // namespace lmdbio::probe
