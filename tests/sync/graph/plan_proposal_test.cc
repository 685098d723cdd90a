// Goal: proposals of all ranks merge to the same bytes in any order; damaged bytes are refused.
#include "lmdbio/sync/graph/plan_proposal.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::Random;

PlanProposal RandomProposal(Random& random, size_t tensor_count) {
  PlanProposal proposal{.epoch = 3, .digest = 77};
  for (size_t i = 0; i < tensor_count; ++i) {
    proposal.needs.push_back(static_cast<uint32_t>(random.Below(i + 1)));
    const auto ready_ns = static_cast<int64_t>(random.Below(1000));
    proposal.times.push_back({ready_ns, ready_ns + static_cast<int64_t>(random.Below(1000))});
  }
  proposal.length_ns = static_cast<int64_t>(random.Below(5000));
  proposal.spread_ns = static_cast<int64_t>(random.Below(5000));
  return proposal;
}

bool AreSame(const PlanProposal& a, const PlanProposal& b) {
  return a.epoch == b.epoch && a.digest == b.digest && a.needs == b.needs && a.times == b.times &&
         a.length_ns == b.length_ns && a.spread_ns == b.spread_ns && a.samples == b.samples;
}

TEST_CASE("A proposal is read as it was written", "[proposal]") {
  ForSeeds(100, [](uint64_t seed) -> std::string {
    Random random(seed);
    PlanProposal proposal = RandomProposal(random, random.Below(20));
    if (random.Below(2) == 0) proposal.times.clear();
    for (uint64_t i = random.Below(5); i > 0; --i) proposal.samples.push_back({i << 40, 7});
    const auto read = ReadProposal(WriteProposal(proposal));
    if (!read) return read.error().message();
    return AreSame(*read, proposal) ? "" : "it differs";
  });
}

TEST_CASE("The latest ready time and the earliest due time of all ranks hold", "[proposal]") {
  ForSeeds(200, [](uint64_t seed) -> std::string {
    Random random(seed);
    const size_t tensor_count = 1 + random.Below(6);
    std::vector<PlanProposal> ranks;
    for (size_t rank = 0; rank < 4; ++rank) ranks.push_back(RandomProposal(random, tensor_count));
    ranks[2].samples = {{1024, 10}, {4096, 11}};
    PlanProposal expected = ranks[0];
    for (const PlanProposal& one : ranks) {
      for (size_t i = 0; i < tensor_count; ++i) {
        expected.needs[i] = std::max(expected.needs[i], one.needs[i]);
        expected.times[i].ready_ns = std::max(expected.times[i].ready_ns, one.times[i].ready_ns);
        expected.times[i].due_ns = std::min(expected.times[i].due_ns, one.times[i].due_ns);
      }
      expected.length_ns = std::max(expected.length_ns, one.length_ns);
      expected.spread_ns = std::max(expected.spread_ns, one.spread_ns);
    }
    expected.samples = ranks[2].samples;
    if (random.Below(4) == 0) {
      ranks[random.Below(4)].times.clear();  // of no use without those of all ranks
      expected.times.clear();
    }
    std::vector<size_t> order = {0, 1, 2, 3};
    do {
      auto merged = WriteProposal(ranks[order[0]]);
      for (size_t i = 1; i < order.size(); ++i) {
        auto more = MergeProposals(merged, WriteProposal(ranks[order[i]]));
        if (!more) return more.error().message();
        merged = std::move(*more);
      }
      if (!AreSame(*ReadProposal(merged), expected)) return "another merge";
    } while (std::next_permutation(order.begin(), order.end()));
    return "";
  });
}

TEST_CASE("Damaged bytes of a proposal are refused", "[proposal]") {
  Random random(1);
  PlanProposal proposal = RandomProposal(random, 3);
  proposal.samples = {{1024, 10}};
  const std::vector<std::byte> whole = WriteProposal(proposal);
  const auto refuses = [](const PlanProposal& wrong, const std::string& words) {
    const auto read = ReadProposal(WriteProposal(wrong));
    return !read && read.error().code() == ErrorCode::kInvalidArgument &&
           read.error().message().find(words) != std::string::npos;
  };
  for (size_t size = 0; size < whole.size(); ++size) {
    REQUIRE_FALSE(ReadProposal(Bytes(whole).first(size)));
  }
  PlanProposal wrong = proposal;
  wrong.times.pop_back();
  CHECK(refuses(wrong, "3 tensors, 2 of them with times"));
  wrong = proposal;
  wrong.times[1].due_ns = -1;
  CHECK(refuses(wrong, "tensor 1 is ready at"));
  wrong = proposal;
  wrong.times[2].ready_ns = int64_t{1} << 62;
  CHECK(refuses(wrong, "tensor 2 is ready at"));
  wrong = proposal;
  wrong.length_ns = -5;
  CHECK(refuses(wrong, "-5 ns"));
  wrong = proposal;
  wrong.spread_ns = -7;
  CHECK(refuses(wrong, "-7 ns longer"));
  wrong = proposal;
  wrong.needs[1] = 2;
  CHECK(refuses(wrong, "tensor 1 needs 1, which is not before it"));
  wrong = proposal;
  wrong.samples[0].ns = -1;
  CHECK(refuses(wrong, "a transfer of 1024 bytes took -1 ns"));
  wrong.samples.assign(1025, {1, 1});
  CHECK(refuses(wrong, "at most 1024 transfers"));
}

TEST_CASE("Times of transfers are those of one rank", "[proposal]") {
  PlanProposal proposal{.epoch = 1, .samples = {{1024, 10}}};
  const auto bytes = WriteProposal(proposal);
  const auto merged = MergeProposals(bytes, bytes);
  REQUIRE_FALSE(merged);
  REQUIRE(merged.error().message() == "two plan proposals have times of transfers");
}

}  // namespace
}  // namespace lmdbio::sync
