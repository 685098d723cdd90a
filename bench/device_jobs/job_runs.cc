#include "bench/device_jobs/job_runs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "bench/device/supervise.h"
#include "bench/device_jobs/job_kinds.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::figures {
namespace {

using nlohmann::ordered_json;
using probe::ChildProcess;
using probe::ProbeRow;
using probe::RowState;
using probe::SupervisedEnd;

// A port that is free now; another program may take it before the ranks meet.
Result<uint16_t> FreePort() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener || ::bind(listener.get(), generic, size) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0) {
    return Fail(ErrnoError(errno, "127.0.0.1", "bind"));
  }
  return ntohs(address.sin_port);
}

// The lines of a process: rows, and the reason for its end.
void ReadLines(const std::string& text, std::vector<ProbeRow>& rows, std::optional<Error>& reason) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const ordered_json object = ordered_json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.is_object()) continue;  // cut off by a kill
    if (auto row = probe::RowOfJson(object)) rows.push_back(std::move(*row));
    if (!object.contains("error")) continue;
    const auto code = static_cast<ErrorCode>(object["code"].get<int>());
    // Others fail because one does. Its own reason is the better one.
    if (reason && reason->code() != ErrorCode::kPeerFailed) continue;
    reason.emplace(code, object["error"].get<std::string>());
  }
}

Error EndOf(const std::vector<ChildProcess>& processes, SupervisedEnd end, double seconds_max) {
  if (end == SupervisedEnd::kInterrupted) return {ErrorCode::kInternal, "interrupted"};
  if (end == SupervisedEnd::kLate) {
    return {ErrorCode::kInternal,
            fmt::format("its processes were not done in {:.0f} s and were killed", seconds_max)};
  }
  for (const ChildProcess& process : processes) {
    if (process.wait_status() == 0) continue;
    return {ErrorCode::kInternal, "its process: " + probe::EndWords(process.wait_status())};
  }
  return {ErrorCode::kInternal, "its processes have said nothing"};
}

JobOutcome OutcomeOfProcesses(std::vector<ChildProcess> processes, double seconds_max) {
  const SupervisedEnd end = probe::Supervise(processes, nullptr, seconds_max);
  std::vector<ProbeRow> rows;
  std::optional<Error> reason;
  for (const ChildProcess& process : processes) ReadLines(process.text(), rows, reason);
  return {std::move(rows), reason ? *std::move(reason) : EndOf(processes, end, seconds_max)};
}

Result<std::vector<ChildProcess>> StartJob(const JobSpec& spec) {
  JobMeeting meeting;
  LMDBIO_TRY(meeting.port, FreePort());
  meeting.job = std::random_device()();
  std::vector<ChildProcess> processes;
  const int count = spec.are_threads ? 1 : spec.rank_count;
  for (meeting.rank = 0; meeting.rank < count; ++meeting.rank) {
    LMDBIO_TRY(ChildProcess process,
               ChildProcess::Start({"/proc/self/exe", kJobWord, TextOf(spec), TextOf(meeting),
                                    std::to_string(::getpid())},
                                   {}, kJobRowsDescriptor));
    processes.push_back(std::move(process));
  }
  return processes;
}

Result<std::vector<double>> SamplesOf(const JobOutcome& outcome, const std::string& measure) {
  const auto row =
      std::ranges::find_if(outcome.rows, [&](const ProbeRow& one) { return one.name == measure; });
  if (row == outcome.rows.end()) return Fail(outcome.why_missing.Copy());
  if (row->state == RowState::kYes) return row->samples;
  const bool is_refused = row->state == RowState::kUnsupported || row->state == RowState::kLeftOut;
  return Fail(is_refused ? ErrorCode::kUnsupported : ErrorCode::kInternal, row->note);
}

}  // namespace

void SayJobError(const Error& error) {
  const ordered_json object = {{"error", error.message()},
                               {"code", static_cast<int>(error.code())}};
  const std::string line =
      object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  // One write of less than a page stays together, if ranks are threads.
  static_cast<void>(::write(kJobRowsDescriptor, line.data(), line.size()));
}

const JobOutcome& JobRuns::OutcomeOf(const JobSpec& spec, double seconds_max) {
  const std::string key = TextOf(spec);
  if (const auto known = outcomes_.find(key); known != outcomes_.end()) return known->second;
  auto processes = StartJob(spec);
  JobOutcome outcome = processes ? OutcomeOfProcesses(*std::move(processes), seconds_max)
                                 : JobOutcome{{}, processes.error().Copy()};
  return outcomes_.emplace(key, std::move(outcome)).first->second;
}

Result<std::vector<double>> JobRuns::Samples(const JobSpec& spec, const std::string& measure,
                                             double seconds_max) {
  return SamplesOf(OutcomeOf(spec, seconds_max), measure);
}

std::vector<ProbeRow> JobRuns::Rows(const JobSpec& spec, const std::string& measure,
                                    double seconds_max) {
  std::vector<ProbeRow> rows;
  for (const ProbeRow& row : OutcomeOf(spec, seconds_max).rows) {
    if (row.name == measure) rows.push_back(row);
  }
  return rows;
}

Result<std::vector<double>> JobRuns::SamplesOfProgram(const std::vector<std::string>& words,
                                                      const std::string& measure,
                                                      double seconds_max) {
  const std::string key = fmt::format("{}", fmt::join(words, " "));
  auto known = outcomes_.find(key);
  if (known == outcomes_.end()) {
    auto process = ChildProcess::Start(words, {}, STDOUT_FILENO);
    JobOutcome outcome = {{}, Error(ErrorCode::kUnsupported, "")};
    if (process) {
      std::vector<ChildProcess> processes;
      processes.push_back(*std::move(process));
      outcome = OutcomeOfProcesses(std::move(processes), seconds_max);
    } else {
      outcome.why_missing = Error(ErrorCode::kUnsupported, process.error().message());
    }
    known = outcomes_.emplace(key, std::move(outcome)).first;
  }
  return SamplesOf(known->second, measure);
}

}  // namespace lmdbio::figures
