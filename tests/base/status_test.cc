#include "lmdbio/base/status.h"

#include <cerrno>
#include <string>

#include "tests/support/catch.h"

namespace lmdbio {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Fail(ErrorCode::kInvalidArgument, std::to_string(n) + " is odd");
  return n / 2;
}

Result<int> Quarter(int n) {
  LMDBIO_TRY(const int half, Half(n));
  LMDBIO_TRY(const int quarter, Half(half));
  return quarter;
}

Status CheckEven(int n) {
  LMDBIO_TRY_VOID(Half(n));
  return {};
}

TEST_CASE("LMDBIO_TRY declares the value or returns the error", "[base]") {
  CHECK(Quarter(12) == 3);
  const Result<int> odd = Quarter(6);
  REQUIRE_FALSE(odd.has_value());
  CHECK(odd.error().code() == ErrorCode::kInvalidArgument);
  CHECK(odd.error().message() == "3 is odd");
  CHECK(CheckEven(2).has_value());
  CHECK_FALSE(CheckEven(1).has_value());
}

TEST_CASE("the message of a temporary error outlives the error", "[base]") {
  const std::string& message = Half(3).error().message();
  const std::string& of_moved = Error(ErrorCode::kIo, "cannot read").message();
  CHECK(message == "3 is odd");
  CHECK(of_moved == "cannot read");
}

TEST_CASE("a message is one line, whatever names it has", "[base]") {
  Error error = Error(ErrorCode::kNotFound, "a\nb\r\x7F: \xC3\xA4 is absent").Within("c\td");
  CHECK(error.message() == "c?d: a?b??: \xC3\xA4 is absent");
}

TEST_CASE("Error::Within prefixes the message", "[base]") {
  const Error error = Error(ErrorCode::kCorruption, "page 7: too short").Within("a/data.mdb");
  CHECK(error.message() == "a/data.mdb: page 7: too short");
  CHECK(error.code() == ErrorCode::kCorruption);
}

TEST_CASE("Error keeps errno in Within and Copy", "[base]") {
  CHECK(Error(ErrorCode::kCorruption, "no slot").error_number() == 0);
  const Error error = Error(ErrorCode::kIo, "read failed", EIO).Within("data.mdb");
  CHECK(error.error_number() == EIO);
  const Error copy = error.Copy();
  CHECK(copy.code() == ErrorCode::kIo);
  CHECK(copy.message() == "data.mdb: read failed");
  CHECK(copy.error_number() == EIO);
  const auto passed_on = []() -> Status {
    LMDBIO_TRY_VOID(Status(Fail(ErrorCode::kResourceExhausted, "full", ENOSPC)));
    return {};
  };
  CHECK(passed_on().error().error_number() == ENOSPC);
}

TEST_CASE("Every error code has a name", "[base]") {
  for (int code = 1; code <= 9; ++code) {
    CHECK(ErrorCodeName(static_cast<ErrorCode>(code)) != "unknown error");
  }
  CHECK(ErrorCodeName(static_cast<ErrorCode>(1000)) == "unknown error");
}

// A Result must be no larger than its value and a pointer.
static_assert(sizeof(Error) == sizeof(void*));
static_assert(sizeof(Result<bool>) == 2 * sizeof(void*));

}  // namespace
}  // namespace lmdbio
