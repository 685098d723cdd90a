#include "tests/campaign/campaign_databases.h"

#include <cstdint>
#include <functional>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>
#include <lmdb.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

struct Shape {
  std::string name;
  uint64_t value_bytes_min = 0;
  uint64_t value_bytes_max = 0;
  bool is_shuffled = false;  // written in random order
  bool has_provenance = false;
  uint64_t records_max = 0;  // larger databases of this shape are not written
};

const std::vector<Shape> kShapes = {
    {"tiny", 1, 8, false, false, 10'000'000},
    {"tiny_provenance", 8, 8, false, true, 1'000'000},
    {"inline", 50, 900, false, false, 100'000},
    {"overflow", 3'000, 6'000, false, false, 20'000},
    {"overflow_provenance", 3'080, 3'080, false, true, 20'000},
    {"mixed", 1, 9'000, false, false, 10'000},
    {"scattered_inline", 50, 900, true, false, 100'000},
    {"scattered_overflow", 3'000, 6'000, true, false, 20'000},
    {"large", 500'000, 3'000'000, false, false, 64},
};

constexpr uint64_t kCommitEvery = 1000;  // records
// Around a page of leaves, around usual batch sizes, and powers of ten.
const std::vector<uint64_t> kCounts = {1, 2, 7, 64, 469, 10'000, 100'000, 1'000'000, 10'000'000};

uint64_t RecordsMax(DatabaseScale scale) {
  if (scale == DatabaseScale::kSmall) return 10'000;
  return scale == DatabaseScale::kLarge ? 1'000'000 : 10'000'000;
}

void Fill(const fs::path& folder, const Shape& shape, uint64_t count) {
  TinyDb db(folder, {.map_bytes = uint64_t{1} << 34});
  Random random(count);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (shape.is_shuffled) random.Shuffle(order);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t value_bytes = random.Between(shape.value_bytes_min, shape.value_bytes_max);
    const MutableBytes value = db.Reserve(fmt::format("{:08}", order[i]), value_bytes);
    std::fill(value.begin(), value.end(), static_cast<std::byte>(order[i]));
    if (i % kCommitEvery == kCommitEvery - 1) db.Commit();
  }
  db.Commit();
  if (!shape.has_provenance) return;
  const auto recorded = file::RecordProvenance({folder.string(), {}, {}, {}});
  if (!recorded) throw std::runtime_error(recorded.error().message());
}

// A database gets its name when it is complete.
CampaignDatabase Write(const fs::path& folder, const std::string& name,
                       const std::function<void(const fs::path& folder)>& fill) {
  const fs::path place = folder / name;
  if (!fs::exists(place)) {
    const fs::path partial = folder / (name + ".partial");
    fs::remove_all(partial);
    fs::create_directories(partial);
    fill(partial);
    fs::rename(partial, place);
  }
  return {name, place / "data.mdb"};
}

void FillEmpty(const fs::path& folder) { TinyDb(folder).Use("named").Commit(); }

void FillDuplicates(const fs::path& folder) {
  TinyDb db(folder);
  db.Use("", MDB_DUPSORT);
  for (int key = 0; key < 40; ++key) {
    for (int i = 0; i < 3 * key * key; ++i)
      db.Put(fmt::format("{:04}", key), fmt::format("{:06}", i));
  }
  db.Commit();
}

}  // namespace

std::vector<CampaignDatabase> CampaignDatabases(const fs::path& folder, DatabaseScale scale) {
  std::vector<CampaignDatabase> databases = {Write(folder, "empty", FillEmpty),
                                             Write(folder, "duplicates", FillDuplicates)};
  for (const Shape& shape : kShapes) {
    for (const uint64_t count : kCounts) {
      if (count > shape.records_max || count > RecordsMax(scale)) break;
      databases.push_back(Write(folder, fmt::format("{}_{}", shape.name, count),
                                [&](const fs::path& partial) { Fill(partial, shape, count); }));
    }
  }
  return databases;
}

}  // namespace lmdbio::test
