// Goal: the layout parts of all hosts reach all hosts unchanged, round after round, and all hosts
// soon detect a host that leaves.
// Method: threads act as hosts; the layouts consist of synthetic runs.
#include "lmdbio/load/locate/layout_all_gather.h"

#include <string>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

file::Layout AnyPiece(uint64_t seed, uint64_t run_count) {
  test::Random random(seed);
  file::LayoutBuilder builder;
  for (uint64_t i = 0; i < run_count; ++i) {
    std::vector<Extent> values(random.Between(1, 200));
    for (Extent& value : values) value = {random.Below(1 << 30), random.Below(1 << 20)};
    const bool is_duplicates = random.Below(4) == 0;
    const PageNo leaf{random.Below(1 << 20)};
    REQUIRE(builder.Add({{builder.record_count()},
                         leaf,
                         static_cast<uint32_t>(random.Below(100)),
                         is_duplicates ? file::RunKind::kDuplicates : file::RunKind::kNodes,
                         is_duplicates ? PageNo{random.Below(1 << 20)} : leaf,
                         values,
                         {}}));
  }
  return builder.Finish();
}

TEST_CASE("Every host gets the parts of all hosts, round after round", "[exchange][piece_ring]") {
  const int hosts = GENERATE(2, 3, 8);
  std::vector<std::vector<std::byte>> expected;
  for (int round = 0; round < 3; ++round) {
    for (int host = 0; host < hosts; ++host) {
      // Some parts are empty, as at the end of a walk with too few leaves for all hosts.
      expected.push_back(EncodePiece(
          AnyPiece(static_cast<uint64_t>(round * 100 + host), host == 1 && round == 2 ? 0 : 50)));
    }
  }
  std::vector<std::string> wrong(static_cast<size_t>(hosts));
  ranks::RunAsThreads({hosts, 1}, [&](ranks::Group& group) {
    std::string& mine = wrong[static_cast<size_t>(group.rank())];
    const auto ring = LayoutAllGather::Create(group, group.rank());
    if (!ring) return void(mine = ring.error().message());
    for (size_t round = 0; round < 3; ++round) {
      const size_t first = round * static_cast<size_t>(hosts);
      const auto own = DecodePiece(expected[first + static_cast<size_t>(group.rank())]);
      const auto pieces = (*ring)->Exchange(*own);
      if (!pieces) return void(mine = pieces.error().message());
      for (size_t host = 0; host < static_cast<size_t>(hosts); ++host) {
        if (host == static_cast<size_t>(group.rank())) continue;
        if (EncodePiece((*pieces)[host]) != expected[first + host]) mine = "another piece";
      }
    }
    if (!group.Barrier()) mine = "Barrier failed";
  });
  for (const std::string& why : wrong) CHECK(why.empty());
}

// Every host posts its part and then waits for another. The parts must leave while it waits.
TEST_CASE("Parts may be larger than the buffers of the connections", "[exchange][piece_ring]") {
  constexpr int kHosts = 3;
  constexpr uint64_t kRuns = 12'000;  // about 20 MB; a connection holds some MB
  std::vector<std::vector<std::byte>> expected;
  for (uint64_t host = 0; host < kHosts; ++host) {
    expected.push_back(EncodePiece(AnyPiece(host, kRuns)));
  }
  std::vector<std::string> wrong(kHosts);
  ranks::RunAsThreads({kHosts, 1}, [&](ranks::Group& group) {
    const auto own = static_cast<size_t>(group.rank());
    const auto ring = LayoutAllGather::Create(group, group.rank());
    if (!ring) return void(wrong[own] = ring.error().message());
    const auto pieces = (*ring)->Exchange(*DecodePiece(expected[own]));
    if (!pieces) return void(wrong[own] = pieces.error().message());
    for (size_t host = 0; host < kHosts; ++host) {
      if (host == own) continue;
      if (EncodePiece((*pieces)[host]) != expected[host]) wrong[own] = "another piece";
    }
    if (!group.Barrier()) wrong[own] = "Barrier failed";
  });
  for (const std::string& why : wrong) CHECK(why.empty());
}

TEST_CASE("A host that leaves the ring breaks it for all", "[exchange][piece_ring]") {
  const bool says_so = GENERATE(true, false);
  const std::vector<std::byte> piece = EncodePiece(AnyPiece(1, 5));
  std::vector<int> failures(4);
  ranks::RunAsThreads({4, 1}, [&](ranks::Group& group) {
    auto ring = LayoutAllGather::Create(group, group.rank());
    if (!ring) std::terminate();
    if (group.rank() == 2) {
      if (says_so) (*ring)->Leave(Error(ErrorCode::kCorruption, "page 7: bad"));
      if (!says_so) ring->reset();
    } else if (!(*ring)->Exchange(*DecodePiece(piece))) {
      failures[static_cast<size_t>(group.rank())] = 1;
    }
    if (!group.Barrier()) std::terminate();
  });
  CHECK(failures == std::vector<int>{1, 1, 0, 1});
}

TEST_CASE("DecodePiece refuses malformed messages", "[exchange][piece_ring]") {
  const std::vector<std::byte> good = EncodePiece(AnyPiece(3, 4));
  CHECK(DecodePiece(good));
  CHECK(DecodePiece({}));
  for (const size_t length : {1U, 31U, 32U, 40U}) {
    CHECK_FALSE(DecodePiece(Bytes(good).first(length)));
  }
}

}  // namespace
}  // namespace lmdbio::load
