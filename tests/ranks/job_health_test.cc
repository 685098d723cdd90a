// Goal: what goes wrong on one host is heard on all, once and in the same words, and nothing that
// is right is taken for wrong. Method: ranks are threads, hosts are made up.
#include "lmdbio/ranks/health/job_health.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;

constexpr ThreadRanks kRanks{.rank_count = 5, .ranks_per_host = 2};

// Looks until something has failed, but not for ever; "" then.
std::string Watch(Health& health, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    const Status status = health.Check();
    if (!status) return status.error().message();
    std::this_thread::sleep_for(20ms);
  }
  return "";
}

// What all ranks hear. `silent` looks at nobody, and then only once.
std::set<std::string> HeardBy(std::chrono::milliseconds limit, int silent,
                              const std::function<void(int rank, Health& health)>& act) {
  std::mutex mutex;
  std::set<std::string> heard;
  RunAsThreads(kRanks, [&](Group& group) {
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
  const auto heard = HeardBy(60s, -1, [&](int own, Health& health) {
    if (own == rank) health.GiveUp(Error(ErrorCode::kIo, "broken"));
  });
  REQUIRE(heard.size() == 1);
  CHECK(heard.begin()->find("rank " + std::to_string(rank) + " on host-") == 0);
  CHECK(heard.begin()->find(": broken") != std::string::npos);
}

TEST_CASE("JobHealth finds a root that is silent, and a rank behind a root", "[comm][health]") {
  const int silent = GENERATE(0, 3, 4);
  const auto heard = HeardBy(500ms, silent, [](int, Health&) {});
  for (const std::string& words : heard) {
    CHECK(words.find("rank " + std::to_string(silent) + " on host-") == 0);
    CHECK(words.find("has given no sign of life") != std::string::npos);
  }
}

TEST_CASE("Who leaves JobHealth in good order has not failed", "[comm][health]") {
  std::atomic<int> wrong{0};
  RunAsThreads(kRanks, [&](Group& group) {
    auto health = std::move(*JobHealth::Create(group, 300ms));
    if (!Watch(*health, 200ms).empty()) ++wrong;
    static_cast<void>(group.Barrier());
    if (group.rank() % 2 == 0) health.reset();
    static_cast<void>(group.Barrier());
    if (health != nullptr && !Watch(*health, 1s).empty()) ++wrong;
    static_cast<void>(group.Barrier());
  });
  CHECK(wrong == 0);
}

TEST_CASE("JobHealth does not mind that all have been away", "[comm][health]") {
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

}  // namespace
}  // namespace lmdbio::ranks
