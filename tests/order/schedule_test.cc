#include "lmdbio/order/schedule.h"

#include <algorithm>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/random.h"

namespace lmdbio::order {
namespace {

// Does not overflow here.
__extension__ using Wide = unsigned __int128;

constexpr Tail kTails[] = {Tail::kWrap, Tail::kShort, Tail::kDrop};
constexpr Share kShares[] = {Share::kBlock, Share::kRoundRobin};

// The stream dealt out record by record: the batches of the first `epoch_count` epochs, as lists of
// positions.
std::vector<std::vector<uint64_t>> DealtBatches(uint64_t record_count, uint64_t batch_size,
                                                Tail tail, uint64_t epoch_count) {
  std::vector<std::vector<uint64_t>> batches(1);
  for (uint64_t position = 0; position < record_count * epoch_count; ++position) {
    batches.back().push_back(position);
    const bool ends_epoch = (position + 1) % record_count == 0;
    const bool is_full = batches.back().size() == batch_size;
    if (ends_epoch && !is_full && tail == Tail::kDrop) batches.back().clear();
    if (is_full || (ends_epoch && tail == Tail::kShort)) batches.emplace_back();
  }
  batches.pop_back();  // of kWrap, what the epochs to come would fill
  return batches;
}

void CheckBatch(const BatchSpan& batch, const std::vector<uint64_t>& dealt, uint64_t record_count,
                Tail tail) {
  REQUIRE(batch.first_position == dealt.front());
  REQUIRE(batch.record_count == dealt.size());
  REQUIRE(batch.epoch == dealt.front() / record_count);
  const auto is_last = [&](uint64_t position) { return (position + 1) % record_count == 0; };
  bool ends_epoch = std::any_of(dealt.begin(), dealt.end(), is_last);
  // What is left behind it would not fill another.
  if (tail == Tail::kDrop) {
    ends_epoch = record_count - (dealt.back() % record_count + 1) < dealt.size();
  }
  REQUIRE(batch.ends_epoch == ends_epoch);
}

TEST_CASE("Schedule deals out what a simulation deals out", "[order][schedule]") {
  for (uint64_t record_count = 1; record_count <= 12; ++record_count) {
    for (uint64_t batch_size = 1; batch_size <= 25; ++batch_size) {
      for (const Tail tail : kTails) {
        if (tail == Tail::kDrop && batch_size > record_count) continue;
        CAPTURE(record_count, batch_size, static_cast<int>(tail));
        const Schedule schedule(record_count, batch_size, tail);
        const auto dealt = DealtBatches(record_count, batch_size, tail, /*epoch_count=*/9);
        for (uint64_t number = 0; number < dealt.size(); ++number) {
          const BatchSpan batch = schedule.Batch(number);
          REQUIRE(batch.number == number);
          CheckBatch(batch, dealt[number], record_count, tail);
        }
        const auto in_first_epoch = [&](const auto& one) { return one.front() < record_count; };
        if (!dealt.empty()) {
          REQUIRE(schedule.batches_per_epoch() ==
                  static_cast<uint64_t>(std::count_if(dealt.begin(), dealt.end(), in_first_epoch)));
        }
      }
    }
  }
}

// The walk dealt out in turn: of the whole batches of an epoch, `chunk_batches` in a row at a time.
TEST_CASE("Groups hold what is dealt out in turn", "[order][schedule]") {
  for (uint64_t record_count = 1; record_count <= 30; ++record_count) {
    for (uint64_t batch_size = 1; batch_size <= record_count + 1; ++batch_size) {
      for (const uint64_t chunk_batches : {1U, 2U, 3U, 7U}) {
        for (const Tail tail : kTails) {
          if (tail == Tail::kDrop && batch_size > record_count) continue;
          CAPTURE(record_count, batch_size, chunk_batches, static_cast<int>(tail));
          const Schedule schedule(record_count, batch_size, tail, chunk_batches);
          uint64_t in_chunk = 0;  // whole batches of this epoch since the last group ended
          for (uint64_t number = 0; number < 40; ++number) {
            const BatchSpan batch = schedule.Batch(number);
            const BatchGroup group = schedule.Group(number);
            REQUIRE(group.first_batch <= number);
            REQUIRE(number < group.first_batch + group.batch_count);
            REQUIRE(number - group.first_batch == in_chunk);
            const bool is_whole =
                batch.record_count == batch_size &&
                (batch.first_position + batch_size - 1) / record_count == batch.epoch;
            const bool is_last =
                !is_whole || ++in_chunk == chunk_batches ||
                schedule.Batch(number + 1).epoch != batch.epoch ||
                schedule.Batch(number + 1).record_count != batch_size ||
                (schedule.Batch(number + 1).first_position + batch_size - 1) / record_count !=
                    batch.epoch;
            REQUIRE(is_last == (number + 1 == group.first_batch + group.batch_count));
            if (is_last) in_chunk = 0;
          }
        }
      }
    }
  }
}

TEST_CASE("A group's positions are its records of the walk, each once", "[order][schedule]") {
  for (uint64_t batch_count = 1; batch_count <= 9; ++batch_count) {
    for (uint64_t batch_size = 1; batch_size <= 9; ++batch_size) {
      const BatchGroup group{5, batch_count, 1000, batch_count * batch_size};
      CAPTURE(batch_count, batch_size);
      std::vector<int> seen(group.record_count, 0);
      std::vector<uint64_t> filled(batch_count, 0);
      for (uint64_t i = 0; i < group.record_count; ++i) {
        const uint64_t batch = group.BatchOf(i);
        const uint64_t into = group.PositionOf(i) - group.first_position;
        REQUIRE(batch == i % batch_count);
        REQUIRE(into / batch_size == batch);
        REQUIRE(into % batch_size == filled[batch]++);
        ++seen[into];
      }
      REQUIRE(std::count(seen.begin(), seen.end(), 1) == static_cast<long>(group.record_count));
    }
  }
}

TEST_CASE("Every position of a batch is one rank's", "[order][schedule]") {
  for (uint64_t first = 0; first <= 13; ++first) {
    for (uint64_t count = 1; count <= 13; ++count) {
      for (int rank_count = 1; rank_count <= 13; ++rank_count) {
        const BatchSpan batch{0, first, count, 0, false};
        for (const Share share : kShares) {
          CAPTURE(first, count, rank_count, static_cast<int>(share));
          std::vector<uint64_t> counts(static_cast<size_t>(rank_count), 0);
          int last_owner = 0;
          for (uint64_t position = first; position < first + count; ++position) {
            const int owner = OwnerOf(batch, position, share, rank_count);
            REQUIRE(owner >= 0);
            REQUIRE(owner < rank_count);
            if (share == Share::kBlock) REQUIRE(owner >= last_owner);
            if (share == Share::kRoundRobin) {
              REQUIRE(static_cast<uint64_t>(owner) == position % static_cast<uint64_t>(rank_count));
            }
            last_owner = owner;
            ++counts[static_cast<size_t>(owner)];
          }
          const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
          REQUIRE(*most - *least <= 1);
          for (int rank = 0; rank < rank_count; ++rank) {
            REQUIRE(ShareCount(batch, share, rank, rank_count) ==
                    counts[static_cast<size_t>(rank)]);
          }
        }
      }
    }
  }
}

// Caffe's solver `rank` of `solver_count`, each with batches of `each`, skips what the others take:
// item i of its batch t is record ((t * each + i) * solver_count + rank) mod N.
TEST_CASE("Round-robin shares are those of Caffe's solvers", "[order][schedule]") {
  for (const uint64_t record_count : {1U, 5U, 12U, 100U}) {
    for (const uint64_t each : {1U, 3U, 7U}) {
      for (const uint64_t solver_count : {1U, 2U, 5U}) {
        const Schedule schedule(record_count, each * solver_count, Tail::kWrap);
        for (uint64_t t = 0; t < 30; ++t) {
          const BatchSpan batch = schedule.Batch(t);
          for (uint64_t rank = 0; rank < solver_count; ++rank) {
            uint64_t i = 0;
            for (uint64_t p = batch.first_position; p < batch.first_position + batch.record_count;
                 ++p) {
              if (OwnerOf(batch, p, Share::kRoundRobin, static_cast<int>(solver_count)) !=
                  static_cast<int>(rank)) {
                continue;
              }
              REQUIRE(schedule.RecordOfWalk(p).value ==
                      ((t * each + i) * solver_count + rank) % record_count);
              ++i;
            }
            REQUIRE(i == each);
          }
        }
      }
    }
  }
}

TEST_CASE("Shares of huge batches do not overflow", "[order][schedule]") {
  test::Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const int rank_count = static_cast<int>(random.Between(1, 100'000));
    const uint64_t record_count = random.Next() >> (1 + random.Below(40));
    const BatchSpan batch{0, random.Next() >> 1, record_count + 1, 0, false};
    const uint64_t into = random.Below(batch.record_count);
    CAPTURE(rank_count, batch.record_count, batch.first_position, into);
    const int owner = OwnerOf(batch, batch.first_position + into, Share::kBlock, rank_count);
    const auto part = [&](int rank) {
      return static_cast<uint64_t>(Wide{batch.record_count} * static_cast<unsigned>(rank) /
                                   static_cast<unsigned>(rank_count));
    };
    REQUIRE(part(owner) <= into);
    REQUIRE(into < part(owner + 1));
    REQUIRE(ShareCount(batch, Share::kBlock, owner, rank_count) == part(owner + 1) - part(owner));
  }
}

TEST_CASE("Positions beyond 2^62 are right", "[order][schedule]") {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  for (const Tail tail : kTails) {
    CAPTURE(static_cast<int>(tail));
    const Schedule schedule(kHuge - 1, kHuge / 2, tail);
    const uint64_t last = schedule.batches_per_epoch() - 1;
    const BatchSpan batch = schedule.Batch(last);
    CHECK(batch.first_position == last * (kHuge / 2));
    CHECK(batch.ends_epoch);
    CHECK(batch.epoch == 0);
    CHECK(schedule.Batch(last + 1).epoch == 1);
    const uint64_t taken = batch.record_count;
    CHECK(taken == (tail == Tail::kShort ? kHuge / 2 - 1 : kHuge / 2));
    for (const Share share : kShares) {
      uint64_t sum = 0;
      for (int rank = 0; rank < 7; ++rank) sum += ShareCount(batch, share, rank, 7);
      CHECK(sum == taken);
    }
  }
  const Schedule one_by_one(3, 1, Tail::kWrap);
  const BatchSpan late = one_by_one.Batch((uint64_t{1} << 63) - 1);
  CHECK(late.first_position == (uint64_t{1} << 63) - 1);
  CHECK(late.epoch == ((uint64_t{1} << 63) - 1) / 3);
  CHECK(one_by_one.RecordOfWalk(late.first_position).value == ((uint64_t{1} << 63) - 1) % 3);
}

}  // namespace
}  // namespace lmdbio::order
