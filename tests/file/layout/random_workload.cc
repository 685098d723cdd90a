#include "tests/file/layout/random_workload.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/fixtures/lmdb_error.h"
#include "tests/fixtures/page_size_override.h"

namespace lmdbio::test {
namespace {

constexpr uint32_t kPageSizes[] = {512, 1024, 2048, 4096, 4096, 8192, 16384, 32768};
constexpr uint64_t kMapBytes = 64 << 20;
constexpr uint64_t kPoolMax = 400;
constexpr unsigned kFixedFlags = MDB_DUPFIXED | MDB_INTEGERDUP;

// Accepted results of an operation besides success: the key exists, or does not exist.
void ThrowUnlessExpected(int code, std::string_view call) {
  if (code != MDB_KEYEXIST && code != MDB_NOTFOUND) ThrowUnlessOk(code, call);
}

struct CloseWorkloadCursor {
  void operator()(MDB_cursor* cursor) const { mdb_cursor_close(cursor); }
};
using UniqueCursor = std::unique_ptr<MDB_cursor, CloseWorkloadCursor>;

std::string Copy(const MDB_val& val) {
  return {static_cast<const char*>(val.mv_data), val.mv_size};
}

// The workload must not change the node of a named database in the main database.
bool IsDatabaseName(std::string_view key) { return key.starts_with("database-"); }

}  // namespace

struct RandomWorkload::Write {
  MDB_txn* transaction;
  WorkloadDatabase* database;
  MDB_dbi handle;

  bool has_duplicates() const { return (database->flags & MDB_DUPSORT) != 0; }
  UniqueCursor OpenCursor() const {
    MDB_cursor* cursor = nullptr;
    ThrowUnlessOk(mdb_cursor_open(transaction, handle, &cursor), "mdb_cursor_open");
    return UniqueCursor(cursor);
  }
};

RandomWorkload::RandomWorkload(const std::filesystem::path& directory, uint64_t seed)
    : random_(seed), directory_(directory) {
  page_size_bytes_ = kPageSizes[random_.Below(std::size(kPageSizes))];
  environment_flags_ = random_.Below(5) == 0 ? MDB_WRITEMAP : 0;
  // At least three of the largest keys and a database record must fit a page.
  key_bytes_max_ = std::min<uint64_t>(511, page_size_bytes_ / 2 - 80);
  const PageSizeOverride page_size(page_size_bytes_);
  ThrowUnlessOk(mdb_env_create(&environment_), "mdb_env_create");
  ThrowUnlessOk(mdb_env_set_mapsize(environment_, kMapBytes), "mdb_env_set_mapsize");
  ThrowUnlessOk(mdb_env_set_maxdbs(environment_, 4), "mdb_env_set_maxdbs");
  ThrowUnlessOk(mdb_env_open(environment_, directory_.c_str(),
                             environment_flags_ | MDB_NOSYNC | MDB_NOTLS, 0644),
                "mdb_env_open");
  const uint64_t named_count = random_.Below(3);
  databases_.push_back(ChooseDatabase(""));
  // Named databases live in a main one without duplicates or integer keys.
  if (named_count > 0) databases_[0] = {"", 0, {1, key_bytes_max_}, {}, {}};
  for (uint64_t i = 0; i < named_count; ++i) {
    databases_.push_back(ChooseDatabase("database-" + std::to_string(i)));
  }
}

RandomWorkload::~RandomWorkload() {
  if (reader_ != nullptr) mdb_txn_abort(reader_);
  mdb_env_close(environment_);
}

TextKind RandomWorkload::ChooseKind(bool is_integer, bool is_fixed) {
  if (is_integer) {
    const uint64_t size_bytes = random_.Below(2) == 0 ? 4 : 8;
    return {size_bytes, size_bytes, true};
  }
  const uint64_t size_max = random_.Below(3) == 0 ? key_bytes_max_ : random_.Between(1, 30);
  return {is_fixed ? size_max : 1, size_max, false};
}

WorkloadDatabase RandomWorkload::ChooseDatabase(const std::string& name) {
  WorkloadDatabase database;
  database.name = name;
  const auto maybe = [this](unsigned flag) { return random_.Below(3) == 0 ? flag : 0; };
  database.flags = maybe(MDB_REVERSEKEY) | maybe(MDB_INTEGERKEY);
  if (random_.Below(2) == 0) {
    database.flags |=
        MDB_DUPSORT | maybe(MDB_DUPFIXED) | maybe(MDB_INTEGERDUP) | maybe(MDB_REVERSEDUP);
  }
  database.keys = ChooseKind((database.flags & MDB_INTEGERKEY) != 0, random_.Below(2) == 0);
  database.duplicates =
      ChooseKind((database.flags & MDB_INTEGERDUP) != 0, (database.flags & kFixedFlags) != 0);
  return database;
}

std::string RandomWorkload::TextOf(const TextKind& kind) {
  const uint64_t size_bytes = random_.Between(kind.size_min, kind.size_max);
  if (!kind.is_integer) return random_.BytesOf(size_bytes);
  const uint64_t number = random_.Below(5000);
  return {reinterpret_cast<const char*>(&number), size_bytes};  // little-endian, as all test hosts
}

std::string RandomWorkload::FreshKey(const WorkloadDatabase& database) {
  return TextOf(database.keys);
}

std::string RandomWorkload::UsedKey(WorkloadDatabase& database) {
  std::vector<std::string>& pool = database.pool;
  if (!pool.empty() && random_.Below(3) != 0) return pool[random_.Below(pool.size())];
  std::string key = FreshKey(database);
  if (pool.size() < kPoolMax) pool.push_back(key);
  return key;
}

// Sizes are most frequent around the limits at which the storage of a value changes: the largest
// node, and whole pages.
uint64_t RandomWorkload::ValueBytes(uint64_t key_bytes) {
  const uint64_t node_bytes_max = (((page_size_bytes_ - 16) / 2) & ~uint64_t{1}) - 2;
  const uint64_t inline_max = node_bytes_max - 8 - key_bytes;
  switch (random_.Below(6)) {
    case 0:
      return random_.Below(40);
    case 1:
      return inline_max + random_.Below(5) - 2;
    case 2:
      return random_.Between(1, 3) * page_size_bytes_ - 16 + random_.Below(5) - 2;
    case 3:
      return random_.Below(5 * uint64_t{page_size_bytes_});
    default:
      return random_.Below(inline_max);
  }
}

std::string RandomWorkload::ValueFor(const WorkloadDatabase& database, const std::string& key) {
  if ((database.flags & MDB_DUPSORT) != 0) return TextOf(database.duplicates);
  return random_.BytesOf(ValueBytes(key.size()));
}

void RandomWorkload::Put(const Write& write) {
  const std::string key = UsedKey(*write.database);
  // liblmdb may overwrite the first value of a transaction in place with the second and third.
  for (uint64_t i = random_.Between(1, 3); i > 0; --i) {
    const std::string value = ValueFor(*write.database, key);
    MDB_val mdb_key = AsMdbVal(key);
    MDB_val mdb_value = AsMdbVal(value);
    const unsigned flags = random_.Below(8) == 0 ? MDB_NOOVERWRITE : 0;
    ThrowUnlessExpected(mdb_put(write.transaction, write.handle, &mdb_key, &mdb_value, flags),
                        "mdb_put");
  }
}

void RandomWorkload::Reserve(const Write& write) {
  if (write.has_duplicates()) return;
  const std::string key = UsedKey(*write.database);
  MDB_val mdb_key = AsMdbVal(key);
  MDB_val room{ValueBytes(key.size()), nullptr};
  ThrowUnlessOk(mdb_put(write.transaction, write.handle, &mdb_key, &room, MDB_RESERVE), "mdb_put");
  if (room.mv_size > 0) std::memset(room.mv_data, 'r', room.mv_size);
}

// Enough duplicates for a sub-page to grow and to become a private tree.
void RandomWorkload::PutMany(const Write& write) {
  const std::string key = UsedKey(*write.database);
  for (uint64_t i = random_.Below(write.has_duplicates() ? 200 : 3); i > 0; --i) {
    const std::string value = ValueFor(*write.database, key);
    MDB_val mdb_key = AsMdbVal(key);
    MDB_val mdb_value = AsMdbVal(value);
    ThrowUnlessExpected(
        mdb_put(write.transaction, write.handle, &mdb_key, &mdb_value, MDB_NODUPDATA), "mdb_put");
  }
}

void RandomWorkload::PutMultiple(const Write& write) {
  if ((write.database->flags & MDB_DUPFIXED) == 0) return PutMany(write);
  const std::string key = UsedKey(*write.database);
  const uint64_t count = random_.Between(1, 300);
  std::string items;
  for (uint64_t i = 0; i < count; ++i) items += TextOf(write.database->duplicates);
  MDB_val mdb_key = AsMdbVal(key);
  MDB_val values[2] = {{items.size() / count, items.data()}, {count, nullptr}};
  ThrowUnlessExpected(mdb_cursor_put(write.OpenCursor().get(), &mdb_key, values, MDB_MULTIPLE),
                      "mdb_cursor_put");
}

void RandomWorkload::Append(const Write& write) {
  const UniqueCursor cursor = write.OpenCursor();
  const unsigned flag =
      write.has_duplicates() && random_.Below(2) == 0 ? MDB_APPENDDUP : MDB_APPEND;
  std::vector<std::string> keys(random_.Between(1, 40));
  for (std::string& key : keys) key = FreshKey(*write.database);
  std::ranges::sort(keys, [&](const std::string& a, const std::string& b) {
    const MDB_val left = AsMdbVal(a);
    const MDB_val right = AsMdbVal(b);
    return mdb_cmp(write.transaction, write.handle, &left, &right) < 0;
  });
  for (const std::string& key : keys) {
    const std::string value = ValueFor(*write.database, key);
    MDB_val mdb_key = AsMdbVal(key);
    MDB_val mdb_value = AsMdbVal(value);
    ThrowUnlessExpected(mdb_cursor_put(cursor.get(), &mdb_key, &mdb_value, flag), "append");
  }
}

void RandomWorkload::Delete(const Write& write) {
  const std::string key = UsedKey(*write.database);
  MDB_val mdb_key = AsMdbVal(key);
  ThrowUnlessExpected(mdb_del(write.transaction, write.handle, &mdb_key, nullptr), "mdb_del");
}

// A pass of a cursor that deletes some records, or nearly all. With duplicates it seeks after each
// delete, because liblmdb's cursor then loses its position among the duplicates.
void RandomWorkload::DeleteSome(const Write& write) {
  const UniqueCursor cursor = write.OpenCursor();
  const uint64_t percent = random_.Below(3) == 0 ? 95 : random_.Between(5, 50);
  const unsigned flag = write.has_duplicates() && random_.Below(4) == 0 ? MDB_NODUPDATA : 0;
  MDB_val key{};
  MDB_val value{};
  int code = mdb_cursor_get(cursor.get(), &key, &value, MDB_FIRST);
  for (uint64_t left = 1 + random_.Below(400); code == MDB_SUCCESS && left > 0; --left) {
    const std::string found = Copy(key);
    const bool is_doomed = random_.Below(100) < percent && !IsDatabaseName(found);
    if (is_doomed) ThrowUnlessOk(mdb_cursor_del(cursor.get(), flag), "mdb_cursor_del");
    key = AsMdbVal(found);
    code = mdb_cursor_get(cursor.get(), &key, &value,
                          is_doomed && write.has_duplicates() ? MDB_SET_RANGE : MDB_NEXT);
  }
  ThrowUnlessExpected(code, "mdb_cursor_get");
}

void RandomWorkload::ReplaceCurrent(const Write& write) {
  if (write.has_duplicates()) return;
  const UniqueCursor cursor = write.OpenCursor();
  MDB_val key{};
  MDB_val value{};
  int code = mdb_cursor_get(cursor.get(), &key, &value, MDB_FIRST);
  for (uint64_t left = 1 + random_.Below(20); code == MDB_SUCCESS && left > 0; --left) {
    const std::string found = Copy(key);
    if (!IsDatabaseName(found)) {
      const uint64_t size_bytes = random_.Below(2) == 0 ? value.mv_size : ValueBytes(found.size());
      const std::string replacement = random_.BytesOf(size_bytes);
      MDB_val mdb_key = AsMdbVal(found);
      MDB_val mdb_value = AsMdbVal(replacement);
      ThrowUnlessOk(mdb_cursor_put(cursor.get(), &mdb_key, &mdb_value, MDB_CURRENT), "current");
    }
    code = mdb_cursor_get(cursor.get(), &key, &value, MDB_NEXT);
  }
  ThrowUnlessExpected(code, "mdb_cursor_get");
}

// liblmdb refuses nested transactions over a writable map.
void RandomWorkload::Nest(MDB_txn* parent) {
  if ((environment_flags_ & MDB_WRITEMAP) != 0) return;
  MDB_txn* child = nullptr;
  ThrowUnlessOk(mdb_txn_begin(environment_, parent, 0, &child), "mdb_txn_begin");
  for (uint64_t i = random_.Below(8); i > 0; --i) Change(child);
  if (random_.Below(3) == 0) {
    mdb_txn_abort(child);
  } else {
    ThrowUnlessOk(mdb_txn_commit(child), "mdb_txn_commit");
  }
}

void RandomWorkload::Change(MDB_txn* transaction) {
  WorkloadDatabase& database = databases_[random_.Below(databases_.size())];
  Write write{transaction, &database, 0};
  ThrowUnlessOk(mdb_dbi_open(transaction, database.name.empty() ? nullptr : database.name.c_str(),
                             database.flags | MDB_CREATE, &write.handle),
                "mdb_dbi_open");
  switch (random_.Below(40)) {
    case 0:
      return DeleteSome(write);
    case 1:
      return Append(write);
    case 2:
      if (!database.name.empty()) ThrowUnlessOk(mdb_drop(transaction, write.handle, 0), "mdb_drop");
      return;
    case 3:
      return ReplaceCurrent(write);
    case 4:
    case 5:
      return PutMultiple(write);
    case 6:
    case 7:
    case 8:
      return PutMany(write);
    case 9:
    case 10:
      return Reserve(write);
    default:
      return random_.Below(4) == 0 ? Delete(write) : Put(write);
  }
}

void RandomWorkload::RunTransaction() {
  if (reader_ != nullptr && random_.Below(2) == 0) mdb_txn_abort(std::exchange(reader_, nullptr));
  if (reader_ == nullptr && random_.Below(3) == 0) {
    ThrowUnlessOk(mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &reader_), "mdb_txn_begin");
  }
  MDB_txn* transaction = nullptr;
  ThrowUnlessOk(mdb_txn_begin(environment_, nullptr, 0, &transaction), "mdb_txn_begin");
  try {
    for (uint64_t i = random_.Between(1, 80); i > 0; --i) Change(transaction);
    if (random_.Below(4) == 0) Nest(transaction);
  } catch (...) {
    mdb_txn_abort(transaction);
    throw;
  }
  if (random_.Below(10) == 0) return mdb_txn_abort(transaction);
  ThrowUnlessOk(mdb_txn_commit(transaction), "mdb_txn_commit");
}

}  // namespace lmdbio::test
