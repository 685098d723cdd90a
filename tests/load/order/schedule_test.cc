#include "lmdbio/load/order/schedule.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

// Does not overflow here.
__extension__ using Wide = unsigned __int128;

constexpr Tail kTails[] = {Tail::kWrap, Tail::kShort, Tail::kDrop};
constexpr Share kShares[] = {Share::kBlock, Share::kRoundRobin, Share::kFill};

Schedule MakeSchedule(uint64_t record_count, uint64_t batch_size, Tail tail,
                      uint64_t chunk_batches = 1) {
  ScheduleOptions options;
  options.walk.record_count = record_count;
  options.walk.order = chunk_batches > 1 ? Order::kChunked : Order::kSequential;
  options.batch_size = batch_size;
  options.tail = tail;
  options.group_batches = chunk_batches;
  return Schedule(options);
}

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
  batches.pop_back();  // with kWrap, the batch that later epochs would fill
  return batches;
}

void CheckBatch(const BatchSpan& batch, const std::vector<uint64_t>& dealt, uint64_t record_count,
                Tail tail) {
  REQUIRE(batch.first_position == dealt.front());
  REQUIRE(batch.record_count == dealt.size());
  REQUIRE(batch.epoch == dealt.front() / record_count);
  const auto is_last = [&](uint64_t position) { return (position + 1) % record_count == 0; };
  bool ends_epoch = std::any_of(dealt.begin(), dealt.end(), is_last);
  // With kDrop an epoch ends with the batch behind which the rest does not fill another.
  if (tail == Tail::kDrop) {
    ends_epoch = record_count - (dealt.back() % record_count + 1) < dealt.size();
  }
  REQUIRE(batch.ends_epoch == ends_epoch);
}

TEST_CASE("Schedule agrees with a simulation", "[order][schedule]") {
  for (uint64_t record_count = 1; record_count <= 12; ++record_count) {
    for (uint64_t batch_size = 1; batch_size <= 25; ++batch_size) {
      for (const Tail tail : kTails) {
        if (tail == Tail::kDrop && batch_size > record_count) continue;
        CAPTURE(record_count, batch_size, static_cast<int>(tail));
        const Schedule schedule = MakeSchedule(record_count, batch_size, tail);
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

// The oracle deals out the walk in turn, among `chunk_batches` full batches of an epoch at a time.
TEST_CASE("Groups agree with records dealt out in turn", "[order][schedule]") {
  for (uint64_t record_count = 1; record_count <= 30; ++record_count) {
    for (uint64_t batch_size = 1; batch_size <= record_count + 1; ++batch_size) {
      for (const uint64_t chunk_batches : {1U, 2U, 3U, 7U}) {
        for (const Tail tail : kTails) {
          if (tail == Tail::kDrop && batch_size > record_count) continue;
          CAPTURE(record_count, batch_size, chunk_batches, static_cast<int>(tail));
          const Schedule schedule = MakeSchedule(record_count, batch_size, tail, chunk_batches);
          uint64_t in_chunk = 0;  // full batches of this epoch since the end of the last group
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

TEST_CASE("A group's positions hold each of its records once", "[order][schedule]") {
  for (uint64_t batch_count = 1; batch_count <= 9; ++batch_count) {
    for (uint64_t batch_size = 1; batch_size <= 9; ++batch_size) {
      BatchGroup group;
      group.first_batch = 5;
      group.batch_count = batch_count;
      group.first_position = 1000;
      group.record_count = batch_count * batch_size;
      group.by_slots = true;
      CAPTURE(batch_count, batch_size);
      std::vector<int> seen(group.record_count, 0);
      std::vector<uint64_t> filled(batch_count, 0);
      for (uint64_t i = 0; i < group.record_count; ++i) {
        const BatchGroup::BatchPosition place = group.PlaceOf(i, 0);
        const uint64_t batch = place.batch;
        const uint64_t into = group.PositionOf(place) - group.first_position;
        REQUIRE(group.WalkIndexOf(place) == i);
        REQUIRE(batch == i % batch_count);
        REQUIRE(into / batch_size == batch);
        REQUIRE(into % batch_size == filled[batch]++);
        ++seen[into];
      }
      REQUIRE(std::count(seen.begin(), seen.end(), 1) == static_cast<long>(group.record_count));
    }
  }
}

// Goal: in a short batch, the first ranks get the shares of a full batch, until the records end.
TEST_CASE("Share::kFill gives parts of full size in a short batch", "[order][schedule]") {
  for (uint64_t full = 1; full <= 13; ++full) {
    for (uint64_t count = 1; count <= full; ++count) {
      for (int rank_count = 1; rank_count <= 8; ++rank_count) {
        CAPTURE(full, count, rank_count);
        const BatchSpan whole{0, 100, full, 0, false};
        const BatchSpan batch{0, 100, count, 0, false, 0, full};
        std::vector<uint64_t> counts(static_cast<size_t>(rank_count), 0);
        for (uint64_t position = 100; position < 100 + count; ++position) {
          const int owner = OwnerOf(batch, position, Share::kFill, rank_count);
          REQUIRE(owner == OwnerOf(whole, position, Share::kBlock, rank_count));
          ++counts[static_cast<size_t>(owner)];
        }
        for (int rank = 0; rank < rank_count; ++rank) {
          REQUIRE(ShareCount(batch, Share::kFill, rank, rank_count) ==
                  counts[static_cast<size_t>(rank)]);
        }
      }
    }
  }
}

TEST_CASE("Every position of a batch belongs to one rank", "[order][schedule]") {
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
            const OwnedPositions around = OwnedAround(batch, position, share, rank_count);
            REQUIRE(around.Contains(position));
            REQUIRE(around.begin >= first);
            REQUIRE(around.end <= first + count);
            for (uint64_t other = around.begin; other < around.end; ++other) {
              REQUIRE(OwnerOf(batch, other, share, rank_count) == owner);
            }
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

// Caffe's solver `rank` of `solver_count`, each with batches of `each`, skips the records of the
// other solvers: item i of its batch t is record ((t * each + i) * solver_count + rank) mod N.
TEST_CASE("Round-robin shares are those of Caffe's solvers", "[order][schedule]") {
  for (const uint64_t record_count : {1U, 5U, 12U, 100U}) {
    for (const uint64_t each : {1U, 3U, 7U}) {
      for (const uint64_t solver_count : {1U, 2U, 5U}) {
        const Schedule schedule = MakeSchedule(record_count, each * solver_count, Tail::kWrap);
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
              REQUIRE(schedule.RecordAt(t, p - batch.first_position).value ==
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

TEST_CASE("Positions beyond 2^62 are correct", "[order][schedule]") {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  for (const Tail tail : kTails) {
    CAPTURE(static_cast<int>(tail));
    const Schedule schedule = MakeSchedule(kHuge - 1, kHuge / 2, tail);
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
  const Schedule one_by_one = MakeSchedule(3, 1, Tail::kWrap);
  const BatchSpan late = one_by_one.Batch((uint64_t{1} << 63) - 1);
  CHECK(late.first_position == (uint64_t{1} << 63) - 1);
  CHECK(late.epoch == ((uint64_t{1} << 63) - 1) / 3);
  CHECK(one_by_one.RecordAt(late.number, 0).value == ((uint64_t{1} << 63) - 1) % 3);
}

// Every combination of order, tail and reuse, in small.
std::vector<ScheduleOptions> AllSchedules(uint64_t record_count, uint64_t batch_size) {
  std::vector<ScheduleOptions> all;
  for (const Tail tail : kTails) {
    if (tail == Tail::kDrop && batch_size > record_count) continue;
    for (const Order order : {Order::kSequential, Order::kChunked, Order::kShuffle}) {
      for (const Shuffle shuffle : {Shuffle::kGlobal, Shuffle::kBlock}) {
        for (const uint64_t reuse : {1U, 2U, 5U}) {
          for (const uint64_t group_batches : {1U, 2U, 7U}) {
            ScheduleOptions options;
            options.walk = {record_count, order, shuffle, 9, 5};
            options.batch_size = batch_size;
            options.tail = tail;
            options.group_batches = group_batches;
            options.reuse = reuse;
            all.push_back(options);
          }
        }
      }
    }
  }
  return all;
}

TEST_CASE("Each record comes as often in an epoch as it is reused", "[order][schedule]") {
  for (const uint64_t record_count : {1U, 2U, 30U, 97U}) {
    for (const uint64_t batch_size : {1U, 8U, 30U, 100U}) {
      for (const ScheduleOptions& options : AllSchedules(record_count, batch_size)) {
        const Schedule schedule(options);
        CAPTURE(record_count, batch_size, static_cast<int>(options.tail),
                static_cast<int>(options.walk.order), static_cast<int>(options.walk.shuffle),
                options.reuse, options.group_batches);
        // After this many batches three epochs of the walk are complete, with batches that cross
        // the end of an epoch.
        const uint64_t end = 3 * schedule.positions_per_epoch();
        std::vector<uint64_t> seen(record_count, 0);
        uint64_t walked_max = 0;
        for (uint64_t number = 0;; ++number) {
          const BatchSpan batch = schedule.Batch(number);
          const BatchGroup group = schedule.Group(number);
          if (group.first_walk + group.record_count > 3 * record_count) {
            if (group.first_position >= end) break;
            if (number == group.first_batch + group.batch_count) break;
          }
          REQUIRE(batch.number == number);
          for (uint64_t slot = 0; slot < batch.record_count; ++slot) {
            const BatchGroup::BatchPosition place{number - group.first_batch, slot};
            const uint64_t i = group.WalkIndexOf(place);
            REQUIRE(i < group.record_count);
            const BatchGroup::BatchPosition back = group.PlaceOf(i, batch.pass);
            REQUIRE(back.batch == place.batch);
            REQUIRE(back.slot == place.slot);
            REQUIRE(group.PositionOf(place) == batch.first_position + slot);
            const uint64_t walk_place = group.first_walk + i;
            walked_max = std::max(walked_max, walk_place);
            if (walk_place < 3 * record_count) ++seen[schedule.RecordAt(number, slot).value];
          }
        }
        const uint64_t least = options.tail == Tail::kDrop ? 0 : 3 * options.reuse;
        for (const uint64_t count : seen) {
          REQUIRE(count >= least);
          REQUIRE(count <= 3 * options.reuse);
          REQUIRE(count % options.reuse == 0);
        }
      }
    }
  }
}

TEST_CASE("A record keeps its slot in every pass", "[order][schedule]") {
  for (const ScheduleOptions& options : AllSchedules(97, 8)) {
    const BatchGroup group = Schedule(options).Group(0);
    for (uint64_t i = 0; i < group.record_count; ++i) {
      const uint64_t slot = group.PlaceOf(i, 0).slot;
      for (uint64_t pass = 1; pass < group.pass_count; ++pass) {
        REQUIRE(group.PlaceOf(i, pass).slot == slot);
      }
    }
  }
}

TEST_CASE("Later passes form other batches", "[order][schedule]") {
  ScheduleOptions options;
  options.walk = {1000, Order::kSequential, Shuffle::kGlobal, 1, 1};
  options.batch_size = 10;
  options.group_batches = 20;
  options.reuse = 3;
  const Schedule schedule(options);
  // Two of a batch's ten records may have been together before, but never all ten.
  for (uint64_t number = 20; number < 60; ++number) {
    std::vector<uint64_t> batches;
    for (uint64_t slot = 0; slot < 10; ++slot) {
      batches.push_back(schedule.RecordAt(number, slot).value / 10);
    }
    std::sort(batches.begin(), batches.end());
    const auto distinct = std::unique(batches.begin(), batches.end()) - batches.begin();
    CAPTURE(number);
    CHECK(distinct >= 5);
  }
}

TEST_CASE("Dealt batches are frozen", "[order][schedule]") {
  ScheduleOptions options;
  options.walk = {1797, Order::kShuffle, Shuffle::kBlock, 42, 10};
  options.batch_size = 8;
  options.tail = Tail::kShort;
  options.group_batches = 5;
  options.reuse = 2;
  const Schedule schedule(options);
  const auto batch_of = [&](uint64_t number) {
    std::vector<uint64_t> records;
    for (uint64_t slot = 0; slot < 8; ++slot) {
      records.push_back(schedule.RecordAt(number, slot).value);
    }
    return records;
  };
  CHECK(batch_of(7) == std::vector<uint64_t>{101, 109, 92, 95, 312, 318, 1543, 1546});
  CHECK(batch_of(445) == std::vector<uint64_t>{125, 129, 354, 358, 359, 464, 467, 701});
}

// A stream that starts at a position continues like a stream that reached the position.
TEST_CASE("Batches are cut from the origin on", "[order][schedule]") {
  for (const Tail tail : kTails) {
    for (const uint64_t start : {0U, 3U, 29U, 30U, 31U, 70U, 89U}) {
      ScheduleOptions options;
      options.walk = {30, Order::kShuffle, Shuffle::kGlobal, 4, 1};
      options.batch_size = 7;
      options.tail = tail;
      options.origin = {11, start};
      const Schedule schedule(options);
      uint64_t position = start;
      for (uint64_t number = 11; number < 40; ++number) {
        const BatchSpan batch = schedule.Batch(number);
        CAPTURE(static_cast<int>(tail), start, number);
        const uint64_t left = 30 - position % 30;
        if (tail == Tail::kDrop && left < 7) position += left;
        REQUIRE(batch.first_position == position);
        REQUIRE(batch.record_count == (tail == Tail::kShort ? std::min<uint64_t>(7, left) : 7));
        position += batch.record_count;
      }
    }
  }
}

}  // namespace
}  // namespace lmdbio::load
