#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/health/host_health.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;

TEST_CASE("HostHealth finds a silent rank, and all ranks report the same text", "[comm][health]") {
  std::atomic<int> heard{0};
  RunAsThreads({.rank_count = 3}, [&](Group& group) {
    auto health = std::move(*HostHealth::Create(group, 300ms));
    for (int i = 0; i < 20 && group.rank() != 2; ++i) {  // 100 s, if it did not work
      for (int k = 0; k < 100; ++k) {
        const Status status = health->Check();
        if (!status) {
          if (status.error().code() == ErrorCode::kPeerFailed &&
              status.error().message().find("rank 2 has given no sign of life") == 0) {
            ++heard;
          }
          i = 20;
          break;
        }
        std::this_thread::sleep_for(50ms);
      }
    }
    static_cast<void>(group.Barrier());
    // The silent rank gets the failure too.
    if (group.rank() == 2 && !health->Check()) ++heard;
  });
  CHECK(heard == 3);
}

TEST_CASE("HostHealth does not count the time in which the rank itself was away",
          "[comm][health]") {
  std::atomic<int> failed{0};
  RunAsThreads({.rank_count = 2}, [&](Group& group) {
    auto health = std::move(*HostHealth::Create(group, 2000ms));
    if (!health->Check()) ++failed;
    std::this_thread::sleep_for(3s);  // as if all had been stopped
    if (!health->Check()) ++failed;
    std::this_thread::sleep_for(100ms);
    if (!health->Check()) ++failed;
    static_cast<void>(group.Barrier());
  });
  CHECK(failed == 0);
}

TEST_CASE("HostHealth passes on the reason of a rank that gives up", "[comm][health]") {
  std::atomic<int> heard{0};
  RunAsThreads({.rank_count = 3}, [&](Group& group) {
    auto health = std::move(*HostHealth::Create(group, 60s));
    if (group.rank() == 1) health->GiveUp(Error(ErrorCode::kResourceExhausted, "no memory"));
    static_cast<void>(group.Barrier());
    health->GiveUp(Error(ErrorCode::kPeerFailed, "of no interest any more"));
    const Status status = health->Check();
    if (!status && status.error().message() == "rank 1: no memory") ++heard;
  });
  CHECK(heard == 3);
}

TEST_CASE("HostHealth does not wait for ever for a rank that ended while it recorded a failure",
          "[comm][health]") {
  constexpr uint32_t kClaimed = 1;
  std::atomic<int> failed_at_once{0};
  std::atomic<int> heard{0};
  RunAsThreads({.rank_count = 3}, [&](Group& group) {
    std::byte* memory = nullptr;
    HookedGroup hooked(group, [&memory](Group& host, uint64_t size_bytes) {
      auto allocated = host.AllocateShared(size_bytes);
      if (allocated) memory = (*allocated)->bytes().data();
      return allocated;
    });
    auto health = std::move(*HostHealth::Create(hooked, 60s));
    // The memory begins with the failure cell, and the cell with its state.
    if (group.rank() == 0) reinterpret_cast<std::atomic<uint32_t>*>(memory)->store(kClaimed);
    static_cast<void>(group.Barrier());
    if (!health->Check()) ++failed_at_once;
    Status status;
    for (int i = 0; i < 200 && status; ++i) {  // 10 s, if it did not work
      std::this_thread::sleep_for(50ms);
      status = health->Check();
    }
    health->GiveUp(Error(ErrorCode::kIo, "of no interest any more"));
    status = health->Check();
    if (!status && status.error().code() == ErrorCode::kPeerFailed &&
        status.error().message() == "a rank ended before it could report its failure") {
      ++heard;
    }
    static_cast<void>(group.Barrier());
  });
  CHECK(failed_at_once == 0);
  CHECK(heard == 3);
}

TEST_CASE("HostHealth watches the ranks of each host separately", "[comm][health]") {
  std::atomic<int> failed{0};
  RunAsThreads({.rank_count = 4, .ranks_per_host = 2}, [&](Group& group) {
    auto health = std::move(*HostHealth::Create(group, 60s));
    if (group.rank() == 3) health->GiveUp(Error(ErrorCode::kIo, "broken"));
    static_cast<void>(group.Barrier());
    const Status status = health->Check();
    if (!status) ++failed;
  });
  CHECK(failed == 2);
}

}  // namespace
}  // namespace lmdbio::ranks
