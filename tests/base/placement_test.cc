// Goal: the partition gives no core to two parts or two ranks; otherwise nothing is pinned.

#include <sched.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/placement.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio {
namespace {

using test::Good;

HostCores FirstCores(int count) {
  HostCores cores;
  cores.count = count;
  for (int core = 0; core < count; ++core) cores.allowed.push_back(core);
  return cores;
}

std::string WhyNot(const std::string& text, const HostCores& cores, const CoreShare& place = {}) {
  const Result<Placement> placement = PlaceThreads(text, cores, place);
  if (placement) return "";
  CHECK(placement.error().code() == ErrorCode::kInvalidArgument);
  return placement.error().message();
}

TEST_CASE("ParseCores and CoresText convert lists of cores", "[base]") {
  CHECK(Good(ParseCores("0-5,8")) == CoreList{0, 1, 2, 3, 4, 5, 8});
  CHECK(Good(ParseCores("7")) == CoreList{7});
  CHECK(Good(ParseCores("3,1,2,2-3")) == CoreList{1, 2, 3});
  CHECK(Good(ParseCores("4-6,0-5,2,7-9,0")) == CoreList{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(CoresText(Good(ParseCores("8,0-3,5"))) == "0-3,5,8");
  CHECK(CoresText({}) == "");
  for (const std::string bad : {"", ",", "1,", ",1", "1,,2", "-", "-1", "1-", "5-3", "a", "1x",
                                "0x1", "1 ", "99999999999", "1048576", "0-4294967296"}) {
    INFO("'" << bad << "'");
    const Result<CoreList> cores = ParseCores(bad);
    REQUIRE_FALSE(cores.has_value());
    CHECK(cores.error().code() == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("scp gives separate cores to each part of each rank", "[base]") {
  for (int core_count = 1; core_count <= 40; ++core_count) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::set<int> taken;
      for (int rank = 0; rank < ranks; ++rank) {
        INFO(core_count << " cores, rank " << rank << " of " << ranks);
        const CoreShare place{rank, ranks, rank, ranks};
        const Placement placement = Good(PlaceThreads("scp", FirstCores(core_count), place));
        CHECK(placement.notes.empty() == (core_count / ranks >= 3));
        CHECK(placement.Describe().empty() == (core_count / ranks < 3));
        if (core_count / ranks < 3) {
          CHECK(placement.compute.size() + placement.input.size() + placement.sync.size() == 0);
          CHECK(placement.notes.front().find("nothing is pinned") != std::string::npos);
          continue;
        }
        CHECK(placement.compute.size() >= 1);
        CHECK(placement.input.size() == 1);
        CHECK(placement.sync.size() == 1);
        CHECK(placement.compute.back() < placement.input.front());
        CHECK(placement.input.front() < placement.sync.front());
        for (const auto* cores : {&placement.compute, &placement.input, &placement.sync}) {
          for (const int core : *cores) CHECK(taken.insert(core).second);
        }
      }
      if (core_count / ranks >= 3) CHECK(taken.size() == static_cast<size_t>(core_count));
    }
  }
}

TEST_CASE("Ranks that are bound to different cores do not share them", "[base]") {
  const uint64_t low = CoresDigest(CoreList{0, 1, 2, 3});
  const uint64_t high = CoresDigest(CoreList{4, 5, 6, 7});
  REQUIRE(low != high);
  const std::vector<uint64_t> digests = {low, high, low, high, high};
  const CoreShare place = PlaceAmong(3, digests);
  CHECK(place.rank_on_host == 3);
  CHECK(place.ranks_on_host == 5);
  CHECK(place.rank_on_cores == 1);
  CHECK(place.ranks_on_cores == 3);
  const Placement alone =
      Good(PlaceThreads("scp", {{4, 5, 6, 7}, 8}, PlaceAmong(1, std::vector{low, high})));
  CHECK(alone.compute == CoreList{4, 5});
  CHECK(alone.input == CoreList{6});
  CHECK(alone.sync == CoreList{7});
}

TEST_CASE("PlaceThreads follows an explicit placement", "[base]") {
  const HostCores eight = FirstCores(8);
  const Placement all = Good(PlaceThreads("compute=0-3,5,input=6,sync=7", eight, {}));
  CHECK(all.compute == CoreList{0, 1, 2, 3, 5});
  CHECK(all.input == CoreList{6});
  CHECK(all.sync == CoreList{7});
  CHECK(all.notes.empty());
  CHECK(all.Describe() == "compute on cores 0-3,5, input on cores 6, sync on cores 7");

  const Placement some = Good(PlaceThreads("sync=0", eight, {}));
  CHECK(some.compute.empty());
  CHECK(some.sync == CoreList{0});

  const Placement shared = Good(PlaceThreads("input=6-7,sync=7", eight, {}));
  CHECK(shared.Describe() == "compute on any core, input on cores 6-7, sync on cores 7");
  REQUIRE(shared.notes.size() == 1);
  CHECK(shared.notes[0] == "placement: input and sync share cores 7");

  const std::string groups = "compute=0-2,sync=3;compute=4-6,sync=7";
  CHECK(Good(PlaceThreads(groups, eight, {0, 2, 0, 2})).sync == CoreList{3});
  CHECK(Good(PlaceThreads(groups, eight, {1, 2, 1, 2})).sync == CoreList{7});
  const Placement same = Good(PlaceThreads("sync=3", eight, {1, 2, 1, 2}));
  REQUIRE(same.notes.size() == 1);
  CHECK(same.notes[0].find("all 2 ranks of this host use the same cores") != std::string::npos);

  CHECK(Good(PlaceThreads("", eight, {})).Describe().empty());
}

TEST_CASE("PlaceThreads refuses an impossible placement and names the fault", "[base]") {
  const HostCores some{{0, 1, 2, 6}, 8};
  CHECK(WhyNot("sync=9", some).find("core 9 does not exist: this host has 8") != std::string::npos);
  CHECK(WhyNot("compute=0-3", some)
            .find("core 3 may not be used by this process, which may use "
                  "0-2,6") != std::string::npos);
  CHECK(WhyNot("sync=0,sync=1", some).find("sync is given twice") != std::string::npos);
  CHECK(WhyNot("sync=0;sync=1;sync=2", some, {0, 2, 0, 2}).find("3 groups for the 2 ranks") !=
        std::string::npos);
  for (const std::string bad : {"SCP", "scp,sync=1", "0-3", "sync", "sync=", "=1", "gpu=1",
                                "sync=a", "sync=0,", "sync=0,,input=1", ",sync=0", "sync =0"}) {
    INFO("'" << bad << "'");
    CHECK_FALSE(WhyNot(bad, some).empty());
  }
}

TEST_CASE("PinThisThread pins a thread and keeps the cores of the process", "[base]") {
  const HostCores before = Good(ProcessCores());
  REQUIRE_FALSE(before.allowed.empty());
  std::thread([&] {
    const int last = before.allowed.back();
    REQUIRE(PinThisThread(CoreList{last}).has_value());
    CHECK(::sched_getcpu() == last);
    // A thread that it starts inherits the pinning. ProcessCores still returns all cores.
    std::thread([&] { CHECK(::sched_getcpu() == last); }).join();
    CHECK(Good(ProcessCores()).allowed == before.allowed);
    CHECK(PinThisThread({}).has_value());
    CHECK(PinThisThread(before.allowed).has_value());
  }).join();
  const Status beyond = PinThisThread(CoreList{before.count + 5000});
  REQUIRE_FALSE(beyond.has_value());
  CHECK(beyond.error().code() == ErrorCode::kInvalidArgument);
  CHECK_FALSE(PinThisThread(CoreList{-1}).has_value());
}

}  // namespace
}  // namespace lmdbio
