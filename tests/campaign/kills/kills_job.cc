#include "tests/campaign/kills/kills_job.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include <fmt/format.h>

#include "tests/campaign/campaign_run.h"
#include "tests/campaign/kills/kills_rank.h"
#include "tests/ranks/launcher/launched_ranks.h"

namespace lmdbio::test {
namespace {

// A rank that is killed before it comes to the meeting is missed after this time only. Rank 0 stays
// for as long again, for ranks that come late.
constexpr auto kShortMeeting = std::chrono::seconds(2);
constexpr auto kLongMeeting = std::chrono::seconds(60);
constexpr uint16_t kPortCount = 8;
constexpr uid_t kFirstUser = 60'100;  // of the second host

struct KillProcess {
  pid_t pid = 0;
  bool has_ended = false;
  int status = 0;          // of the end
  int64_t stopped_ns = 0;  // 0: never
};

// Ranks of several users share no host (docs/launchers.md).
void LeaveHost(int host) {
  if (host > 0) {
    const uid_t user = kFirstUser + static_cast<uid_t>(host);
    if (::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0) ::_exit(4);
    ::prctl(PR_SET_DUMPABLE, 1);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

class KillWatch {
 public:
  KillWatch(const KillRun& run, const KillLimits& limits, KillLogs& logs)
      : run_(run), limits_(limits), logs_(logs) {}

  void Start(const KillJob& job, const std::string& state, const ranks::Launch& place) {
    started_ns_ = MonotonicNs();
    for (int rank = 0; rank < run_.rank_count; ++rank) {
      const pid_t pid = ::fork();
      if (pid < 0) throw std::runtime_error("fork");
      if (pid > 0) {
        processes_.push_back({.pid = pid});
        continue;
      }
      int code = 0;
      try {
        LeaveHost(run_.host_of(rank));
        ranks::Launch launch = place;
        launch.rank = rank;
        PlayKillRank(job, run_, state, launch, logs_.of(rank));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "kills: rank %d: %s\n", rank, error.what());
        code = 5;
      }
      ::_exit(code);
    }
  }

  // Until all have ended, by themselves or because they are given up.
  void Await() {
    for (;;) {
      Look();
      if (CountRunning() == 0) break;
      Act();
      ::usleep(500);
    }
    const KillProcess& victim = processes_[static_cast<size_t>(run_.victim)];
    const bool is_killed = WIFSIGNALED(victim.status) && WTERMSIG(victim.status) == SIGKILL;
    was_signalled_ = victim.stopped_ns > 0 || (run_.signal == KillSignal::kKill && is_killed);
  }

  KillRunResult Judge() {
    KillRunResult result;
    result.was_signalled = was_signalled_;
    for (int rank = 0; rank < run_.rank_count; ++rank) {
      const KillLog& log = logs_.of(rank);
      if (log.end() == KillLog::End::kFailed && IsRefusal(log.code())) result.is_refused = true;
    }
    for (int rank = 0; rank < run_.rank_count; ++rank) JudgeRank(rank, result.is_refused);
    result.findings = std::move(findings_);
    return result;
  }

 private:
  bool IsVictim(int rank) const { return run_.signal != KillSignal::kNone && rank == run_.victim; }

  void Add(int rank, const std::string& words) {
    findings_.push_back(
        fmt::format("rank {} {} ({})", rank, words, KillPhaseName(logs_.of(rank).phase())));
  }

  void Look() {
    for (KillProcess& one : processes_) {
      int status = 0;
      if (one.has_ended || ::waitpid(one.pid, &status, WNOHANG | WUNTRACED) <= 0) continue;
      if (WIFSTOPPED(status)) {
        one.stopped_ns = MonotonicNs();
      } else {
        one.has_ended = true;
        one.status = status;
      }
    }
  }

  int CountRunning() const {
    return static_cast<int>(std::ranges::count(processes_, false, &KillProcess::has_ended));
  }

  void Send(int rank, int signal) { ::kill(processes_[static_cast<size_t>(rank)].pid, signal); }

  void KillAll() {
    for (const KillProcess& one : processes_) {
      if (!one.has_ended) ::kill(one.pid, SIGKILL);
    }
    is_given_up_ = true;
  }

  static double SecondsSince(int64_t ns) { return static_cast<double>(MonotonicNs() - ns) * 1e-9; }

  // When the victim was signalled, or killed after it was stopped in vain; 0: not yet.
  int64_t SignalledNs() const {
    if (killed_ns_ > 0) return killed_ns_;
    const KillProcess& victim = processes_[static_cast<size_t>(run_.victim)];
    const bool is_hit = run_.signal == KillSignal::kKill
                            ? victim.has_ended && WIFSIGNALED(victim.status)
                            : run_.signal == KillSignal::kStop && victim.stopped_ns > 0;
    return is_hit ? logs_.of(run_.victim).signal_ns() : 0;
  }

  // Goes on with what was stopped, and gives up what does not end.
  void Act() {
    if (is_given_up_) return;
    const int64_t signalled_ns = SignalledNs();
    const KillProcess& victim = processes_[static_cast<size_t>(run_.victim)];
    if (signalled_ns == 0) {
      const auto pause_s = std::chrono::duration<double>(run_.pause).count();
      if (run_.signal == KillSignal::kPause && victim.stopped_ns > 0 && continued_ns_ == 0 &&
          SecondsSince(victim.stopped_ns) > pause_s) {
        Continue();
      }
      if (SecondsSince(started_ns_) > limits_.run_s) GiveUp("without a signal");
      return;
    }
    const bool victim_runs = !victim.has_ended;
    if (CountRunning() == 1 && victim_runs) {
      // It hears of the end of the others, or has what it needs.
      if (continued_ns_ == 0) Continue();
      if (SecondsSince(continued_ns_) > 3 * limits_.error_s) GiveUp("after it went on");
      return;
    }
    if (!IsOverdue(signalled_ns)) return;
    GiveUp(fmt::format("{:.0f} s after {}", limits_.patience_s,
                       killed_ns_ > 0 ? "SIGKILL, after a stop in vain" : "the signal"));
  }

  void Continue() {
    continued_ns_ = MonotonicNs();
    Send(run_.victim, SIGCONT);
  }

  // A survivor has neither an error nor an end, or does not close.
  bool IsOverdue(int64_t signalled_ns) {
    for (int rank = 0; rank < run_.rank_count; ++rank) {
      if (IsVictim(rank) || processes_[static_cast<size_t>(rank)].has_ended) continue;
      const KillLog& log = logs_.of(rank);
      const int64_t since =
          log.end() == KillLog::End::kNone ? signalled_ns : std::max(log.end_ns(), signalled_ns);
      if (SecondsSince(since) > limits_.patience_s) return true;
    }
    return false;
  }

  // Names the ranks that still run. A victim that is stopped is killed first, which the others must
  // notice; then all are killed.
  void GiveUp(const std::string& when) {
    for (int rank = 0; rank < run_.rank_count; ++rank) {
      if (processes_[static_cast<size_t>(rank)].has_ended) continue;
      const bool is_closing = logs_.of(rank).end() != KillLog::End::kNone;
      if (IsVictim(rank) && continued_ns_ == 0) continue;
      Add(rank, fmt::format("{} {}", is_closing ? "does not close" : "has no error", when));
    }
    const bool is_stopped = run_.signal == KillSignal::kStop && killed_ns_ == 0 &&
                            continued_ns_ == 0 &&
                            processes_[static_cast<size_t>(run_.victim)].stopped_ns > 0;
    if (!is_stopped) return KillAll();
    killed_ns_ = MonotonicNs();
    Send(run_.victim, SIGKILL);
  }

  void JudgeRank(int rank, bool is_refused) {
    const KillProcess& process = processes_[static_cast<size_t>(rank)];
    if (IsVictim(rank) && was_signalled_ && run_.signal != KillSignal::kPause) return;
    const KillLog& log = logs_.of(rank);
    if (WIFSIGNALED(process.status)) {
      if (!is_given_up_) Add(rank, fmt::format("is ended by signal {}", WTERMSIG(process.status)));
      return;
    }
    if (WEXITSTATUS(process.status) != 0) {
      return Add(rank, fmt::format("ends with {}", WEXITSTATUS(process.status)));
    }
    if (is_refused || log.end() != KillLog::End::kFailed) return;
    if (!was_signalled_ || run_.signal == KillSignal::kPause) {
      return Add(rank, fmt::format("has an error without a reason: {}", log.text()));
    }
    JudgeError(rank, log);
  }

  // The error of a survivor: in time, and it names the victim.
  void JudgeError(int rank, const KillLog& log) {
    const int64_t signal_ns = logs_.of(run_.victim).signal_ns();
    const double error_s = static_cast<double>(log.end_ns() - signal_ns) * 1e-9;
    const double close_s = static_cast<double>(log.left_ns() - log.end_ns()) * 1e-9;
    if (killed_ns_ == 0 && error_s > limits_.error_s) {
      Add(rank, fmt::format("has its error after {:.2f} s: {}", error_s, log.text()));
    }
    if (close_s > limits_.error_s) Add(rank, fmt::format("closes in {:.2f} s", close_s));
    if (!NamesVictim(log.text())) {
      Add(rank, fmt::format("does not name rank {}: {}", run_.victim, log.text()));
    } else if (log.code() != ErrorCode::kPeerFailed && run_.phase != KillPhase::kMeet) {
      Add(rank, fmt::format("has another error than kPeerFailed: {}", log.text()));
    }
  }

  // "rank 3 ...", or "ranks 2, 3 and 5 have not come ...".
  bool NamesVictim(const std::string& text) const {
    if (text.find(fmt::format("rank {}", run_.victim)) != std::string::npos) return true;
    const size_t list = text.find("ranks ");
    return list != std::string::npos &&
           text.find(fmt::format(" {}", run_.victim), list) != std::string::npos;
  }

  const KillRun& run_;
  const KillLimits& limits_;
  KillLogs& logs_;
  std::vector<KillProcess> processes_;
  std::vector<std::string> findings_;
  int64_t started_ns_ = 0;
  int64_t continued_ns_ = 0;
  int64_t killed_ns_ = 0;  // after it was stopped in vain
  bool is_given_up_ = false;
  bool was_signalled_ = false;
};

}  // namespace

KillRunResult RunKillJob(const KillJob& job, const KillRun& run, const std::string& state,
                         const KillLimits& limits, KillLogs& logs) {
  const bool is_lost = run.signal == KillSignal::kKill || run.signal == KillSignal::kStop;
  const bool is_short = is_lost && run.phase == KillPhase::kMeet;
  ranks::Launch launch =
      LaunchAt(FreePorts(kPortCount), 0, run.rank_count, is_short ? kShortMeeting : kLongMeeting);
  launch.port_count = kPortCount;
  launch.job = static_cast<uint64_t>(MonotonicNs());
  KillWatch watch(run, limits, logs);
  watch.Start(job, state, launch);
  watch.Await();
  return watch.Judge();
}

}  // namespace lmdbio::test
