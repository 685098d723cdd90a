// Goal: the collectives of each name pass the checks of all collectives, for ranks on one or
// several hosts; an unavailable name is refused on every rank.
// Method: ranks are threads, on emulated hosts.
#include "lmdbio/sync/tiers/make_collectives.h"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

using Complaint = std::string;

ranks::SoloHealth& Healthy() {
  static ranks::SoloHealth health;
  return health;
}

// Of all ranks.
std::vector<Complaint> ComplaintsAbout(ranks::ThreadRanks ranks, const CollectiveOptions& options,
                                       std::string& description) {
  const auto rank_count = static_cast<size_t>(ranks.rank_count);
  std::vector<test::Complaints> complaints(rank_count);
  const test::CollectiveSizes sizes{.small = {0, 8, 40, 1000}, .large = {65'528, 200'008}};
  ranks::RunAsThreads(ranks, [&](ranks::Group& group) {
    test::Complaints& mine = complaints[static_cast<size_t>(group.rank())];
    const auto made = MakeCollectives(group, Healthy(), options);
    mine.Expect(made.has_value(), "not made: " + (made ? "" : made.error().message()));
    if (!made) return;
    for (const auto& check : test::CollectiveChecks()) check.run(**made, sizes, mine);
    if (group.rank() == 0) description = (*made)->Description();
    const uint64_t ample_bytes = (*made)->ample_bytes();
    const auto all = group.AllGather(std::as_bytes(std::span(&ample_bytes, 1)));
    for (size_t at = 0; at < all->size(); at += sizeof ample_bytes) {
      mine.Expect(std::memcmp(&(*all)[at], &ample_bytes, sizeof ample_bytes) == 0, "ample_bytes");
    }
    if (group.size() > 1) test::CheckStop(**made, mine);
  });
  std::vector<Complaint> all;
  for (const auto& one : complaints) all.insert(all.end(), one.list().begin(), one.list().end());
  return all;
}

CollectiveOptions Named(const std::string& name) {
  return {
      .collective = name, .registered_bytes = 1 << 20, .trial_time = std::chrono::milliseconds(10)};
}

TEST_CASE("By each name there are collectives for ranks anywhere", "[collective][make]") {
  const auto ranks =
      GENERATE(ranks::ThreadRanks{1, 1}, ranks::ThreadRanks{3, 3}, ranks::ThreadRanks{4, 2},
               ranks::ThreadRanks{3, 1}, ranks::ThreadRanks{5, 4});
  const std::string name = GENERATE("auto", "ring", "halving", "direct");
  INFO(name << ", " << ranks.rank_count << " ranks, " << ranks.ranks_per_host << " a host");
  std::string description;
  CHECK(ComplaintsAbout(ranks, Named(name), description) == std::vector<Complaint>{});
  const bool is_tiered = ranks.ranks_per_host > 1 && ranks.rank_count > ranks.ranks_per_host;
  CHECK((description.find("between 2 hosts") != std::string::npos) ==
        (name == "auto" && is_tiered));
}

TEST_CASE("Hosts may have several roots each", "[collective][make]") {
  const auto ranks = GENERATE(ranks::ThreadRanks{4, 2}, ranks::ThreadRanks{5, 3},
                              ranks::ThreadRanks{3, 3}, ranks::ThreadRanks{1, 1});
  CollectiveOptions options = Named("auto");
  options.host_roots = 2;
  std::string description;
  CHECK(ComplaintsAbout(ranks, options, description) == std::vector<Complaint>{});
  const bool is_tiered = ranks.rank_count > ranks.ranks_per_host;
  CHECK((description.find("between 2 hosts, with 2 roots each") != std::string::npos) == is_tiered);
}

// Whether the collectives of all ranks promise reproducible sums. Ranks that differ are an error.
bool AreReproducible(const ranks::ThreadRanks& ranks, const CollectiveOptions& options) {
  std::vector<int> promises(static_cast<size_t>(ranks.rank_count), -1);
  ranks::RunAsThreads(ranks, [&](ranks::Group& group) {
    const auto made = MakeCollectives(group, Healthy(), options);
    if (made) promises[static_cast<size_t>(group.rank())] = (*made)->is_reproducible() ? 1 : 0;
  });
  for (const int promise : promises) CHECK(promise == promises.front());
  CHECK(promises.front() >= 0);
  return promises.front() == 1;
}

TEST_CASE("Reproducible sums are promised where they are", "[collective][make]") {
  const ranks::ThreadRanks alone{1, 1};
  const ranks::ThreadRanks on_host{3, 3};
  const ranks::ThreadRanks on_hosts{3, 1};
  const ranks::ThreadRanks in_tiers{4, 2};
  CollectiveOptions usual = Named("auto");
  usual.trial_time = std::chrono::milliseconds(0);  // the usual table has several algorithms
  CHECK(AreReproducible(alone, usual));
  CHECK(AreReproducible(on_host, usual));
  CHECK_FALSE(AreReproducible(on_hosts, usual));
  CHECK_FALSE(AreReproducible(in_tiers, usual));
  CollectiveOptions reproducible = Named("auto");
  reproducible.is_reproducible = true;
  for (const ranks::ThreadRanks& ranks : {alone, on_host, on_hosts, in_tiers}) {
    CHECK(AreReproducible(ranks, reproducible));
  }
  for (const ranks::ThreadRanks& ranks : {on_hosts, in_tiers}) {
    CHECK(AreReproducible(ranks, Named("halving")));
    CHECK(AreReproducible(ranks, Named("direct")));
    CHECK_FALSE(AreReproducible(ranks, Named("ring")));
  }
  reproducible.host_roots = 2;
  CHECK_FALSE(AreReproducible(in_tiers, reproducible));
}

TEST_CASE("More roots than ranks of a host are refused", "[collective][make]") {
  struct Refused {
    ranks::ThreadRanks ranks;
    std::string name;
    std::string words;
  };
  const auto refused = GENERATE(
      Refused{{3, 2},
              "auto",
              "host_roots: 2 roots on each host need as many ranks; the host of rank 2 has 1"},
      Refused{{3, 1},
              "auto",
              "host_roots: 2 roots on each host need as many ranks; the host of rank 0 has 1"},
      Refused{
          {4, 2}, "ring", "host_roots: 2 roots on each host need collective 'auto', not 'ring'"});
  std::vector<Complaint> heard(static_cast<size_t>(refused.ranks.rank_count));
  ranks::RunAsThreads(refused.ranks, [&](ranks::Group& group) {
    CollectiveOptions options = Named(refused.name);
    options.host_roots = 2;
    const auto made = MakeCollectives(group, Healthy(), options);
    if (!made && made.error().code() == ErrorCode::kInvalidArgument) {
      heard[static_cast<size_t>(group.rank())] = made.error().message();
    }
  });
  CHECK(heard == std::vector<Complaint>(heard.size(), refused.words));
}

TEST_CASE("The note of shared memory is part of the description", "[collective][make]") {
  const int ranks_per_host = GENERATE(2, 4);
  std::string description;
  ranks::RunAsThreads({4, ranks_per_host}, [&](ranks::Group& group) {
    ranks::HookedGroup hooked(
        group,
        [](ranks::Group& host, uint64_t bytes) -> Result<std::unique_ptr<ranks::SharedMemory>> {
          LMDBIO_TRY(auto memory, host.AllocateShared(bytes));
          return std::make_unique<ranks::NotedMemory>(std::move(memory), "memory of another kind");
        });
    const auto made = MakeCollectives(hooked, Healthy(), Named("auto"));
    if (made && group.rank() == 0) description = (*made)->Description();
  });
  CHECK(description.find("memory of another kind") != std::string::npos);
}

TEST_CASE("Shared memory is for the ranks of a host", "[collective][make]") {
  std::string description;
  CHECK(ComplaintsAbout({3, 3}, Named("shm"), description) == std::vector<Complaint>{});
}

TEST_CASE("An unknown or unavailable collective is refused by name", "[collective][make]") {
  struct Refused {
    std::string name;
    ErrorCode code;
    std::string words;
  };
  const auto refused = GENERATE(
      Refused{"magic", ErrorCode::kInvalidArgument,
              "collective: 'magic' is unknown; expected one of auto, shm, ring, halving, direct, "
              "mpi"},
      Refused{
          "doubling", ErrorCode::kInvalidArgument,
          "collective: 'doubling' is unknown; expected one of auto, shm, ring, halving, direct, "
          "mpi"},
      Refused{"shm", ErrorCode::kUnsupported,
              "collective: 'shm' works on one host only, the job has 2; use 'auto'"},
      Refused{"mpi", ErrorCode::kUnsupported,
              "collective: 'mpi' needs a communicator; use MpiCollectives from "
              "lmdbio/sync/over_mpi/mpi_collectives.h"});
  std::vector<Complaint> heard(4);
  ranks::RunAsThreads({4, 2}, [&](ranks::Group& group) {
    const auto made = MakeCollectives(group, Healthy(), Named(refused.name));
    if (!made && made.error().code() == refused.code) {
      heard[static_cast<size_t>(group.rank())] = made.error().message();
    }
  });
  CHECK(heard == std::vector<Complaint>(4, refused.words));
}

}  // namespace
}  // namespace lmdbio::sync
