#include "tests/file/layout/small_files.h"

#include <fmt/format.h>

#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

constexpr int kCommitCount = 4;

std::string Key(uint64_t number, uint64_t key_bytes) {
  return fmt::format("{:0{}}", number, key_bytes);
}

// One record in seven is too large for a leaf page. Each round rewrites some and deletes some.
void PutPlain(TinyDb& db, Random& random, uint64_t record_count, uint64_t page_bytes) {
  for (uint64_t round = 0; round < kCommitCount; ++round) {
    for (uint64_t i = 0; i < record_count; ++i) {
      if (round > 0 && i % 5 != round) continue;
      const uint64_t value_bytes =
          i % 7 == 0 ? page_bytes / 2 + random.Below(2 * page_bytes) : random.Below(40);
      db.Put(Key(i * 7 % record_count, 4 + i % 2), random.BytesOf(value_bytes));
    }
    for (uint64_t i = round; i < record_count; i += 17) {
      if (round > 0) db.Delete(Key(i * 7 % record_count, 4 + i % 2));
    }
    db.Commit();
  }
}

// Keys with one value, keys with few, and a key with enough duplicates for a private tree.
void PutDuplicates(TinyDb& db, Random& random, unsigned flags, uint64_t large_count) {
  const bool fixed = (flags & MDB_DUPFIXED) != 0;
  const auto put = [&](uint64_t key) {
    db.Put(Key(key, 4 + key % 2), random.BytesOf(fixed ? 6 : random.Between(1, 24)));
  };
  db.Use("", flags);
  for (uint64_t key = 0; key < 40; ++key) {
    for (uint64_t i = 0; i <= key % 5; ++i) put(key);
  }
  db.Commit();
  for (const uint64_t key : {11U, 30U}) {
    for (uint64_t i = 0; i < large_count; ++i) put(key);
    db.Commit();
  }
  for (uint64_t key = 3; key < 40; key += 9) put(key);
}

void PutNamed(TinyDb& db, Random& random, uint64_t page_bytes) {
  db.Put("between", "the databases");
  for (const char* name : {"alpha", "beta"}) {  // of equal size, so that damage can confuse them
    db.Use(name);
    for (uint64_t i = 0; i < 30; ++i) db.Put(Key(i, 5), random.BytesOf(20));
    db.Commit();
  }
  db.Use("empty").Use("many");
  PutPlain(db, random, 60, page_bytes);
  db.Use("tags", MDB_DUPSORT);
  for (uint64_t i = 0; i < 120; ++i) {
    db.Put(Key(i < 60 ? 5 : i % 13, 2), Key(random.Below(100'000), 6));
  }
}

// One node of each kind, in as few pages as possible.
void PutTiny(TinyDb& db, Random& random) {
  for (int i = 0; i < 9; ++i) db.Put(Key(static_cast<uint64_t>(i), 3), random.BytesOf(60));
  db.Put("large", random.BytesOf(700)).Commit();
  db.Use("tags", MDB_DUPSORT);
  for (uint64_t i = 0; i < 80; ++i) db.Put(i < 8 ? "few" : "many", Key(random.Below(10'000), 4));
  db.Use("ids", MDB_DUPSORT | MDB_DUPFIXED);
  for (uint64_t i = 0; i < 150; ++i) db.Put(i < 8 ? "few" : "many", random.BytesOf(5));
}

FixtureSpec Spec(const char* kind, uint32_t page_bytes,
                 std::function<void(TinyDb&, Random&)> fill) {
  return {.name = fmt::format("{}-{}", kind, page_bytes),
          .about = "",
          .fill = std::move(fill),
          .options = {.page_size_bytes = page_bytes}};
}

std::vector<FixtureSpec> Specs() {
  std::vector<FixtureSpec> specs{Spec("tiny", 512, PutTiny)};
  for (const uint32_t page_bytes : {512U, 4096U, 32768U}) {
    specs.push_back(Spec("plain", page_bytes, [=](TinyDb& db, Random& random) {
      PutPlain(db, random, page_bytes == 32768 ? 30 : 90, page_bytes);
    }));
  }
  for (const uint32_t page_bytes : {512U, 4096U}) {
    specs.push_back(Spec("named", page_bytes,
                         [=](TinyDb& db, Random& random) { PutNamed(db, random, page_bytes); }));
    specs.push_back(Spec("dupsort", page_bytes, [=](TinyDb& db, Random& random) {
      PutDuplicates(db, random, MDB_DUPSORT, page_bytes / 4);
    }));
    specs.push_back(Spec("dupfixed", page_bytes, [=](TinyDb& db, Random& random) {
      PutDuplicates(db, random, MDB_DUPSORT | MDB_DUPFIXED, page_bytes / 3);
    }));
  }
  return specs;
}

}  // namespace

std::vector<SmallFile> SmallFiles() {
  std::vector<SmallFile> files;
  for (const FixtureSpec& spec : Specs()) {
    const TempDir dir;
    files.push_back({spec.name, ReadWholeFile(WriteFixture(spec, dir.path()).data_file)});
  }
  for (const char* name : {"one-record", "page-512", "page-512-dupsort", "page-65536-dupsort",
                           "dupfixed", "dupsort-long-values", "integer-key", "named"}) {
    files.push_back({fmt::format("v3-{}", name), V3FixtureBytes(name)});
  }
  return files;
}

}  // namespace lmdbio::test
