// Fixtures with several databases, with duplicates, and with the page sizes of other machines.
#include <cstring>

#include <fmt/format.h>

#include "tests/support/fixture_groups.h"

namespace lmdbio::test {
namespace {

template <typename T>
std::string NativeBytes(T number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

// A number in the byte order of the host; `size_bytes` is 4 or 8.
std::string NativeInteger(uint64_t number, uint64_t size_bytes) {
  return size_bytes == 4 ? NativeBytes(static_cast<uint32_t>(number)) : NativeBytes(number);
}

void PutManyDatabases(TinyDb& db, Random& random, uint64_t record_count) {
  db.Put("aaa plain", "beside the databases").Put("zzz plain", "and after them");
  db.Use("plain");
  PutShuffled(db, random, record_count);
  db.Use("sizes");
  PutBoundarySizes(db, random, 4096);
  db.Commit();
  db.Use("empty").Use("empty dupsort", MDB_DUPSORT);
  db.Use("dupsort", MDB_DUPSORT);
  PutDuplicates(db, random, 60, 50, 40);
  db.Use("dupfixed", MDB_DUPSORT | MDB_DUPFIXED);
  PutFixedDuplicates(db, random, 60, 50, 12);
  db.Commit();
  db.Use("reverse", MDB_REVERSEKEY);
  PutShuffled(db, random, record_count);
  db.Use("").Put("mmm plain", random.BytesOf(5000));
}

void PutOddNames(TinyDb& db, Random& /*random*/) {
  const std::string long_name(511, 'n');
  for (const std::string& name :
       {std::string("with space"), std::string("tab\tnewline\n"), std::string("back\\slash/slash"),
        std::string("\xc3\xa4\xe6\xbc\xa2"), std::string("\xff\xfe not utf-8"), std::string("0"),
        std::string("__main__"), long_name}) {
    db.Use(name).Put("name", name).Commit();
  }
}

void PutIntegerKeys(TinyDb& db, Random& random, uint64_t record_count) {
  for (const uint64_t key_bytes : {uint64_t{4}, uint64_t{8}}) {
    db.Use(fmt::format("keys-of-{}", key_bytes), MDB_INTEGERKEY);
    for (uint64_t i = 0; i < record_count; ++i) {
      // Small numbers too, because their byte order and number order differ most.
      const uint64_t number = i % 2 == 0 ? i : random.Next();
      db.Put(NativeInteger(number, key_bytes), fmt::format("{}", number));
    }
    db.Commit();
  }
}

void PutIntegerDuplicates(TinyDb& db, Random& random) {
  for (const uint64_t item_bytes : {uint64_t{4}, uint64_t{8}}) {
    db.Use(fmt::format("items-of-{}", item_bytes), MDB_DUPSORT | MDB_DUPFIXED | MDB_INTEGERDUP);
    for (uint64_t key = 0; key < 30; ++key) {
      const uint64_t count = key == 13 ? 5000 : 1 + random.Below(40);
      for (uint64_t i = 0; i < count; ++i) {
        db.Put(DecimalKey(key, 3), NativeInteger(i * 37, item_bytes));
      }
    }
    db.Commit();
  }
}

void PutFixedSizes(TinyDb& db, Random& random, uint64_t duplicate_count_max) {
  for (const uint64_t item_bytes : {1U, 2U, 4U, 8U, 20U}) {
    db.Use(fmt::format("items-of-{}", item_bytes), MDB_DUPSORT | MDB_DUPFIXED);
    PutFixedDuplicates(db, random, 9, duplicate_count_max, item_bytes);
    db.Commit();
  }
}

// A main database with single values, sub-pages and sub-trees of several levels in alternation.
void PutPromoted(TinyDb& db, Random& random, uint64_t large_count) {
  db.Use("", MDB_DUPSORT);
  PutDuplicates(db, random, 40, 30, 60);
  db.Commit();
  for (const char* key : {"000000", "20-odd", "~ last"}) {
    for (uint64_t i = 0; i < large_count; ++i) {
      db.Put(key, DecimalKey(random.Next() % 100'000, 5) + std::string(i % 60, 'v'));
    }
    db.Commit();
  }
  // A key with a sub-tree keeps it when its duplicates become few.
  db.Delete("20-odd");
  for (uint64_t i = 0; i < large_count; ++i) db.Put("20-odd", DecimalKey(i));
  db.Commit();
  for (uint64_t i = 3; i < large_count; ++i) db.Delete("20-odd", DecimalKey(i));
}

// liblmdb accepts an empty value in a DUPSORT database only as the single value of its key.
void PutEmptyDuplicates(TinyDb& db, Random& random) {
  db.Use("", MDB_DUPSORT);
  for (uint64_t i = 0; i < 300; ++i) {
    db.Put(DecimalKey(i, 3 + static_cast<int>(i % 2)), "");
    if (i % 3 == 0) db.Put(DecimalKey(i, 3) + "+", random.BytesOf(1 + random.Below(300)));
  }
}

// On small pages a value may be too large for a node and yet small enough for a duplicate: liblmdb
// then grows a sub-tree for a single value.
void PutSingleValueTrees(TinyDb& db, Random& random) {
  db.Use("", MDB_DUPSORT);
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t duplicate_count = i % 7 == 0 ? 5 : 1;
    for (uint64_t d = 0; d < duplicate_count; ++d) {
      db.Put(DecimalKey(i, 5 + static_cast<int>(i % 2)), random.BytesOf(random.Between(220, 236)));
    }
  }
}

FixtureSpec OfPageSize(uint32_t page_size_bytes, const char* name, const char* about,
                       std::function<void(TinyDb&, Random&)> fill) {
  return {.name = fmt::format("page-{}-{}", page_size_bytes, name),
          .about = about,
          .fill = std::move(fill),
          .options = {.page_size_bytes = page_size_bytes}};
}

}  // namespace

void PutDuplicates(TinyDb& db, Random& random, uint64_t key_count, uint64_t duplicate_count_max,
                   uint64_t value_bytes_max) {
  for (uint64_t key = 0; key < key_count; ++key) {
    const uint64_t count = key % 3 == 0 ? 1 : random.Between(1, duplicate_count_max);
    for (uint64_t i = 0; i < count; ++i) {
      db.Put(DecimalKey(key, 5 + static_cast<int>(key % 2)),
             random.BytesOf(random.Between(1, value_bytes_max)));
    }
  }
}

void PutFixedDuplicates(TinyDb& db, Random& random, uint64_t key_count,
                        uint64_t duplicate_count_max, uint64_t item_bytes) {
  for (uint64_t key = 0; key < key_count; ++key) {
    const uint64_t count = key % 3 == 0 ? 1 : random.Between(1, duplicate_count_max);
    for (uint64_t i = 0; i < count; ++i) {
      db.Put(DecimalKey(key, 5 + static_cast<int>(key % 2)), random.BytesOf(item_bytes));
    }
  }
}

FixtureGroup NamedFixtures(FixtureScale scale) {
  const uint64_t some = scale == FixtureScale::kFull ? 20'000 : 2'000;
  return {
      {"named", "databases of several kinds, some empty, with records beside them",
       [some](TinyDb& db, Random& random) { PutManyDatabases(db, random, some); }},
      {"odd-names", "names with blanks, control characters, slashes, and of full length",
       PutOddNames},
      {"idle-flags", "orders of duplicates without MDB_DUPSORT, which LMDB stores and ignores",
       [](TinyDb& db, Random& random) {
         db.Use("integer", MDB_INTEGERDUP);
         PutShuffled(db, random, 300);
         db.Use("reverse", MDB_REVERSEDUP | MDB_REVERSEKEY);
         PutShuffled(db, random, 300);
       }},
      {"integer-key", "MDB_INTEGERKEY with 4 and 8 bytes",
       [some](TinyDb& db, Random& random) { PutIntegerKeys(db, random, some); }},
      {"reverse-key", "MDB_REVERSEKEY on the main database",
       [some](TinyDb& db, Random& random) {
         db.Use("", MDB_REVERSEKEY);
         for (uint64_t i = 0; i < some; ++i) {
           db.Put(random.BytesOf(random.Between(1, 30)), DecimalKey(i));
         }
       }},
  };
}

FixtureGroup DuplicateFixtures(FixtureScale scale) {
  const uint64_t large = scale == FixtureScale::kFull ? 60'000 : 6'000;
  return {
      {"dupsort-small", "single values and sub-pages, odd and even key sizes",
       [](TinyDb& db, Random& random) {
         db.Use("", MDB_DUPSORT);
         PutDuplicates(db, random, 400, 12, 60);
       }},
      {"dupsort-promoted", "single values, sub-pages and sub-trees of several levels",
       [large](TinyDb& db, Random& random) { PutPromoted(db, random, large); }},
      {"dupsort-long-values", "duplicates up to the longest that a key may have",
       [](TinyDb& db, Random& random) {
         db.Use("", MDB_DUPSORT);
         PutDuplicates(db, random, 60, 40, 511);
       }},
      {"dupsort-empty-values", "single values of no bytes", PutEmptyDuplicates},
      {"dupfixed-small", "MDB_DUPFIXED sub-pages with items of 1, 2, 4, 8 and 20 bytes",
       [](TinyDb& db, Random& random) { PutFixedSizes(db, random, 25); }},
      {"dupfixed-promoted", "MDB_DUPFIXED sub-trees with items of 1, 2, 4, 8 and 20 bytes",
       [large](TinyDb& db, Random& random) { PutFixedSizes(db, random, large); }},
      {"dupfixed-main", "MDB_DUPFIXED on the main database: singles, sub-pages, sub-trees",
       [](TinyDb& db, Random& random) {
         db.Use("", MDB_DUPSORT | MDB_DUPFIXED);
         PutFixedDuplicates(db, random, 200, 900, 4);
       }},
      {"integer-dup", "MDB_INTEGERDUP with items of 4 and 8 bytes", PutIntegerDuplicates},
      {"reverse-dup", "MDB_REVERSEDUP, small and promoted",
       [](TinyDb& db, Random& random) {
         db.Use("", MDB_DUPSORT | MDB_REVERSEDUP);
         PutDuplicates(db, random, 40, 400, 40);
       }},
  };
}

FixtureGroup PageSizeFixtures() {
  FixtureGroup group;
  for (const uint32_t page_size_bytes : {512U, 1024U, 8192U, 16384U, 32768U}) {
    group.push_back(OfPageSize(page_size_bytes, "plain", "boundary sizes and random order",
                               [=](TinyDb& db, Random& random) {
                                 PutBoundarySizes(db, random, page_size_bytes);
                                 PutShuffled(db, random, 3000);
                               }));
    group.push_back(OfPageSize(page_size_bytes, "dupsort", "sub-pages and sub-trees",
                               [](TinyDb& db, Random& random) { PutPromoted(db, random, 2000); }));
    group.push_back(
        OfPageSize(page_size_bytes, "dupfixed", "fixed-size sub-pages and sub-trees",
                   [](TinyDb& db, Random& random) { PutFixedSizes(db, random, 2500); }));
  }
  group.push_back(
      OfPageSize(512, "single-value-trees", "sub-trees that hold one value", PutSingleValueTrees));
  return group;
}

}  // namespace lmdbio::test
