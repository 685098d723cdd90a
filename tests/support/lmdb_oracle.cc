#include "tests/support/lmdb_oracle.h"

#include <memory>

#include "tests/support/file_bytes.h"
#include "tests/support/lmdb_error.h"

namespace lmdbio::test {
namespace {

// A read transaction on one database; everything is undone in the destructor.
class ReadTransaction {
 public:
  ReadTransaction(const std::filesystem::path& data_file, std::string_view database) {
    ThrowUnlessOk(mdb_env_create(&environment_), "mdb_env_create");
    try {
      Open(data_file, std::string(database));
    } catch (...) {
      Close();
      throw;
    }
  }
  ~ReadTransaction() { Close(); }
  ReadTransaction(const ReadTransaction&) = delete;
  ReadTransaction& operator=(const ReadTransaction&) = delete;

  MDB_txn* transaction() const { return transaction_; }
  MDB_dbi database() const { return database_; }

 private:
  void Open(const std::filesystem::path& data_file, const std::string& name) {
    ThrowUnlessOk(mdb_env_set_maxdbs(environment_, 1), "mdb_env_set_maxdbs");
    ThrowUnlessOk(
        mdb_env_open(environment_, data_file.c_str(), MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK, 0),
        "mdb_env_open " + data_file.string());
    ThrowUnlessOk(mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_), "mdb_txn_begin");
    ThrowUnlessOk(mdb_dbi_open(transaction_, name.empty() ? nullptr : name.c_str(), 0, &database_),
                  "mdb_dbi_open " + name);
  }

  void Close() {
    if (transaction_ != nullptr) mdb_txn_abort(transaction_);
    mdb_env_close(environment_);
  }

  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi database_ = 0;
};

struct CloseCursor {
  void operator()(MDB_cursor* cursor) const { mdb_cursor_close(cursor); }
};

Bytes AsBytes(const MDB_val& val) {
  return {static_cast<const std::byte*>(val.mv_data), val.mv_size};
}

}  // namespace

void LmdbScan(const std::filesystem::path& data_file, std::string_view database,
              const RecordVisitor& visit) {
  const ReadTransaction read(data_file, database);
  MDB_cursor* opened = nullptr;
  ThrowUnlessOk(mdb_cursor_open(read.transaction(), read.database(), &opened), "mdb_cursor_open");
  const std::unique_ptr<MDB_cursor, CloseCursor> cursor(opened);
  MDB_val key{};
  MDB_val value{};
  int code = MDB_SUCCESS;
  while ((code = mdb_cursor_get(cursor.get(), &key, &value, MDB_NEXT)) == MDB_SUCCESS) {
    visit(AsBytes(key), AsBytes(value));
  }
  if (code != MDB_NOTFOUND) ThrowUnlessOk(code, "mdb_cursor_get");
}

std::vector<KeyValue> LmdbRecords(const std::filesystem::path& data_file,
                                  std::string_view database) {
  std::vector<KeyValue> records;
  LmdbScan(data_file, database, [&records](Bytes key, Bytes value) {
    records.emplace_back(AsText(key), AsText(value));
  });
  return records;
}

MDB_stat LmdbStat(const std::filesystem::path& data_file, std::string_view database) {
  const ReadTransaction read(data_file, database);
  MDB_stat stat{};
  ThrowUnlessOk(mdb_stat(read.transaction(), read.database(), &stat), "mdb_stat");
  return stat;
}

unsigned LmdbFlags(const std::filesystem::path& data_file, std::string_view database) {
  const ReadTransaction read(data_file, database);
  unsigned flags = 0;
  ThrowUnlessOk(mdb_dbi_flags(read.transaction(), read.database(), &flags), "mdb_dbi_flags");
  return flags;
}

}  // namespace lmdbio::test
