// Oracle: liblmdb's comparison, mdb_cmp, in a database with the same flags.
#include "lmdbio/file/format/key_order.h"

#include <lmdb.h>

#include <random>
#include <string>

#include "lmdbio/file/format/meta_page.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

// A write transaction on a database with the given flags, for comparisons of keys.
class LmdbOrder {
 public:
  explicit LmdbOrder(unsigned flags) {
    REQUIRE(mdb_env_create(&environment_) == 0);
    REQUIRE(mdb_env_set_maxdbs(environment_, 1) == 0);
    REQUIRE(mdb_env_open(environment_, dir_.path().c_str(), MDB_NOLOCK, 0644) == 0);
    REQUIRE(mdb_txn_begin(environment_, nullptr, 0, &transaction_) == 0);
    REQUIRE(mdb_dbi_open(transaction_, "db", MDB_CREATE | flags, &database_) == 0);
  }
  ~LmdbOrder() {
    mdb_txn_abort(transaction_);
    mdb_env_close(environment_);
  }
  int Compare(std::string& a, std::string& b) const {
    const MDB_val left{a.size(), a.data()};
    const MDB_val right{b.size(), b.data()};
    return mdb_cmp(transaction_, database_, &left, &right);
  }

 private:
  TempDir dir_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi database_ = 0;
};

int Sign(int number) { return (number > 0) - (number < 0); }

TEST_CASE("CompareKeys orders as liblmdb does", "[format]") {
  std::mt19937 random(1);
  for (const unsigned flags : {0U, unsigned{MDB_REVERSEKEY}, unsigned{MDB_INTEGERKEY},
                               unsigned{MDB_REVERSEKEY | MDB_INTEGERKEY}}) {
    const LmdbOrder oracle(flags);
    const file::KeyOrder order = file::KeyOrderOf(static_cast<uint16_t>(flags));
    for (int trial = 0; trial < 20'000; ++trial) {
      const bool integer = (flags & MDB_INTEGERKEY) != 0;
      const size_t integer_bytes = trial % 2 == 0 ? 4 : 8;
      std::string a(integer ? integer_bytes : 1 + random() % 6, '\0');
      std::string b(integer ? integer_bytes : 1 + random() % 6, '\0');
      // Few different bytes, so that prefixes and equal keys occur.
      for (char& c : a) c = static_cast<char>(random() % 3 * 127);
      for (char& c : b) c = static_cast<char>(random() % 3 * 127);
      const auto ours =
          file::CompareKeys(order, std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
      const int sign = ours < 0 ? -1 : ours > 0 ? 1 : 0;
      REQUIRE(sign == Sign(oracle.Compare(a, b)));
    }
  }
}

TEST_CASE("Flags choose the order of duplicates", "[format]") {
  using file::KeyOrder;
  CHECK(file::DuplicateOrderOf(file::kDupSort) == KeyOrder::kLexical);
  CHECK(file::DuplicateOrderOf(file::kDupSort | file::kReverseDup) == KeyOrder::kReverse);
  CHECK(file::DuplicateOrderOf(file::kDupSort | file::kIntegerDup | file::kReverseDup) ==
        KeyOrder::kInteger);
}

}  // namespace
}  // namespace lmdbio::test
