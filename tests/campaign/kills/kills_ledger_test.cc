// Goal: the oracle of `kills` finds a record that is lost, comes twice or is another one, and
// states that differ; and it finds nothing in runs that are right.
#include "tests/campaign/kills/kills_ledger.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::test {
namespace {

// Eight records, of which record i has the digest 10 * i.
KillJob JobOfEight(const KillDatabase& database, load::Tail tail = load::Tail::kShort) {
  KillJob job;
  job.database = &database;
  job.epoch_count = 1;
  job.options.global_batch_size = 3;
  job.options.tail = tail;
  return job;
}

KillDatabase EightRecords() { return {"eight", "", {0, 10, 20, 30, 40, 50, 60, 70}}; }

// A rank that had these positions, one list for each batch, and saved a state after each.
KillTimeline RankWith(const std::vector<std::vector<uint64_t>>& batches, bool is_over = false) {
  KillTimeline timeline;
  for (const auto& positions : batches) {
    auto& batch = timeline.batches.emplace_back();
    for (const uint64_t position : positions) batch.push_back({position, 10 * position});
    timeline.states[timeline.batches.size()] = {"after " + std::to_string(timeline.batches.size()),
                                                false};
  }
  if (is_over) timeline.states.rbegin()->second.is_last = true;
  return timeline;
}

TEST_CASE("A stream in two runs is right, although the first had more than its last state") {
  const KillDatabase database = EightRecords();
  const KillJob job = JobOfEight(database);
  StreamLedger ledger(job);
  // Rank 1 was killed in its second batch.
  CHECK(ledger.Take({RankWith({{0, 1}, {3, 4}}), RankWith({{2}})}).empty());
  CHECK(ledger.state() == "after 1");
  CHECK_FALSE(ledger.is_over());
  CHECK_FALSE(ledger.Check().empty());
  CHECK(ledger.Take({RankWith({{3, 4, 5}, {6, 7}}, true)}).empty());
  CHECK(ledger.is_over());
  CHECK(ledger.Check().empty());
}

TEST_CASE("Runs without a common state keep nothing") {
  const KillDatabase database = EightRecords();
  const KillJob job = JobOfEight(database);
  StreamLedger ledger(job);
  CHECK(ledger.Take({RankWith({{0, 1}}), RankWith({})}).empty());
  CHECK(ledger.state().empty());
  CHECK(ledger.Take({RankWith({{0, 1, 2}, {3, 4, 5}, {6, 7}}, true)}).empty());
  CHECK(ledger.Check().empty());
}

TEST_CASE("A record that is lost, comes twice or is another one is a finding") {
  const KillDatabase database = EightRecords();
  const KillJob job = JobOfEight(database);
  StreamLedger ledger(job);
  REQUIRE(ledger.Take({RankWith({{0, 1, 2}})}).empty());
  SECTION("lost") {
    REQUIRE(ledger.Take({RankWith({{3, 5}, {6, 7}}, true)}).empty());
    CHECK(ledger.Check() == "epoch 0: position 4 is missing");
  }
  SECTION("lost at the end") {
    REQUIRE(ledger.Take({RankWith({{3, 4, 5}, {6}}, true)}).empty());
    CHECK(ledger.Check() == "epoch 0: 7 records, expected 8 of the database, each once");
  }
  SECTION("twice") {
    CHECK(ledger.Take({RankWith({{2, 3, 4}})}) == "position 2 came twice: batch 0 of a run");
  }
  SECTION("twice on two ranks") {
    CHECK(ledger.Take({RankWith({{3, 4}}), RankWith({{4}})}) ==
          "position 4 came twice: batch 0 of a run");
  }
  SECTION("another record than before") {
    KillTimeline other = RankWith({});
    other.batches.push_back({{1, 70}});
    CHECK(ledger.Take({other}) == "position 1 has another record than in an earlier run");
  }
  SECTION("one record at two positions") {
    KillTimeline rest = RankWith({{3, 4, 5}, {6}}, true);
    rest.batches.back().push_back({7, 60});
    REQUIRE(ledger.Take({rest}).empty());
    CHECK(ledger.Check() == "epoch 0: 8 records, expected 8 of the database, each once");
  }
}

TEST_CASE("States of ranks that differ after as many batches are a finding") {
  const KillDatabase database = EightRecords();
  const KillJob job = JobOfEight(database);
  StreamLedger ledger(job);
  KillTimeline other = RankWith({{1, 2}});
  other.states.at(1).text = "elsewhere";
  CHECK(ledger.Take({RankWith({{0}}), other}) ==
        "ranks have saved different states after 1 batches");
}

TEST_CASE("An epoch that drops its rest ends before it") {
  const KillDatabase database = EightRecords();
  const KillJob job = JobOfEight(database, load::Tail::kDrop);
  StreamLedger ledger(job);
  REQUIRE(ledger.Take({RankWith({{0, 1, 2}, {3, 4, 5}}, true)}).empty());
  CHECK(ledger.Check().empty());
}

}  // namespace
}  // namespace lmdbio::test
