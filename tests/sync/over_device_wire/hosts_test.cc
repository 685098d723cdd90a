// Ranks of several emulated hosts reduce on their GPUs: those of a host in arenas, their roots by
// messages. Oracle: the arithmetic of number_oracle.h over whole numbers, to the bit.
#include <string>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device_wire/rank_on_hosts.h"

namespace lmdbio::sync {
namespace {

using test::Complaints;
using test::EmulatedGpu;
using test::kOps;
using test::kTypes;
using test::Must;
using test::RankOnHosts;
using test::RunRanksOnDevice;
using Found = std::vector<std::string>;

struct HostsJob {
  int rank_count;
  int ranks_per_host;
  int gpu_count;  // of a host; ranks take them in turn
  WireAlgorithm algorithm;
};

TEST_CASE("Ranks of several hosts reduce on their GPUs", "[device_hosts]") {
  for (const HostsJob& job :
       {HostsJob{2, 1, 1, WireAlgorithm::kRing}, HostsJob{3, 1, 1, WireAlgorithm::kHalving},
        HostsJob{4, 2, 1, WireAlgorithm::kDirect}, HostsJob{5, 2, 2, WireAlgorithm::kRing},
        HostsJob{6, 3, 2, WireAlgorithm::kDoubling}, HostsJob{7, 3, 3, WireAlgorithm::kHalving}}) {
    CAPTURE(job.rank_count, job.ranks_per_host, job.gpu_count, NameOf(job.algorithm));
    const EmulatedGpu gpu(static_cast<uint64_t>(job.rank_count));
    const Found wrong = RunRanksOnDevice(
        job.rank_count,
        [&](ranks::Group& group, Complaints& mine) {
          const int place = group.rank() % job.ranks_per_host;
          RankOnHosts rank(group, gpu.Open(place % job.gpu_count), {.algorithm = job.algorithm});
          Must(rank.Make(group));
          for (const std::string& note : rank.notes()) mine.Expect(false, note);
          uint64_t seed = 0;
          for (const DataType type : kTypes) {
            for (const ReduceOp op : kOps) {
              for (const size_t count : {0, 1, 300}) {
                const std::string found =
                    ReduceOnHosts(rank, group, {.offset = 48, .count = count, .type = type},
                                  {op, op == ReduceOp::kSum ? 0.5 : 1.0}, ++seed);
                mine.Expect(found.empty(), fmt::format("rank {}: {}", group.rank(), found));
              }
            }
          }
          rank.Leave();
        },
        job.ranks_per_host);
    CHECK(wrong == Found{});
    CHECK(gpu->Objects().total() == 0);
  }
}

TEST_CASE("A description names the hosts, and that of a root the algorithms", "[device_hosts]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(
      3,
      [&](ranks::Group& group, Complaints& mine) {
        RankOnHosts rank(group, gpu.Open(), {});
        Must(rank.Make(group));
        const std::string expected = fmt::format(
            "reductions on GPUs: {} ranks; leaders: 0; order 'host'; arenas of 16384 "
            "bytes; 2 hosts{}",
            group.rank() < 2 ? 2 : 1,
            group.rank() == 1
                ? ""
                : "\nbetween hosts, reduced by GPUs:\nall others: ring, chunks of 256 "
                  "bytes, 2 at once");
        mine.Expect(rank.made()->Description() == expected, rank.made()->Description());
        rank.Leave();
      },
      2);
  CHECK(wrong == Found{});
}

TEST_CASE("A declined call changes no arena on any host", "[device_hosts]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(
      4,
      [&](ranks::Group& group, Complaints& mine) {
        RankOnHosts rank(group, gpu.Open(), {});
        Must(rank.Make(group));
        const DeviceValues values = {.offset = 0, .count = 100};
        const auto outcome = rank.made()->AllReduce({.is_declined = group.rank() == 3}, values,
                                                    ReduceOp::kSum, rank.stream());
        mine.Expect(outcome == CallOutcome::kDeclined, "not declined");
        const std::string found = ReduceOnHosts(rank, group, values, ReduceOp::kSum, 1);
        mine.Expect(found.empty(), found);
        rank.Leave();
      },
      2);
  CHECK(wrong == Found{});
}

// --- Refusals ----------------------------------------------------------------------------------

TEST_CASE("Memory that one host cannot map is a note on the ranks of all hosts", "[device_hosts]") {
  const EmulatedGpu gpu(1);
  device::DriverTable driver = gpu.table();
  driver.IpcGetMemHandle = nullptr;
  const auto lacking = test::Good(device::Device::Open(0, driver));
  const Found wrong = RunRanksOnDevice(
      4,
      [&](ranks::Group& group, Complaints& mine) {
        RankOnHosts rank(group, group.rank() == 3 ? lacking : gpu.Open(), {});
        Must(rank.Make(group));
        mine.Expect(rank.made() == nullptr && rank.notes().size() == 1, "no note");
        mine.Expect(
            rank.notes().front().find("this driver does not share memory") != std::string::npos,
            rank.notes().front());
        mine.Expect(gpu->Objects().imports == 0, "an arena is mapped");
      },
      2);
  CHECK(wrong == Found{});
}

TEST_CASE("Pages that a root cannot pin are an error on the ranks of all hosts", "[device_hosts]") {
  const EmulatedGpu gpu(1);
  const size_t kept = KeptCount();
  const Found wrong = RunRanksOnDevice(
      4,
      [&](ranks::Group& group, Complaints& mine) {
        RankOnHosts rank(group, gpu.Open(), {});
        Must(group.Barrier());
        if (group.rank() == 0) gpu->FailCall("cuMemHostRegister", 1, 2);
        Must(group.Barrier());
        const Status made = rank.Make(group);
        mine.Expect(!made && (made.error().code() == ErrorCode::kResourceExhausted ||
                              made.error().code() == ErrorCode::kPeerFailed),
                    "no error");
      },
      2);
  CHECK(wrong == Found{});
  CHECK(KeptCount() == kept);
  CHECK(gpu->Objects().total() == 0);
}

}  // namespace
}  // namespace lmdbio::sync
