// Goal: the collectives of several hosts pass the checks of all collectives; an error on one host
// reaches all hosts.
// Method: ranks are threads, on emulated hosts: consecutive ranks, or every other rank.
#include "lmdbio/sync/tiers/tiered_collectives.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

using Complaint = std::string;

ranks::SoloHealth& SoloHealth() {
  static ranks::SoloHealth health;
  return health;
}

// Counts the bytes that a rank sends.
class CountingWire final : public Wire {
 public:
  CountingWire(std::unique_ptr<Wire> wire, uint64_t& sent_bytes)
      : wire_(std::move(wire)), sent_bytes_(sent_bytes) {}
  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  Status StartSend(int to, Bytes bytes) override {
    sent_bytes_ += bytes.size();
    return wire_->StartSend(to, bytes);
  }
  Status StartReceive(int from, MutableBytes bytes) override {
    return wire_->StartReceive(from, bytes);
  }
  Status AwaitSend(int to) override { return wire_->AwaitSend(to); }
  Status AwaitReceive(int from) override { return wire_->AwaitReceive(from); }
  Result<bool> IsSent(int to) override { return wire_->IsSent(to); }
  Result<bool> IsReceived(int from) override { return wire_->IsReceived(from); }
  void Stop(const Error& why) override { wire_->Stop(why); }

 private:
  std::unique_ptr<Wire> wire_;
  uint64_t& sent_bytes_;
};

std::unique_ptr<Collectives> OverLinks(ranks::Group& group, int known_as, LinkWire** link = nullptr,
                                       uint64_t* sent_bytes = nullptr) {
  auto opened = OpenLinkWire(group, SoloHealth(), {.known_as = known_as});
  if (!opened) return nullptr;
  if (link != nullptr) *link = opened->get();
  std::unique_ptr<Wire> wire = std::move(*opened);
  if (sent_bytes != nullptr) wire = std::make_unique<CountingWire>(std::move(wire), *sent_bytes);
  auto made =
      WireCollectives(std::move(wire), {.table = OneWireAlgorithm(WireAlgorithm::kRing, 5'000, 3)});
  return made ? std::move(*made) : nullptr;
}

// host  in which this rank is
std::unique_ptr<Collectives> Tiers(ranks::Group& group, int host, LinkWire** link = nullptr,
                                   const TieredOptions& options = {.apart_bytes_max = 10'000},
                                   uint64_t* sent_bytes = nullptr) {
  const auto on_host = group.Split(host);
  auto places = ranks::FindHostPlaces(group, **on_host);
  const bool is_root = (*on_host)->rank() < options.host_roots;
  const auto same_tier = group.Split(is_root ? (*on_host)->rank() : options.host_roots);
  auto below = (*on_host)->size() == 1 ? SoloCollectives() : OverLinks(**on_host, group.rank());
  auto above = is_root ? OverLinks(**same_tier, group.rank(), link, sent_bytes) : nullptr;
  return TieredCollectives(std::move(*places), group.rank(), std::move(below), std::move(above),
                           options);
}

TEST_CASE("Tiers do what any collectives do", "[collective][tiered]") {
  const int rank_count = GENERATE(1, 2, 3, 5, 8);
  const bool are_neighbours = GENERATE(true, false);
  INFO(rank_count << " ranks, " << (are_neighbours ? "neighbours" : "every other rank"));
  const test::CollectiveSizes sizes{.large = {65'528, 200'008}};
  const auto complaints = test::RunCollectiveChecks(
      rank_count,
      [&](ranks::Group& group) {
        return Tiers(group, are_neighbours ? group.rank() / 3 : group.rank() % 2);
      },
      sizes);
  CHECK(complaints == std::vector<Complaint>{});
}

// The host of each rank.
struct Hosts {
  std::vector<int> of;
  int roots;
};

TEST_CASE("With several roots on each host tiers do what any collectives do",
          "[collective][tiered]") {
  // As many ranks on each host, or not; consecutive ranks, or not. In the last but one the order of
  // the second roots is not that of the hosts.
  const auto hosts =
      GENERATE(Hosts{{0, 0, 1, 1}, 2}, Hosts{{0, 0, 1, 1, 2, 2}, 2}, Hosts{{0, 0, 0, 1, 1, 1}, 3},
               Hosts{{0, 0, 0, 0, 1, 1, 1}, 3}, Hosts{{0, 1, 1, 0, 0}, 2}, Hosts{{0, 1, 0, 1}, 2});
  CAPTURE(hosts.of, hosts.roots);
  // Every size goes by parts, also one of less elements than roots.
  const test::CollectiveSizes sizes{.small = {0, 2, 4, 8, 24, 40, 1000},
                                    .large = {65'528, 200'008}};
  const auto complaints = test::RunCollectiveChecks(
      static_cast<int>(hosts.of.size()),
      [&](ranks::Group& group) {
        return Tiers(group, hosts.of[static_cast<size_t>(group.rank())], nullptr,
                     {.host_roots = hosts.roots, .apart_bytes_max = 0});
      },
      sizes);
  CHECK(complaints == std::vector<Complaint>{});
}

TEST_CASE("Each root moves its part of a large AllReduce between the hosts",
          "[collective][tiered]") {
  const auto roots = GENERATE(uint64_t{1}, uint64_t{2}, uint64_t{4});
  constexpr uint64_t kCount = 100'000;
  constexpr uint64_t kHeaderBytesMax = 1'000;
  std::vector<uint64_t> sent(8);
  std::vector<Complaint> wrong(8);
  ranks::RunAsThreads({8, 4}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto made =
        Tiers(group, group.rank() / 4, nullptr,
              {.host_roots = static_cast<int>(roots), .apart_bytes_max = 10'000}, &sent[rank]);
    std::vector<float> values(kCount, 1.0F);
    const auto outcome = made->AllReduce(
        {}, {reinterpret_cast<std::byte*>(values.data()), kCount, DataType::kFloat32},
        ReduceOp::kSum);
    if (!outcome || values != std::vector<float>(kCount, 8.0F)) wrong[rank] = "another sum";
  });
  CHECK(wrong == std::vector<Complaint>(8));
  // A ring of two ranks sends each byte once. Headers come on top, also for the agreement.
  const uint64_t part_bytes = kCount * sizeof(float) / roots;
  for (size_t rank = 0; rank < sent.size(); ++rank) {
    const uint64_t least = rank % 4 < roots ? part_bytes : 0;
    CHECK(sent[rank] >= least);
    CHECK(sent[rank] <= least + (least == 0 ? 0 : kHeaderBytesMax));
  }
}

TEST_CASE("Ranks know who is where", "[collective][tiered]") {
  std::vector<Complaint> wrong(5);
  ranks::RunAsThreads({5}, [&](ranks::Group& group) {
    const auto host = group.Split((group.rank() + 1) % 2);
    const auto places = ranks::FindHostPlaces(group, **host);
    if (!places || places->ranks != std::vector<std::vector<int>>{{0, 2, 4}, {1, 3}} ||
        places->host_of != std::vector<int>{0, 1, 0, 1, 0} ||
        places->place_of != std::vector<int>{0, 0, 1, 1, 2}) {
      wrong[static_cast<size_t>(group.rank())] = "something";
    }
  });
  CHECK(wrong == std::vector<Complaint>(5));
}

TEST_CASE("A root that dies is named on all hosts", "[collective][tiered]") {
  constexpr int kDead = 3;
  std::vector<Complaint> heard(6);
  ranks::RunAsThreads({6, 3}, [&](ranks::Group& group) {
    LinkWire* link = nullptr;
    const auto made = Tiers(group, group.rank() / 3, &link);
    static_cast<void>(made->Barrier({}));
    static_cast<void>(group.Barrier());
    auto& mine = heard[static_cast<size_t>(group.rank())];
    if (group.rank() == kDead) link->Sever();
    static_cast<void>(group.Barrier());
    if (group.rank() == kDead) {
      // Its own host learns it from elsewhere.
      made->Stop(Error(ErrorCode::kPeerFailed, "rank 3 on host-1 has ended unexpectedly"));
    }
    const auto got = made->Barrier({});
    mine = got ? "nothing" : got.error().message();
  });
  CHECK(heard == std::vector<Complaint>(6, "rank 3 on host-1 has ended unexpectedly"));
}

}  // namespace
}  // namespace lmdbio::sync
