#include "lmdbio/base/errno_error.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace lmdbio {
namespace {

// A code stands for the remedy: another path, other permissions, more resources, or none.
ErrorCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermission;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kResourceExhausted;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Error ErrnoError(int error_number, std::string_view path, std::string_view what) {
  const std::string reason = std::generic_category().message(error_number);
  Error error(CodeOf(error_number), fmt::format("{}: {}", what, reason), error_number);
  return path.empty() ? std::move(error) : std::move(error).Within(path);
}

}  // namespace lmdbio
