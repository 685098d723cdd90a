// tests/file/layout/open_database.h - a data file opened for a test, its source kept alive.
#ifndef LMDBIO_TESTS_FILE_LAYOUT_OPEN_DATABASE_H_
#define LMDBIO_TESTS_FILE_LAYOUT_OPEN_DATABASE_H_

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/file/layout/database.h"
#include "tests/fixtures/memory_source.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {

// The value of a result, or an exception with its message.
template <typename T>
T Value(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}
inline void Succeed(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message());
}

inline std::string Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Opens `source` and the main database, or the named one. Throws.
inline file::Database OpenDatabase(const ByteSource& source, const std::string& name = "") {
  const file::Environment environment = Value(file::Environment::Open(source));
  return name.empty() ? environment.Main() : Value(environment.Named(name));
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_LAYOUT_OPEN_DATABASE_H_
