#include "lmdbio/base/errno_error.h"
#include "tests/support/catch.h"

#include <cerrno>

namespace lmdbio::file {
namespace {

TEST_CASE("ErrnoError chooses the fitting code and keeps errno", "[io]") {
  struct Case {
    int error_number;
    ErrorCode code;
  };
  for (const auto& [error_number, code] : {
           Case{ENOENT, ErrorCode::kNotFound},
           Case{EACCES, ErrorCode::kPermission},
           Case{EIO, ErrorCode::kIo},
           Case{ESTALE, ErrorCode::kIo},
           Case{EISDIR, ErrorCode::kInvalidArgument},
           Case{ENOMEM, ErrorCode::kResourceExhausted},
           Case{ENOSPC, ErrorCode::kResourceExhausted},
           Case{EMFILE, ErrorCode::kResourceExhausted},
       }) {
    INFO("errno " << error_number);
    const Error error = ErrnoError(error_number, "x/data.mdb", "cannot be opened");
    CHECK(error.code() == code);
    CHECK(error.error_number() == error_number);
  }
  CHECK(ErrnoError(EIO, "x/data.mdb", "read").message() == "x/data.mdb: read: Input/output error");
  CHECK(ErrnoError(EIO, "", "read").message() == "read: Input/output error");
}

}  // namespace
}  // namespace lmdbio::file
