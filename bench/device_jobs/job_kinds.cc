#include "bench/device_jobs/job_kinds.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "bench/device_jobs/job_runs.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/launcher/launched_group.h"

namespace lmdbio::figures {
namespace {

constexpr std::array<JobKind, 6> kKinds = {{{"reduce", &PlayReduce},
                                            {"serial", &PlaySerial},
                                            {"wire", &PlayWire},
                                            {"step", &PlayStep},
                                            {"overlap", &PlayOverlap},
                                            {"kill", &PlayKill}}};

// Returns the exit code of the rank.
int PlayRank(const JobKind& kind, const JobSpec& spec, ranks::Group& group) {
  auto rank = JobRank::Open(spec, group, kJobRowsDescriptor);
  const Status status = rank ? kind.play(**rank) : Fail(rank.error().Copy());
  if (status) return 0;
  SayJobError(status.error());
  return 1;
}

int PlayThreads(const JobKind& kind, const JobSpec& spec) {
  ranks::RunAsThreads({.rank_count = spec.rank_count}, [&](ranks::Group& group) {
    // Other threads may wait for one that has failed.
    if (PlayRank(kind, spec, group) != 0) std::_Exit(1);
  });
  return 0;
}

int PlayProcess(const JobKind& kind, const JobSpec& spec, const JobMeeting& meeting) {
  const auto group = ranks::LaunchedGroup({.rank = meeting.rank,
                                           .size = spec.rank_count,
                                           .host = "127.0.0.1",
                                           .first_port = meeting.port,
                                           .job = meeting.job,
                                           .limit = std::chrono::seconds(60)});
  if (!group) {
    SayJobError(group.error());
    return 1;
  }
  const int code = PlayRank(kind, spec, **group);
  if (code == 0) return 0;
  // Objects that wait for other ranks would wait long.
  std::_Exit(code);
}

}  // namespace

std::span<const JobKind> KindsOfJobs() { return kKinds; }

std::optional<int> PlayJobIfAsked(int argc, char** argv) {
  if (argc != 5 || std::string_view(argv[1]) != kJobWord) return std::nullopt;
  // The kernel ends this process with its parent, which may have ended already.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(argv[4])) return 1;
  const auto spec = JobSpecOf(argv[2]);
  const auto meeting = JobMeetingOf(argv[3]);
  if (!spec || !meeting) return 1;
  const auto kind =
      std::ranges::find_if(kKinds, [&](const JobKind& known) { return known.name == spec->kind; });
  if (kind == kKinds.end()) return 1;
  return spec->are_threads ? PlayThreads(*kind, *spec) : PlayProcess(*kind, *spec, *meeting);
}

}  // namespace lmdbio::figures
