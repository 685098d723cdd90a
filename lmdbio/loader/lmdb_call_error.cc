#include "lmdbio/loader/lmdb_call_error.h"

#include <lmdb.h>

#include <cerrno>

#include <fmt/format.h>

namespace lmdbio::loader {
namespace {

ErrorCode CodeOf(int rc) {
  switch (rc) {
    case ENOENT:
    case MDB_NOTFOUND:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermission;
    case ENOMEM:
    case ENOSPC:
    case EAGAIN:
    case MDB_READERS_FULL:
      return ErrorCode::kResourceExhausted;
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_PANIC:
      return ErrorCode::kCorruption;
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
      return ErrorCode::kUnsupported;
    case EIO:
      return ErrorCode::kIo;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

Error LmdbCallError(int rc, std::string_view path, std::string_view what) {
  return Error(CodeOf(rc), fmt::format("{}: liblmdb: {}: {}", path, what, mdb_strerror(rc)));
}

}  // namespace lmdbio::loader
