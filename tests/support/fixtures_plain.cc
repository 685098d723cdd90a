// Fixtures with one value a key in the main database, and those that are kinds of files.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tests/support/file_bytes.h"
#include "tests/support/fixture_groups.h"

namespace lmdbio::test {
namespace {

constexpr uint64_t kKeyBytesMax = 511;  // MDB_MAXKEYSIZE of stock builds
constexpr uint64_t kGiB = uint64_t{1} << 30;

uint64_t Scaled(FixtureScale scale, uint64_t count) {
  return scale == FixtureScale::kFull ? 10 * count : count;
}

void PutOne(TinyDb& db, Random& /*random*/) { db.Put("only", "one record"); }

// A tree that was emptied: it has no root, but transactions and free pages.
void PutAndDeleteAll(TinyDb& db, Random& random) {
  PutShuffled(db, random, 500);
  db.Commit();
  for (uint64_t i = 0; i < 500; ++i) db.Delete(DecimalKey(i));
}

void PutOrdered(TinyDb& db, Random& random, uint64_t record_count, uint64_t value_bytes_max,
                unsigned flags) {
  constexpr uint64_t kCommitIntervalRecords = 1000;
  for (uint64_t i = 0; i < record_count; ++i) {
    db.Put(DecimalKey(i), random.BytesOf(random.Between(0, value_bytes_max)), flags);
    if (i % kCommitIntervalRecords == kCommitIntervalRecords - 1) db.Commit();
  }
}

void PutEveryKeySize(TinyDb& db, Random& random) {
  for (uint64_t size_bytes = 1; size_bytes <= kKeyBytesMax; ++size_bytes) {
    db.Put(random.BytesOf(size_bytes), random.BytesOf(size_bytes % 41));
  }
}

void PutFiveMegabytes(TinyDb& db, Random& random) {
  PutShuffled(db, random, 200);
  db.Put("00000100-large", random.BytesOf(5'000'000));
}

// Rewrites and removes until pages have merged, and the free list names pages of several commits.
void PutUpdateDelete(TinyDb& db, Random& random, uint64_t record_count) {
  constexpr uint64_t kRoundCount = 8;
  for (uint64_t i = 0; i < record_count; ++i) {
    db.Put(DecimalKey(i), random.BytesOf(i % 40 == 0 ? 9000 : random.Below(120)));
  }
  db.Commit();
  for (uint64_t round = 0; round < kRoundCount; ++round) {
    for (uint64_t i = round; i < record_count; i += 2 * kRoundCount) db.Delete(DecimalKey(i));
    for (uint64_t i = round + kRoundCount; i < record_count; i += 5 * kRoundCount) {
      constexpr uint64_t kSizesBytes[] = {0, 7, 300, 2100, 4080, 12000};
      db.Put(DecimalKey(i), random.BytesOf(kSizesBytes[random.Below(std::size(kSizesBytes))]));
    }
    db.Commit();
  }
  // A long run of keys at once empties whole leaves.
  for (uint64_t i = record_count / 2; i < record_count * 3 / 4; ++i) {
    if (i % (2 * kRoundCount) >= kRoundCount) db.Delete(DecimalKey(i));
  }
}

// Only the first and last bytes of the values are written, so the rest stays a hole in the file.
// The records of the second half lie beyond 4 GiB, the limit of 32-bit offsets.
void PutBeyondFourGiB(TinyDb& db, Random& random) {
  // More in one transaction makes liblmdb 0.9.24 spill pages, and leak its list of them.
  constexpr uint64_t kValueBytes = uint64_t{128} << 20;
  for (uint64_t i = 0; i < 40; ++i) {
    const std::string ends = fmt::format("huge {:02}", i);
    const MutableBytes room = db.Reserve("a" + DecimalKey(i), kValueBytes);
    std::ranges::copy(AsBytes(ends), room.begin());
    std::ranges::copy(AsBytes(ends), room.end() - static_cast<std::ptrdiff_t>(ends.size()));
    db.Commit();
  }
  for (uint64_t i = 0; i < 2000; ++i) {
    db.Put("b" + DecimalKey(i), random.BytesOf(i % 100 == 0 ? 10'000 : random.Below(100)));
  }
}

// The same after the huge values were deleted: the other records lie behind 4 GiB of free pages.
void PutBehindFourGiB(TinyDb& db, Random& random) {
  PutBeyondFourGiB(db, random);
  db.Commit();
  for (uint64_t i = 0; i < 40; ++i) {
    db.Delete("a" + DecimalKey(i));
    db.Commit();
  }
}

std::set<uint64_t> BoundarySizes(uint64_t page_size_bytes, uint64_t key_bytes) {
  constexpr uint64_t kHeaderBytes = 16;  // of a page
  constexpr uint64_t kNodeBytes = 8;     // of a node, before its key
  const uint64_t node_bytes_max = ((page_size_bytes - kHeaderBytes) / 2 & ~uint64_t{1}) - 2;
  const uint64_t inline_max = node_bytes_max - kNodeBytes - key_bytes;
  std::set<uint64_t> sizes = {0, 1, 2, 3};
  for (uint64_t d = 0; d <= 4; ++d) {
    sizes.insert(inline_max + d - 2);
    for (const uint64_t page_count : {1U, 2U, 3U, 8U}) {
      sizes.insert(page_count * page_size_bytes - kHeaderBytes + d - 2);
    }
  }
  return sizes;
}

}  // namespace

std::string DecimalKey(uint64_t number, int digit_count) {
  return fmt::format("{:0{}}", number, digit_count);
}

void PutBoundarySizes(TinyDb& db, Random& random, uint32_t page_size_bytes) {
  for (const int key_bytes : {6, 7}) {
    const std::set<uint64_t> sizes =
        BoundarySizes(page_size_bytes, static_cast<uint64_t>(key_bytes));
    for (const uint64_t size_bytes : sizes) {
      db.Put(DecimalKey(size_bytes, key_bytes), random.BytesOf(size_bytes));
    }
  }
}

void PutShuffled(TinyDb& db, Random& random, uint64_t record_count) {
  std::vector<uint64_t> numbers(record_count);
  for (uint64_t i = 0; i < record_count; ++i) numbers[i] = i;
  random.Shuffle(numbers);
  for (const uint64_t number : numbers) {
    db.Put(DecimalKey(number), random.BytesOf(random.Below(60)));
  }
}

FixtureGroup PlainFixtures(FixtureScale scale) {
  const uint64_t many = Scaled(scale, 100'000);
  const uint64_t some = Scaled(scale, 4'000);
  const auto ordered = [](uint64_t count, uint64_t value_bytes_max, unsigned flags) {
    return
        [=](TinyDb& db, Random& random) { PutOrdered(db, random, count, value_bytes_max, flags); };
  };
  return {
      {"fresh", "never written: transaction 0 in both meta pages", nullptr},
      {"emptied", "all records deleted again", PutAndDeleteAll},
      {"one-record", "the smallest tree", PutOne},
      {"ordered", "a bulk load of small records", ordered(many, 40, 0)},
      {"ordered-overflow", "a bulk load in and out of overflow pages", ordered(some, 6000, 0)},
      {"append", "a bulk load with MDB_APPEND", ordered(some, 100, MDB_APPEND)},
      {"random-order", "pages split anywhere",
       [some](TinyDb& db, Random& random) { PutShuffled(db, random, some); }},
      {"key-sizes", "keys of 1 to 511 bytes", PutEveryKeySize},
      {"boundaries", "values of every size at which their storage changes",
       [](TinyDb& db, Random& random) { PutBoundarySizes(db, random, 4096); }},
      {"five-megabytes", "one overflow run of 1221 pages among small records", PutFiveMegabytes},
      {"updated", "deletes and updates: merged pages, recycled pages, a free list",
       [some](TinyDb& db, Random& random) { PutUpdateDelete(db, random, some); }},
  };
}

FixtureGroup FileFixtures() {
  const auto some = [](TinyDb& db, Random& random) { PutUpdateDelete(db, random, 1000); };
  return {
      {.name = "compacted",
       .about = "mdb_env_copy2 with MDB_CP_COMPACT: pages renumbered, none free",
       .fill = some,
       .is_compacted = true},
      {.name = "single-file",
       .about = "MDB_NOSUBDIR",
       .fill = some,
       .options = {.environment_flags = MDB_NOSUBDIR}},
      {.name = "writemap",
       .about = "MDB_WRITEMAP: a file as long as the map, mostly a hole",
       .fill = some,
       .options = {.environment_flags = MDB_WRITEMAP, .map_bytes = uint64_t{32} << 20}},
      {.name = "beyond-4-gib",
       .about = "5 GiB of holes, and small records behind them",
       .fill = PutBeyondFourGiB,
       .options = {.environment_flags = MDB_WRITEMAP, .map_bytes = 6 * kGiB},
       .bulk = FixtureBulk::kHuge},
      {.name = "behind-4-gib",
       .about = "small records behind 5 GiB of free pages",
       .fill = PutBehindFourGiB,
       .options = {.environment_flags = MDB_WRITEMAP, .map_bytes = 6 * kGiB},
       .bulk = FixtureBulk::kHuge},
  };
}

}  // namespace lmdbio::test
