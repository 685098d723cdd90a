#include "lmdbio/writer/system_error.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace lmdbio::writer {
namespace {

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
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Error SystemError(int error_number, std::string_view what) {
  return Error(CodeOf(error_number),
               fmt::format("{}: {}", what, std::generic_category().message(error_number)));
}

}  // namespace lmdbio::writer
