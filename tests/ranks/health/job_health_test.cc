// Goal: all hosts report a failure of one host, once and in the same words, also if the failed host
// is an inner node of the tree; leaving and pausing are no failures.
// Method: ranks are threads of simulated hosts, or processes where the test kills them.
#include "lmdbio/ranks/health/job_health.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;

constexpr ThreadRanks kRanks{.rank_count = 5, .ranks_per_host = 2};
// Root 1 has the children 17 to 32, and root 2 the others.
constexpr int kDeepHosts = 36;

// Checks until there is a failure, and returns its words; "" if there is none within the limit.
std::string Watch(Health& health, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    const Status status = health.Check();
    if (!status) return status.error().message();
    std::this_thread::sleep_for(20ms);
  }
  return "";
}

// The words of all ranks. `silent` does not check until all others have ended their watch.
std::set<std::string> HeardBy(ThreadRanks ranks, std::chrono::milliseconds limit, int silent,
                              const std::function<void(int rank, Health& health)>& act) {
  std::mutex mutex;
  std::set<std::string> heard;
  RunAsThreads(ranks, [&](Group& group) {
    auto health = std::move(*JobHealth::Create(group, limit));
    act(group.rank(), *health);
    std::string words = group.rank() == silent ? "" : Watch(*health, 20s);
    static_cast<void>(group.Barrier());
    if (group.rank() == silent) words = Watch(*health, 20s);
    const std::lock_guard lock(mutex);
    heard.insert(words);
  });
  return heard;
}

TEST_CASE("JobHealth tells all hosts why a rank gives up", "[comm][health]") {
  const int rank = GENERATE(0, 1, 3, 4);
  const auto heard = HeardBy(kRanks, 60s, -1, [&](int own, Health& health) {
    if (own == rank) health.GiveUp(Error(ErrorCode::kIo, "broken"));
  });
  REQUIRE(heard.size() == 1);
  CHECK(heard.begin()->find("rank " + std::to_string(rank) + " on host-") == 0);
  CHECK(heard.begin()->find(": broken") != std::string::npos);
}

TEST_CASE("JobHealth finds a root that is silent, and a rank behind a root", "[comm][health]") {
  const int silent = GENERATE(0, 3, 4);
  const auto heard = HeardBy(kRanks, 800ms, silent, [](int, Health&) {});
  for (const std::string& words : heard) {
    CHECK(words.find("rank " + std::to_string(silent) + " on host-") == 0);
    CHECK(words.find("has given no sign of life") != std::string::npos);
  }
}

TEST_CASE("JobHealth finds a silent inner node, and all use the same words", "[comm][health]") {
  const ThreadRanks ranks{.rank_count = 20, .ranks_per_host = 1};
  const auto heard = HeardBy(ranks, 2000ms, 1, [](int, Health&) {});
  CHECK(heard ==
        std::set<std::string>{
            "rank 1 on host-1 has given no sign of life for 1.6 s; its process may be stopped"});
}

TEST_CASE("A report crosses the whole tree", "[comm][health]") {
  const int rank = GENERATE(0, 17, 35);  // the top, and two of the lowest level
  const ThreadRanks ranks{.rank_count = kDeepHosts, .ranks_per_host = 1};
  const auto heard = HeardBy(ranks, 60s, -1, [&](int own, Health& health) {
    if (own == rank) health.GiveUp(Error(ErrorCode::kIo, "broken"));
  });
  const std::string number = std::to_string(rank);
  CHECK(heard == std::set<std::string>{"rank " + number + " on host-" + number + ": broken"});
}

TEST_CASE("A root that leaves JobHealth in good order has not failed", "[comm][health]") {
  std::atomic<int> wrong{0};
  RunAsThreads(kRanks, [&](Group& group) {
    auto health = std::move(*JobHealth::Create(group, 800ms));
    if (!Watch(*health, 200ms).empty()) ++wrong;
    static_cast<void>(group.Barrier());
    if (group.rank() % 2 == 0) health.reset();
    static_cast<void>(group.Barrier());
    if (health != nullptr && !Watch(*health, 2s).empty()) ++wrong;
    static_cast<void>(group.Barrier());
  });
  CHECK(wrong == 0);
}

TEST_CASE("JobHealth ignores a pause of all ranks", "[comm][health]") {
  std::atomic<int> wrong{0};
  RunAsThreads(kRanks, [&](Group& group) {
    auto health = std::move(*JobHealth::Create(group, 2000ms));
    if (!Watch(*health, 100ms).empty()) ++wrong;
    std::this_thread::sleep_for(3s);
    if (!Watch(*health, 500ms).empty()) ++wrong;
    static_cast<void>(group.Barrier());
  });
  CHECK(wrong == 0);
}

// Processes of as many hosts, which check their peers until there is a failure and report it.
class DeepJob {
 public:
  explicit DeepJob(std::chrono::milliseconds limit) : job_(kDeepHosts, 1) {
    job_.Start([limit](Group& group, test::ForkedJob& job) -> std::string {
      auto health = JobHealth::Create(group, limit);
      if (!health) return health.error().message();
      job.SayReady();
      return Watch(**health, 30s);
    });
  }

  test::ForkedJob& job() { return job_; }
  std::string Words(int rank) { return job_.EndOf(rank, std::chrono::seconds(40)); }

 private:
  test::ForkedJob job_;
};

TEST_CASE("All hosts report a killed inner node in the same words", "[comm][health]") {
  const int killed = GENERATE(0, 1, 2);
  DeepJob deep(60s);
  REQUIRE(deep.job().AwaitReady());
  deep.job().Send(SIGKILL, killed);
  const std::string number = std::to_string(killed);
  for (int rank = 0; rank < kDeepHosts; ++rank) {
    CAPTURE(killed, rank);
    CHECK(deep.Words(rank) ==
          (rank == killed ? "killed"
                          : "rank " + number + " on host-" + number + " has ended unexpectedly"));
  }
}

TEST_CASE("All hosts report a stopped inner node within the silence limit", "[comm][health]") {
  DeepJob deep(4s);
  REQUIRE(deep.job().AwaitReady());
  deep.job().Send(SIGSTOP, 1);
  for (int rank = 0; rank < kDeepHosts; ++rank) {
    if (rank == 1) continue;
    CAPTURE(rank);
    CHECK(deep.Words(rank) ==
          "rank 1 on host-1 has given no sign of life for 3.6 s; its process may be stopped");
  }
  CHECK(deep.job().SecondsSinceSignal() < 6);  // the limit, and the load of other tests
  deep.job().Send(SIGCONT, 1);
  CHECK(deep.Words(1).find("has given no sign of life for 3.6 s") != std::string::npos);
}

// Root 1 cuts off the hosts 17 to 32, and root 2 the hosts 33 to 35.
TEST_CASE("Several roots die: every part of the tree reports one of them", "[comm][health]") {
  DeepJob deep(60s);
  REQUIRE(deep.job().AwaitReady());
  deep.job().Send(SIGKILL, 1);
  deep.job().Send(SIGKILL, 2);
  const std::string one = "rank 1 on host-1 has ended unexpectedly";
  const std::string two = "rank 2 on host-2 has ended unexpectedly";
  for (int rank = 0; rank < kDeepHosts; ++rank) {
    if (rank == 1 || rank == 2) continue;
    CAPTURE(rank);
    const std::string words = deep.Words(rank);
    if (rank >= 17 && rank <= 32) CHECK(words == one);
    if (rank >= 33) CHECK(words == two);
    CHECK((words == one || words == two));
  }
}

TEST_CASE("The watch limit leaves time for the report", "[comm][health]") {
  CHECK(WatchLimit(4s, 1) == 4s);
  CHECK(WatchLimit(4s, 2) == 3800ms);
  CHECK(WatchLimit(4s, 17) == 3800ms);
  CHECK(WatchLimit(4s, 18) == 3600ms);
  CHECK(WatchLimit(4s, 1000) == 3400ms);
  CHECK(WatchLimit(400ms, 1000) == 300ms);
}

}  // namespace
}  // namespace lmdbio::ranks
