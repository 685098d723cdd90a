// Goal: ranks that close their synchronizers beside a rank that has ended neither wait for it nor
// are taken for it. Method: ranks are processes.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ForkedJob;
using test::SyncJob;

// Collective. The process of `rank`, whose end can be awaited.
UniqueFd ProcessOf(ranks::Group& group, int rank) {
  const pid_t mine = ::getpid();
  const auto all = group.AllGather(std::as_bytes(std::span(&mine, 1)));
  pid_t theirs = 0;
  std::memcpy(&theirs, &(*all)[static_cast<size_t>(rank) * sizeof theirs], sizeof theirs);
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, theirs, 0)));
}

bool HasEnded(const UniqueFd& process, std::chrono::milliseconds limit) {
  pollfd polled{process.get(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(limit.count())) == 1;
}

// The reports of all ranks of a job that loses `victim` when all ranks are ready.
std::vector<std::string> ReportsWithout(int victim, int rank_count, int ranks_per_host,
                                        const ForkedJob::Body& body) {
  ForkedJob job(rank_count, ranks_per_host);
  job.Start(body);
  if (!job.AwaitReady()) return {"the job does not become ready"};
  job.Send(SIGKILL, victim);
  std::vector<std::string> reports;
  reports.reserve(static_cast<size_t>(rank_count));
  for (int rank = 0; rank < rank_count; ++rank) reports.push_back(job.EndOf(rank));
  return reports;
}

TEST_CASE("Ranks that close do not wait for a rank that has ended after Shutdown",
          "[sync][failure][closing]") {
  constexpr int kVictim = 1;
  constexpr int kRanks = 3;
  const auto reports =
      ReportsWithout(kVictim, kRanks, kRanks, [](ranks::Group& group, ForkedJob& job) {
        const UniqueFd victim = ProcessOf(group, kVictim);
        auto made = Synchronizer::Create(group, {}, {});
        if (!made) return made.error().message();
        std::vector<float> values(100, 1);
        if (!SyncJob::Sum(**made, "w", values)) return std::string("Sum");
        if (!(*made)->Shutdown()) return std::string("Shutdown");
        job.SayReady();
        if (group.rank() == kVictim) ::pause();
        if (!HasEnded(victim, 60s)) return std::string("the victim lives");
        const auto began = std::chrono::steady_clock::now();
        made->reset();
        const auto took = std::chrono::steady_clock::now() - began;
        // It is not the limit of 5 s that ends the wait.
        return took < 4s ? std::string() : fmt::format("closes in {} ms", took / 1ms);
      });
  CHECK(reports == std::vector<std::string>{"", "killed", ""});
}

// Rank 0 waits for a tensor, `closer` closes at the moment at which the victim has ended.
std::string CloseBesideVictim(ranks::Group& group, ForkedJob& job, int closer, int victim) {
  const UniqueFd process = ProcessOf(group, victim);
  ranks::HookedGroup hooked(
      group, [](ranks::Group& host, uint64_t bytes) { return host.AllocateShared(bytes); });
  hooked.set_ended([&]() -> Status {
    if (!HasEnded(process, 0ms)) return {};
    return Fail(ErrorCode::kPeerFailed, fmt::format("rank {} has ended unexpectedly", victim));
  });
  auto made = Synchronizer::Create(hooked, {}, {});
  if (!made) return made.error().message();
  std::vector<float> values(100, 1);
  if (!SyncJob::Sum(**made, "w", values)) return "Sum";
  job.SayReady();
  if (group.rank() == victim) ::pause();
  if (group.rank() == closer) {
    if (!HasEnded(process, 60s)) return "the victim lives";
    made->reset();
    return "";
  }
  const Status summed = SyncJob::Sum(**made, "lacking", values);
  const std::string heard = summed ? "no error" : summed.error().message();
  const std::string wanted = fmt::format("rank {} has ended unexpectedly", victim);
  return heard.find(wanted) != std::string::npos ? "" : heard;
}

TEST_CASE("A rank that closes because another one has ended is not taken for it",
          "[sync][failure][closing]") {
  struct Scene {
    int closer;
    int victim;
    int ranks_per_host;
  };
  // The victim of another host is no neighbour of the closer, which knows it by the group only.
  const Scene scene = GENERATE(Scene{1, 2, 3}, Scene{2, 1, 3}, Scene{1, 2, 2});
  CAPTURE(scene.closer, scene.victim, scene.ranks_per_host);
  const auto reports = ReportsWithout(
      scene.victim, 3, scene.ranks_per_host, [&](ranks::Group& group, ForkedJob& job) {
        return CloseBesideVictim(group, job, scene.closer, scene.victim);
      });
  std::vector<std::string> expected(3);
  expected[static_cast<size_t>(scene.victim)] = "killed";
  CHECK(reports == expected);
}

}  // namespace
}  // namespace lmdbio::sync
