// environments: tries small jobs in environments that refuse them something.
//
//   environments [--first-seed N] [--seeds N] [--verbose] FOLDER
//   environments [--environment PREFIX] [--job PREFIX] [--verbose] FOLDER
//   environments --list
//
// Each seed is an environment of the list, or two refused system calls, and a job
// (environment_job.h) drawn from the seed. With --environment or --job, all jobs of that name are
// tried in all such environments. The ranks of a job are processes of their own. Each must end
// within ten seconds with the right records, or with one line that is an error of lmdbio; nothing
// may stay: no process, no file in /dev/shm or in the temporary folder. Some environments must not
// hinder a job at all (Demand::kRightBytes).
//
// An environment that this system or user cannot have is counted as skipped; --verbose names it.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/campaign/campaign_run.h"
#include "tests/campaign/environment_job.h"
#include "tests/campaign/environment_list.h"
#include "tests/campaign/refused_calls.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kRankLimit = std::chrono::seconds(10);
constexpr auto kMeetingLimit = std::chrono::seconds(3);
constexpr unsigned kCaseLimitSeconds = 60;  // with the start and the end of the environment
constexpr auto kGoneLimit = std::chrono::seconds(2);  // of processes that are ending
constexpr auto kPause = std::chrono::milliseconds(1);

// A job in an environment.
struct EnvironmentCase {
  JobEnvironment environment;
  EnvironmentJob job;
  int only_rank = -1;  // which environment.enter_rank changes; -1: all

  std::string name() const {
    const std::string rank = only_rank < 0 ? "" : fmt::format(", rank {} alone", only_rank);
    return fmt::format("{}, {}{}", environment.name, job.name, rank);
  }
};

enum class CaseEnding : char { kRight = 'r', kRefused = 'e', kSkipped = 's', kFinding = 'f' };

struct CaseOutcome {
  CaseEnding ending = CaseEnding::kFinding;
  std::string words;
};

// A process that runs one rank, and all that it writes.
struct RankProcess {
  pid_t pid = -1;
  int output = -1;
  int status = 0;
  bool is_over = false;
};

std::string ReadAll(int file) {
  std::string text;
  char bytes[4096];
  ::fcntl(file, F_SETFL, O_NONBLOCK);
  for (ssize_t count = 0; (count = ::read(file, bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

void WriteLine(std::string text) {
  text += '\n';
  static_cast<void>(::write(STDOUT_FILENO, text.data(), text.size()));
}

std::string RankLine(const EnvironmentCase& one, const JobPlace& place,
                     const ranks::Launch& launch) {
  try {
    const bool is_changed = one.only_rank < 0 || one.only_rank == launch.rank;
    if (is_changed && one.environment.enter_rank) one.environment.enter_rank(launch.rank);
    const JobResult result = one.job.run(place, launch);
    if (result) return one.job.is_program ? "right" : "right " + *result;
    return fmt::format("refused {}: {}", ErrorCodeName(result.error().code()),
                       result.error().message());
  } catch (const NotHere& reason) {
    return fmt::format("skipped {}", reason.what());
  } catch (const std::exception& error) {
    return fmt::format("wrong: {}", error.what());
  }
}

RankProcess StartRank(const EnvironmentCase& one, const JobPlace& place,
                      const ranks::Launch& launch) {
  int ends[2] = {-1, -1};
  Need(::pipe(ends) == 0, "a pipe");
  RankProcess process;
  process.output = ends[0];
  process.pid = ::fork();
  Need(process.pid >= 0, "fork");
  if (process.pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close_range(STDERR_FILENO + 1, ~0U, 0);
    ::signal(SIGBUS, SIG_DFL);  // sanitizers take it, and exit
    WriteLine(RankLine(one, place, launch));
    ::_exit(0);
  }
  ::close(ends[1]);
  return process;
}

// Waits until all are over, at most `kRankLimit`, and ends the others.
void AwaitRanks(std::vector<RankProcess>& processes) {
  const auto end = Clock::now() + kRankLimit;
  size_t left = processes.size();
  while (left > 0 && Clock::now() < end) {
    for (RankProcess& process : processes) {
      if (process.is_over || ::waitpid(process.pid, &process.status, WNOHANG) <= 0) continue;
      process.is_over = true;
      --left;
    }
    std::this_thread::sleep_for(kPause);
  }
  for (const RankProcess& process : processes) {
    if (process.is_over) continue;
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
  }
}

// Of one rank. Its output is one line.
CaseOutcome JudgeRank(const RankProcess& process, const EnvironmentCase& one) {
  const auto finding = [](std::string words) {
    return CaseOutcome{CaseEnding::kFinding, std::move(words)};
  };
  std::string output = ReadAll(process.output);
  if (!process.is_over) return finding("not over after 10 s: " + output);
  if (WIFSIGNALED(process.status) && WTERMSIG(process.status) == SIGBUS && one.job.has_bare_map &&
      one.environment.loses_pages) {
    return {CaseEnding::kRefused, "ended by SIGBUS, as liblmdb's map does"};
  }
  if (WIFSIGNALED(process.status)) {
    return finding(fmt::format("ended by signal {}: {}", WTERMSIG(process.status), output));
  }
  if (WEXITSTATUS(process.status) != 0) {
    return finding(fmt::format("exit code {}: {}", WEXITSTATUS(process.status), output));
  }
  if (std::count(output.begin(), output.end(), '\n') != 1) {
    return finding("expected one line: " + output);
  }
  output.pop_back();
  if (output.starts_with("right")) return {CaseEnding::kRight, output};
  if (output.starts_with("skipped")) return {CaseEnding::kSkipped, output};
  if (!output.starts_with("refused")) return finding(output);
  const bool is_internal =
      output.starts_with(fmt::format("refused {}", ErrorCodeName(ErrorCode::kInternal)));
  const bool must_be_right =
      one.environment.demand == Demand::kRightBytes && !one.job.is_refused_anywhere;
  if (is_internal || must_be_right) return finding(output);
  return {CaseEnding::kRefused, output};
}

// The worst of the ranks: a finding, else a skip, else a refusal.
CaseOutcome JudgeRanks(const std::vector<RankProcess>& processes, const EnvironmentCase& one) {
  const std::string order = "resf";
  CaseOutcome worst{CaseEnding::kRight, "right"};
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    const CaseOutcome mine = JudgeRank(processes[rank], one);
    const auto weight = [&](CaseEnding ending) { return order.find(static_cast<char>(ending)); };
    if (rank > 0 && weight(mine.ending) <= weight(worst.ending)) continue;
    worst = {mine.ending, fmt::format("rank {}: {}", rank, mine.words)};
  }
  return worst;
}

// The files that the job has left, as text.
std::string LeftFiles(const JobPlace& place) {
  std::string left;
  for (const fs::path& folder : {fs::path("/dev/shm"), place.folder}) {
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
      if (entry.path().filename() != "filler") left += entry.path().string() + " ";
    }
  }
  return left;
}

CaseOutcome RunInEnvironment(const EnvironmentCase& one, JobPlace place) {
  Helpers helpers;
  std::vector<RankProcess> processes;
  CaseOutcome outcome;
  try {
    const bool has_own_mounts = TakeOwnMounts();
    if (one.environment.enter) one.environment.enter(place, helpers);
    Random random(static_cast<uint64_t>(::getpid()));
    ranks::Launch launch;
    launch.size = one.job.rank_count;
    launch.host = "127.0.0.1";
    launch.first_port = static_cast<uint16_t>(random.Between(10'000, 30'000));
    launch.port_count = 16;
    launch.job = random.Next();
    launch.limit = kMeetingLimit;
    for (; launch.rank < launch.size; ++launch.rank) {
      processes.push_back(StartRank(one, place, launch));
    }
    AwaitRanks(processes);
    outcome = JudgeRanks(processes, one);
    const std::string left = has_own_mounts ? LeftFiles(place) : "";
    if (!left.empty())
      outcome = {CaseEnding::kFinding, fmt::format("left {}({})", left, outcome.words)};
  } catch (const NotHere& reason) {
    outcome = {CaseEnding::kSkipped, reason.what()};
  }
  for (const pid_t helper : helpers) ::kill(helper, SIGTERM);
  for (const pid_t helper : helpers) ::waitpid(helper, nullptr, 0);
  return outcome;
}

// The descendants of this process, which inherits those whose parents have ended.
std::vector<pid_t> LivingChildren() {
  std::vector<pid_t> children;
  while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

// Ends what a case has left running. Returns the number of such processes.
size_t EndLeftProcesses() {
  const auto end = Clock::now() + kGoneLimit;
  while (!LivingChildren().empty() && Clock::now() < end) std::this_thread::sleep_for(kPause);
  const std::vector<pid_t> left = LivingChildren();
  for (const pid_t child : left) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return left.size();
}

CaseOutcome RunCase(const EnvironmentCase& one, const JobPlace& place) {
  fs::remove_all(place.folder);
  fs::create_directories(place.folder);
  fs::permissions(place.folder, fs::perms::all);
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return {CaseEnding::kSkipped, "no pipe"};
  const pid_t child = ::fork();
  if (child == 0) {
    const CaseOutcome outcome = RunInEnvironment(one, place);
    const std::string text = static_cast<char>(outcome.ending) + outcome.words;
    static_cast<void>(::write(ends[1], text.data(), std::min<size_t>(text.size(), 60'000)));
    ::_exit(0);
  }
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  const std::string text = ReadAll(ends[0]);
  ::close(ends[0]);
  const size_t left_count = EndLeftProcesses();
  if (left_count > 0) {
    return {CaseEnding::kFinding, fmt::format("left {} processes: {}", left_count, text)};
  }
  if (text.empty()) return {CaseEnding::kFinding, "the case has ended without an outcome"};
  return {static_cast<CaseEnding>(text.front()), text.substr(1)};
}

class Environments {
 public:
  Environments(const fs::path& folder, bool is_verbose)
      : folder_(fs::absolute(folder)),
        is_verbose_(is_verbose),
        programs_(fs::read_symlink("/proc/self/exe").parent_path()),
        jobs_(EnvironmentJobs()),
        list_(FixedEnvironments()) {
    for (JobEnvironment& one : RefusedCallEnvironments()) list_.push_back(std::move(one));
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    fs::create_directories(folder_);
    ::setenv("TMPDIR", (folder_ / "case").c_str(), 1);
    WriteJobDatabases(folder_ / "databases");
  }

  // The list, and after it as many pairs of refused calls.
  std::string Try(uint64_t seed) {
    Random random(seed);
    const uint64_t index = seed % (2 * list_.size());
    EnvironmentCase one;
    one.environment = index < list_.size() ? list_[index] : TwoRefusedCalls(random);
    do {
      one.job = jobs_[random.Below(jobs_.size())];
    } while (one.job.is_program && one.environment.breaks_programs);
    const bool is_alone = one.environment.enter_rank && random.Below(2) == 0;
    if (is_alone)
      one.only_rank = static_cast<int>(random.Below(static_cast<uint64_t>(one.job.rank_count)));
    return TryCase(one);
  }

  // All jobs and environments whose names begin with these words; returns the number of findings.
  uint64_t TryAll(std::string_view environment, std::string_view job) {
    uint64_t finding_count = 0;
    for (const JobEnvironment& place : list_) {
      if (!place.name.starts_with(environment)) continue;
      for (const EnvironmentJob& work : jobs_) {
        if (!work.name.starts_with(job) || (work.is_program && place.breaks_programs)) continue;
        for (const int rank : RanksToTry(place, work)) {
          const std::string finding = TryCase({place, work, rank});
          if (finding.empty()) continue;
          ++finding_count;
          fmt::print("finding: {}\n", finding);
        }
      }
    }
    return finding_count;
  }

  std::string Tally() const {
    const auto count = [&](CaseEnding ending) {
      const auto found = tally_.find(ending);
      return found == tally_.end() ? 0 : found->second;
    };
    return fmt::format("{} right, {} refused, {} skipped, {} findings", count(CaseEnding::kRight),
                       count(CaseEnding::kRefused), count(CaseEnding::kSkipped),
                       count(CaseEnding::kFinding));
  }

 private:
  // All ranks, and the first and the last one alone.
  static std::vector<int> RanksToTry(const JobEnvironment& environment, const EnvironmentJob& job) {
    if (!environment.enter_rank || job.rank_count == 1) return {-1};
    return {-1, 0, job.rank_count - 1};
  }

  std::string TryCase(const EnvironmentCase& one) {
    JobPlace place{folder_ / "case",
                   folder_ / "databases" / (one.job.has_provenance ? "provenance" : "plain"),
                   programs_};
    const auto start = Clock::now();
    const CaseOutcome outcome = RunCase(one, place);
    ++tally_[outcome.ending];
    if (is_verbose_) {
      const std::chrono::duration<double> seconds = Clock::now() - start;
      fmt::print("{}: {} ({:.1f} s)\n", one.name(), outcome.words, seconds.count());
      std::fflush(stdout);
    }
    if (outcome.ending != CaseEnding::kFinding) return "";
    return fmt::format("{}: {}", one.name(), outcome.words);
  }

  fs::path folder_;
  bool is_verbose_;
  fs::path programs_;
  std::vector<EnvironmentJob> jobs_;
  std::vector<JobEnvironment> list_;
  std::map<CaseEnding, uint64_t> tally_;
};

struct EnvironmentArguments {
  std::string folder;
  std::string environment;
  std::string job;
  bool is_verbose = false;
  bool is_list = false;
};

EnvironmentArguments ReadRest(const CampaignArguments& arguments) {
  EnvironmentArguments read;
  for (size_t i = 0; i < arguments.rest.size(); ++i) {
    const std::string_view word = arguments.rest[i];
    const bool has_next = i + 1 < arguments.rest.size();
    if (word == "--verbose") {
      read.is_verbose = true;
    } else if (word == "--list") {
      read.is_list = true;
    } else if (word == "--environment" && has_next) {
      read.environment = arguments.rest[++i];
    } else if (word == "--job" && has_next) {
      read.job = arguments.rest[++i];
    } else {
      read.folder = word;
    }
  }
  return read;
}

void PrintList() {
  for (const JobEnvironment& one : FixedEnvironments()) fmt::print("{}\n", one.name);
  for (const JobEnvironment& one : RefusedCallEnvironments()) fmt::print("{}\n", one.name);
  fmt::print("jobs:\n");
  for (const EnvironmentJob& job : EnvironmentJobs()) fmt::print("  {}\n", job.name);
  fmt::print("never refused:\n{}", NeverRefusedCalls());
}

int Run(const CampaignArguments& arguments) {
  const EnvironmentArguments rest = ReadRest(arguments);
  if (rest.is_list) {
    PrintList();
    return 0;
  }
  if (rest.folder.empty()) {
    std::fputs("environments: expected a folder for the files\n", stderr);
    return 2;
  }
  Environments environments(rest.folder, rest.is_verbose);
  if (!rest.environment.empty() || !rest.job.empty()) {
    const uint64_t finding_count = environments.TryAll(rest.environment, rest.job);
    fmt::print("{}\n", environments.Tally());
    return finding_count > 0 ? 1 : 0;
  }
  const uint64_t finding_count = RunSeeds(arguments, rest.folder, kCaseLimitSeconds,
                                          [&](uint64_t seed) { return environments.Try(seed); });
  fmt::print("{} seeds from {} on: {}\n", arguments.seed_count, arguments.first_seed,
             environments.Tally());
  return finding_count > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  try {
    return lmdbio::test::Run(lmdbio::test::ReadArguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "environments: %s\n", error.what());
    return 2;
  }
}
