// Goal: the words of a placement mean the cores and nodes of the host, and no part of a rank gets a
// hyperthread of a core that computes.
//
// The host of these tests has two sockets, each with a NUMA node, four cores and eight hardware
// threads. The kernel counts one hardware thread of each core first, as Linux does on x86-64: core
// c has the numbers c and c + 8.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/placement.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio {
namespace {

using test::Good;

constexpr int kCores = 8;

std::vector<HardwareThread> TwoSockets() {
  std::vector<HardwareThread> topology;
  for (int core = 0; core < kCores; ++core) {
    topology.push_back({core, core, core / 4});
    topology.push_back({core + kCores, core, core / 4});
  }
  return topology;
}

// A process that may use `allowed` of that host.
HostCores HostWith(const std::string& allowed) {
  return {Good(ParseCores(allowed)), 2 * kCores, TwoSockets(), ""};
}

Placement Place(const std::string& text, const CoreShare& share = {},
                const std::string& allowed = "0-15") {
  return Good(PlaceThreads(text, HostWith(allowed), share));
}

std::string WhyNot(const std::string& text, const std::string& allowed = "0-15") {
  const Result<Placement> placement = PlaceThreads(text, HostWith(allowed), {});
  if (placement) return "";
  CHECK(placement.error().code() == ErrorCode::kInvalidArgument);
  return placement.error().message();
}

// The topology of a host that the environment describes to hwloc; nothing without hwloc.
class DescribedHost {
 public:
  explicit DescribedHost(const std::string& synthetic) {
    ::setenv("HWLOC_SYNTHETIC", synthetic.c_str(), 1);
    ::setenv("HWLOC_THISSYSTEM", "0", 1);
  }
  ~DescribedHost() {
    ::unsetenv("HWLOC_SYNTHETIC");
    ::unsetenv("HWLOC_THISSYSTEM");
  }
  DescribedHost(const DescribedHost&) = delete;
  DescribedHost& operator=(const DescribedHost&) = delete;
};

bool HasHwloc() {
  const auto topology = ReadTopology();
  if (topology || topology.error().code() != ErrorCode::kUnsupported) return true;
  CHECK(topology.error().message().find("LMDBIO_WITH_HWLOC=ON") != std::string::npos);
  WARN("skipped: built without hwloc");
  return false;
}

TEST_CASE("ReadTopology finds cores, hyperthreads and NUMA nodes", "[base][topology]") {
  if (!HasHwloc()) return;
  std::string numbers;
  for (const HardwareThread& thread : TwoSockets()) {
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", thread.number);
  }
  const DescribedHost host("pack:2 [numa] core:4 pu:2(indexes=" + numbers + ")");
  CHECK(Good(ReadTopology()) == TwoSockets());
  {
    // One socket with two memories, and sockets that the kernel numbers in turn.
    const DescribedHost other("pack:1 numa:2 core:2 pu:1(indexes=0,2,1,3)");
    CHECK(Good(ReadTopology()) ==
          std::vector<HardwareThread>{{0, 0, 0}, {2, 1, 0}, {1, 2, 1}, {3, 3, 1}});
  }
}

// Oracle: the kernel's own list of the hardware threads of each core.
TEST_CASE("ReadTopology agrees with the kernel of this host", "[base][topology]") {
  if (!HasHwloc()) return;
  std::map<int, CoreList> by_core;
  std::set<int> known;
  for (const HardwareThread& thread : Good(ReadTopology())) {
    by_core[thread.core].push_back(thread.number);
    known.insert(thread.number);
  }
  for (const int number : Good(ProcessCores()).allowed) CHECK(known.contains(number));
  for (auto& [core, threads] : by_core) {
    std::ranges::sort(threads);
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list",
                                   threads.front()));
    std::string siblings;
    if (std::getline(file, siblings)) CHECK(Good(ParseCores(siblings)) == threads);
  }
}

TEST_CASE("A word stands for all hardware threads of cores and nodes", "[base][topology]") {
  const Placement placement = Place("compute=core:0-1,3,input=core:2,sync=6");
  CHECK(CoresText(placement.compute) == "0-1,3,8-9,11");
  CHECK(CoresText(placement.input) == "2,10");
  CHECK(CoresText(placement.sync) == "6");
  CHECK(placement.Describe() ==
        "compute on cores 0-1,3,8-9,11 (core:0-1,3, numa:0), input on cores 2,10 (core:2, numa:0), "
        "sync on cores 6 (core:6, numa:1)");
  CHECK(CoresText(Place("compute=numa:1").compute) == "4-7,12-15");
  CHECK(CoresText(Place("compute=numa:0-1").compute) == "0-15");
  // Only those that the process may use.
  CHECK(CoresText(Place("compute=numa:1", {}, "0-5,9").compute) == "4-5");
  CHECK(CoresText(Place("sync=core:1", {}, "0-5,9").sync) == "1,9");
}

TEST_CASE("A placement says which parts disturb each other", "[base][topology]") {
  const auto notes = [](const std::string& text) { return Place(text).notes; };
  CHECK(notes("compute=0-2,sync=3").empty());
  CHECK(notes("compute=0-2,sync=10") ==
        std::vector<std::string>{"placement: compute and sync have different hyperthreads of "
                                 "core:2"});
  CHECK(notes("compute=0-2,sync=2") ==
        std::vector<std::string>{"placement: compute and sync share cores 2"});
  CHECK(notes("compute=core:0-2,input=core:4") ==
        std::vector<std::string>{"placement: input is on numa:1, but compute is on numa:0"});
  CHECK(notes("compute=core:0-4,input=core:5").empty());
}

TEST_CASE("near is a free core of the node of compute", "[base][topology]") {
  CHECK(CoresText(Place("compute=core:0-1,sync=near").sync) == "3,11");
  const Placement both = Place("compute=0-1,input=near,sync=near");
  CHECK(CoresText(both.input) == "3,11");
  CHECK(CoresText(both.sync) == "2,10");
  CHECK(both.notes.empty());
  CHECK(CoresText(Place("sync=near,compute=4-6").sync) == "7,15");
  CHECK(CoresText(Place("compute=core:0-1,input=3,sync=near").sync) == "2,10");
  // Not a core of which another hardware thread computes, or that the process may not use.
  CHECK(CoresText(Place("compute=0-1,sync=near", {}, "0-2,4-7").sync) == "2");
  CHECK(WhyNot("compute=0-2,11,input=near").find("input=near: no core of numa:0 is free") !=
        std::string::npos);
  CHECK(WhyNot("sync=near").find("add compute=CORES") != std::string::npos);
  CHECK(WhyNot("compute=near,sync=1").find("'near'") != std::string::npos);
}

TEST_CASE("Ranks of a host get different cores that are near", "[base][topology]") {
  const std::string text = "compute=0-1,sync=near;compute=core:4,sync=near;compute=2,sync=near";
  const auto sync_of = [&](int rank, const std::string& allowed) {
    return CoresText(Place(text, {rank, 3, rank, 3}, allowed).sync);
  };
  CHECK(sync_of(0, "0-15") == "3,11");
  CHECK(sync_of(1, "0-15") == "7,15");
  const Result<Placement> third = PlaceThreads(text, HostWith("0-15"), {2, 3, 2, 3});
  REQUIRE_FALSE(third.has_value());
  CHECK(third.error().message().find("no core of numa:0 is free") != std::string::npos);
  // A rank that its launcher has bound sees no core of the others.
  CHECK(sync_of(1, "4-7,12-15") == "7,15");
}

// Properties: no two parts of any rank share a core; input and sync are on a node of compute as
// long as the rank has one node.
TEST_CASE("scp divides whole cores in the order of the topology", "[base][topology]") {
  for (int ranks = 1; ranks <= 2; ++ranks) {
    std::set<int> taken;
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(ranks, rank);
      const Placement placement = Place("scp", {rank, ranks, rank, ranks});
      CHECK(placement.notes.empty());
      for (const auto* part : {&placement.compute, &placement.input, &placement.sync}) {
        CHECK(part->size() % 2 == 0);
        std::set<int> cores;
        for (const int number : *part) cores.insert(number % kCores);
        CHECK(cores.size() == part->size() / 2);
        for (const int core : cores) CHECK(taken.insert(core).second);
      }
    }
    CHECK(taken.size() == kCores);
  }
  const Placement second = Place("scp", {1, 2, 1, 2});
  CHECK(second.Describe() ==
        "compute on cores 4-5,12-13 (core:4-5, numa:1), input on cores 6,14 "
        "(core:6, numa:1), sync on cores 7,15 (core:7, numa:1)");
  // Two cores for each rank, but four hardware threads.
  const Placement narrow = Place("scp", {3, 4, 3, 4});
  CHECK(CoresText(narrow.compute) == "6,14");
  CHECK(CoresText(narrow.input) == "7");
  CHECK(CoresText(narrow.sync) == "15");
  REQUIRE(narrow.notes.size() == 1);
  CHECK(narrow.notes[0] ==
        "placement: 8 cores are fewer than 3 for each rank, so scp takes each hyperthread for a "
        "core");
  CHECK(Place("scp", {0, 6, 0, 6}).Describe().empty());
  // A core outside the topology, as after hot plugging: the kernel's order.
  HostCores grown = HostWith("0-5");
  grown.allowed.push_back(99);
  CHECK(CoresText(Good(PlaceThreads("scp", grown, {})).sync) == "99");
}

TEST_CASE("Words that the host does not have are refused by name", "[base][topology]") {
  CHECK(WhyNot("sync=core:9").find("core:9 does not exist: this host has core:0-7") !=
        std::string::npos);
  CHECK(WhyNot("sync=numa:2").find("numa:2 does not exist: this host has numa:0-1") !=
        std::string::npos);
  CHECK(WhyNot("sync=core:5", "0-3")
            .find("core:5 may not be used by this process, which may use core:0-3") !=
        std::string::npos);
  for (const std::string bad :
       {"sync=socket:0", "sync=core:", "sync=core:x", "sync=core:1-", "sync=core:1,sync=near",
        "sync=near,sync=near", "sync=nearby", "sync=core:core:1", "sync=:1", "near"}) {
    INFO("'" << bad << "'");
    CHECK_FALSE(WhyNot(bad).empty());
  }
  HostCores unknown = HostWith("0-15");
  unknown.topology.clear();
  unknown.why_no_topology = "the reason";
  for (const std::string word : {"sync=core:1", "input=numa:0", "compute=0,sync=near"}) {
    const Result<Placement> placement = PlaceThreads(word, unknown, {});
    REQUIRE_FALSE(placement.has_value());
    CHECK(placement.error().code() == ErrorCode::kUnsupported);
    CHECK(placement.error().message().find("unknown: the reason; or give numbers") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace lmdbio
