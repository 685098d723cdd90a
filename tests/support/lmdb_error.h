// tests/support/lmdb_error.h - liblmdb's return codes as exceptions, for test support only.
#ifndef TESTS_SUPPORT_LMDB_ERROR_H_
#define TESTS_SUPPORT_LMDB_ERROR_H_

#include <stdexcept>
#include <string>
#include <string_view>

#include <lmdb.h>

namespace lmdbio::test {

inline void ThrowUnlessOk(int code, std::string_view call) {
  if (code != MDB_SUCCESS) throw std::runtime_error(std::string(call) + ": " + mdb_strerror(code));
}

inline MDB_val AsMdbVal(std::string_view text) {
  return {text.size(), const_cast<char*>(text.data())};  // liblmdb does not write to it
}

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_LMDB_ERROR_H_
