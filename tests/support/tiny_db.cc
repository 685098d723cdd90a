#include "tests/support/tiny_db.h"

#include <utility>

#include "tests/support/lmdb_error.h"
#include "tests/support/page_size_override.h"

namespace lmdbio::test {
namespace {

constexpr MDB_dbi kNamedDatabaseCountMax = 64;

MDB_env* CreateEnvironment(uint32_t page_size_bytes) {
  const PageSizeOverride page_size(page_size_bytes);
  MDB_env* environment = nullptr;
  ThrowUnlessOk(mdb_env_create(&environment), "mdb_env_create");
  return environment;
}

}  // namespace

TinyDb::TinyDb(std::filesystem::path path, TinyDbOptions options)
    : path_(std::move(path)),
      options_(options),
      environment_(CreateEnvironment(options.page_size_bytes)) {
  try {
    ThrowUnlessOk(mdb_env_set_mapsize(environment_, options_.map_bytes), "mdb_env_set_mapsize");
    ThrowUnlessOk(mdb_env_set_maxdbs(environment_, kNamedDatabaseCountMax), "mdb_env_set_maxdbs");
    ThrowUnlessOk(mdb_env_open(environment_, path_.c_str(),
                               options_.environment_flags | MDB_NOSYNC | MDB_NOTLS, 0644),
                  "mdb_env_open " + path_.string());
  } catch (...) {
    mdb_env_close(environment_);
    throw;
  }
}

TinyDb::~TinyDb() {
  if (transaction_ != nullptr) mdb_txn_abort(transaction_);
  mdb_env_close(environment_);
}

TinyDb& TinyDb::Use(std::string_view name, unsigned flags) {
  name_ = name;
  flags_ = flags;
  if (!name_.empty()) names_.insert(name_);
  Begin();
  OpenDatabase();
  return *this;
}

// Every transaction opens its own handle, because an abort invalidates handles opened in it.
void TinyDb::Begin() {
  if (transaction_ != nullptr) return;
  ThrowUnlessOk(mdb_txn_begin(environment_, nullptr, 0, &transaction_), "mdb_txn_begin");
  OpenDatabase();
}

void TinyDb::OpenDatabase() {
  ThrowUnlessOk(mdb_dbi_open(transaction_, name_.empty() ? nullptr : name_.c_str(),
                             flags_ | MDB_CREATE, &database_),
                "mdb_dbi_open " + name_);
}

TinyDb& TinyDb::Put(std::string_view key, std::string_view value, unsigned flags) {
  Begin();
  MDB_val mdb_key = AsMdbVal(key);
  MDB_val mdb_value = AsMdbVal(value);
  ThrowUnlessOk(mdb_put(transaction_, database_, &mdb_key, &mdb_value, flags), "mdb_put");
  return *this;
}

MutableBytes TinyDb::Reserve(std::string_view key, uint64_t value_bytes) {
  Begin();
  MDB_val mdb_key = AsMdbVal(key);
  MDB_val room{value_bytes, nullptr};
  ThrowUnlessOk(mdb_put(transaction_, database_, &mdb_key, &room, MDB_RESERVE), "mdb_put");
  return {static_cast<std::byte*>(room.mv_data), room.mv_size};
}

TinyDb& TinyDb::Delete(std::string_view key) {
  Begin();
  MDB_val mdb_key = AsMdbVal(key);
  ThrowUnlessOk(mdb_del(transaction_, database_, &mdb_key, nullptr), "mdb_del");
  return *this;
}

TinyDb& TinyDb::Delete(std::string_view key, std::string_view value) {
  Begin();
  MDB_val mdb_key = AsMdbVal(key);
  MDB_val mdb_value = AsMdbVal(value);
  ThrowUnlessOk(mdb_del(transaction_, database_, &mdb_key, &mdb_value), "mdb_del");
  return *this;
}

TinyDb& TinyDb::Commit() {
  if (transaction_ == nullptr) return *this;
  ThrowUnlessOk(mdb_txn_commit(std::exchange(transaction_, nullptr)), "mdb_txn_commit");
  return *this;
}

TinyDb& TinyDb::Abort() {
  if (transaction_ != nullptr) mdb_txn_abort(std::exchange(transaction_, nullptr));
  return *this;
}

void TinyDb::CopyCompacted(const std::filesystem::path& directory) const {
  ThrowUnlessOk(mdb_env_copy2(environment_, directory.c_str(), MDB_CP_COMPACT), "mdb_env_copy2");
}

std::filesystem::path TinyDb::data_file() const {
  return (options_.environment_flags & MDB_NOSUBDIR) != 0 ? path_ : path_ / "data.mdb";
}

}  // namespace lmdbio::test
