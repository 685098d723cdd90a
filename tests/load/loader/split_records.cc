#include "tests/load/loader/split_records.h"

#include <optional>

#include <fmt/format.h>

#include "tests/fixtures/tiny_db.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

constexpr TinyDbOptions kOneFile{.environment_flags = MDB_NOSUBDIR};

// The values of key `i`, the same in both files.
std::vector<std::string> ValuesOf(ValueKind kind, uint64_t i) {
  Random random(i + 1);
  switch (kind) {
    case ValueKind::kInline:
      return {random.BytesOf(random.Between(1, 300))};
    case ValueKind::kOverflow:
      return {random.BytesOf(i % 50 == 0 ? 70'000 : 3080)};
    case ValueKind::kMixed:
      return {random.BytesOf(i % 7 == 0 ? 0 : random.Below(i % 3 == 0 ? 9000 : 400))};
    case ValueKind::kDuplicates:
      break;
  }
  std::vector<std::string> values;
  for (uint64_t n = random.Between(1, 60); n > 0; --n) values.push_back(random.BytesOf(40));
  return values;
}

void Write(const std::filesystem::path& path, ValueKind kind, uint64_t first, uint64_t end) {
  TinyDb db(path, kOneFile);
  if (kind == ValueKind::kDuplicates) db.Use("", MDB_DUPSORT);
  for (uint64_t i = first; i < end; ++i) {
    for (const std::string& value : ValuesOf(kind, i)) db.Put(fmt::format("{:08}", i), value);
  }
  db.Commit();
}

}  // namespace

SplitRecords::SplitRecords(size_t count, ValueKind kind, uint64_t key_count)
    : single_(dir_.path() / "single"), folder_(dir_.path() / "files"), count_(count) {
  Write(single_, kind, 0, key_count);
  std::filesystem::create_directory(folder_);
  for (size_t i = 0; i < count; ++i) {
    Write(file(i), kind, key_count * i / count, key_count * (i + 1) / count);
  }
  records_ = LmdbRecords(single_);
}

std::filesystem::path SplitRecords::file(size_t i) const {
  return folder_ / fmt::format("data.{}.mdb", i);
}

std::vector<load::DatabasePath> SplitRecords::list() const {
  std::vector<load::DatabasePath> list;
  for (size_t i = 0; i < count_; ++i) list.push_back({file(i), ""});
  return list;
}

std::vector<KeyValue> SplitRecords::CopyTo(const std::filesystem::path& folder,
                                           size_t copy_count) const {
  const size_t of_each = records_.size() / count_;
  std::vector<KeyValue> copied;
  for (size_t i = 0; i < copy_count; ++i) {
    const size_t from = i % count_;
    std::filesystem::copy_file(file(from), folder / fmt::format("s{}.lmdb", i));
    const auto first = records_.begin() + static_cast<std::ptrdiff_t>(of_each * from);
    copied.insert(copied.end(), first, first + static_cast<std::ptrdiff_t>(of_each));
  }
  return copied;
}

}  // namespace lmdbio::test
