#include "lmdbio/load/baseline/lmdb_call_error.h"

#include <lmdb.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/file/layout/snapshot.h"
#include "lmdbio/file/source/file_source.h"

namespace lmdbio::load {
namespace {

// By the action that can help: free a resource, change a permission, restore the file. All other
// positive numbers are those of system calls on the file, such as ESTALE of NFS.
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
    case EMFILE:
    case ENFILE:
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
    default:
      return rc > 0 ? ErrorCode::kIo : ErrorCode::kInternal;
  }
}

// liblmdb's own numbers are negative. A reader's slot becomes free when another reader ends.
int ErrorNumberOf(int rc) { return rc == MDB_READERS_FULL ? EAGAIN : std::max(rc, 0); }

// liblmdb 0.9 finds no magic number at its offset in such a file and returns MDB_INVALID.
bool IsVersion3(const std::string& data_path) {
  const auto source = file::FileSource::Open(data_path);
  if (!source) return false;
  const auto snapshot = file::TakeSnapshot(**source);
  return snapshot && snapshot->page_format.version() == file::DataVersion::k3;
}

}  // namespace

Error LmdbCallError(int rc, std::string_view path, std::string_view what) {
  return Error(CodeOf(rc), fmt::format("{}: liblmdb: {}: {}", path, what, mdb_strerror(rc)),
               ErrorNumberOf(rc));
}

Error LmdbOpenError(int rc, const std::string& data_path) {
  if (rc == MDB_INVALID && IsVersion3(data_path)) {
    return Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "{}: this liblmdb ({}) does not support data version 3; use liblmdb 1.0 or later",
            data_path, mdb_version(nullptr, nullptr, nullptr)));
  }
  return LmdbCallError(rc, data_path, "mdb_env_open");
}

}  // namespace lmdbio::load
