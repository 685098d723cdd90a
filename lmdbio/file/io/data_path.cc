#include "lmdbio/file/io/data_path.h"

#include <sys/stat.h>

#include <cctype>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

Result<mode_t> ModeOf(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return Fail(ErrnoError(errno, path, "cannot be opened"));
  return found.st_mode;
}

}  // namespace

Result<std::string> FindDataFile(const std::string& path) {
  if (path.empty()) return Fail(ErrorCode::kNotFound, "the path is empty");
  std::string data_path = path;
  LMDBIO_TRY(mode_t mode, ModeOf(data_path));
  if (S_ISDIR(mode)) {
    data_path += path.ends_with('/') ? "data.mdb" : "/data.mdb";
    Result<mode_t> inside = ModeOf(data_path);
    if (!inside && inside.error().code() == ErrorCode::kNotFound) {
      return Fail(ErrorCode::kNotFound, fmt::format("{}: the directory holds no data.mdb", path),
                  inside.error().error_number());
    }
    if (!inside) return Fail(std::move(inside).error());
    mode = *inside;
  }
  // LMDB can also use a block device in place of a file.
  if (!S_ISREG(mode) && !S_ISBLK(mode)) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: is not a regular file", data_path));
  }
  return data_path;
}

std::string ProvenancePath(const std::string& data_path, std::string_view database_name) {
  std::string path = data_path;
  if (!database_name.empty()) path += '.';
  // A name may hold any bytes, also `/`. The escaped form is one component of a path.
  for (const char c : database_name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_') {
      path += c;
    } else {
      path += fmt::format("%{:02X}", byte);
    }
  }
  return path + ".prov";
}

}  // namespace lmdbio::file
