// lmdbio/base/status.h - every call of this library reports failure as a value.
//
// Bad data from a file, a peer, the kernel or a caller yields an Error. Broken invariants of lmdbio
// itself end the process (lmdbio/base/check.h).
#ifndef LMDBIO_BASE_STATUS_H_
#define LMDBIO_BASE_STATUS_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace lmdbio {

// The kind of a failure, by the action that can help. The numbers are append-only.
enum class ErrorCode : int {
  kInvalidArgument = 1,    // the call was wrong: correct the arguments
  kNotFound = 2,           // the file, database, key or record does not exist
  kPermission = 3,         // it exists, but this process may not read or write it
  kIo = 4,                 // the storage failed; the message names offset and errno
  kCorruption = 5,         // the bytes break a rule of the format; restore the file
  kUnsupported = 6,        // well-formed, but of a kind that this library does not support
  kStale = 7,              // the file differs from the one that was described or opened
  kResourceExhausted = 8,  // memory, disk or a configured limit ran out
  kInternal = 9,           // a dependency broke its contract
  kPeerFailed = 10,        // another rank failed; the message names the rank and its reason
};

// "corruption", "not found", ... : a stable lower-case word for logs and JSON.
std::string_view ErrorCodeName(ErrorCode code);

// The reason why a call failed. It is one pointer wide, so Result<T> stays cheap to return.
class [[nodiscard]] Error {
 public:
  // error_number  errno of the system call that failed; 0 if none failed
  Error(ErrorCode code, std::string message, int error_number = 0);

  ErrorCode code() const { return detail_->code; }
  // One line: the object, the operation and the reason. Control characters, which names may have,
  // are shown as '?'.
  // A temporary error gives a copy, which may outlive it.
  const std::string& message() const& { return detail_->message; }
  std::string message() && { return detail_->message; }
  // errno of the system call behind this error, on the rank where it failed; 0 if there is none.
  int error_number() const { return detail_->error_number; }

  // The same error with "`where`: " in front, for a caller that knows the file or database.
  Error Within(std::string_view where) &&;
  Error Copy() const;

 private:
  struct Detail {
    ErrorCode code;
    std::string message;
    int error_number;
  };
  std::unique_ptr<Detail> detail_;  // never null except after a move
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// `return Fail(ErrorCode::kCorruption, "page 7: ...");`
inline tl::unexpected<Error> Fail(ErrorCode code, std::string message, int error_number = 0) {
  return tl::unexpected<Error>(Error(code, std::move(message), error_number));
}
inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace lmdbio

#define LMDBIO_CONCAT_INNER(a, b) a##b
#define LMDBIO_CONCAT(a, b) LMDBIO_CONCAT_INNER(a, b)

// LMDBIO_TRY(const auto page, reader.Page(page_no)); declares `page` or returns the error.
#define LMDBIO_TRY(declaration, expression) \
  LMDBIO_TRY_IMPL(LMDBIO_CONCAT(lmdbio_try_, __LINE__), declaration, expression)
#define LMDBIO_TRY_IMPL(result, declaration, expression) \
  auto result = (expression);                            \
  if (!result) [[unlikely]] {                            \
    return ::lmdbio::Fail(std::move(result).error());    \
  }                                                      \
  declaration = std::move(*result)

// LMDBIO_TRY_VOID(writer.Flush()); returns the error, if there is one.
#define LMDBIO_TRY_VOID(expression) \
  LMDBIO_TRY_VOID_IMPL(LMDBIO_CONCAT(lmdbio_try_, __LINE__), expression)
#define LMDBIO_TRY_VOID_IMPL(result, expression)        \
  do {                                                  \
    auto result = (expression);                         \
    if (!result) [[unlikely]] {                         \
      return ::lmdbio::Fail(std::move(result).error()); \
    }                                                   \
  } while (false)

#endif  // LMDBIO_BASE_STATUS_H_
