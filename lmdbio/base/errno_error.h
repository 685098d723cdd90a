// lmdbio/base/errno_error.h - a failed system call as an Error.
#ifndef LMDBIO_BASE_ERRNO_ERROR_H_
#define LMDBIO_BASE_ERRNO_ERROR_H_

#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio {

// "PATH: WHAT: strerror", with the ErrorCode that fits `error_number`. The error keeps the number.
// path  may be empty if the caller adds it (Error::Within)
Error ErrnoError(int error_number, std::string_view path, std::string_view what);

}  // namespace lmdbio
#endif  // LMDBIO_BASE_ERRNO_ERROR_H_
