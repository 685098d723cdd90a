#include "lmdbio/file/io/file_list.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/io/data_path.h"

namespace lmdbio::file {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The digits at `at` without leading zeros, and the position behind them.
std::string_view NumberAt(std::string_view text, size_t& at) {
  while (at < text.size() && text[at] == '0') ++at;
  const size_t begin = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

bool IsDirectory(const std::string& path) {
  struct stat found = {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool IsFile(const std::string& path) {
  struct stat found = {};
  return ::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

// The file that liblmdb locks, or a provenance file: both lie beside data files.
bool IsCompanion(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  return name == "lock.mdb" || name.ends_with("-lock") || name.ends_with(".prov");
}

bool IsDataFile(const std::string& path) {
  if (IsDirectory(path)) return IsFile(path + "/data.mdb");
  return (path.ends_with(".mdb") || path.ends_with(".lmdb")) && !IsCompanion(path) && IsFile(path);
}

std::vector<std::string> InNaturalOrder(std::vector<std::string> paths) {
  std::ranges::sort(paths, NaturallyBefore);
  return paths;
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  const auto close = [](DIR* directory) { ::closedir(directory); };
  const std::unique_ptr<DIR, decltype(close)> directory(::opendir(path.c_str()), close);
  if (!directory) return Fail(ErrnoError(errno, path, "cannot be listed"));
  std::vector<std::string> files;
  errno = 0;
  while (const dirent* const entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    std::string inside = fmt::format("{}{}{}", path, path.ends_with('/') ? "" : "/", name);
    if (IsDataFile(inside)) files.push_back(std::move(inside));
    errno = 0;
  }
  if (errno != 0) return Fail(ErrnoError(errno, path, "cannot be listed"));
  if (!files.empty()) return InNaturalOrder(std::move(files));
  return Fail(ErrorCode::kNotFound,
              fmt::format("{}: the directory holds no data.mdb, and no .mdb or .lmdb files", path),
              ENOENT);
}

Result<std::vector<std::string>> ListMatches(const std::string& pattern) {
  glob_t found = {};
  const int status = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> matches;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    if (!IsCompanion(found.gl_pathv[i])) matches.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (status == GLOB_NOSPACE) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("{}: no memory to match it", pattern));
  }
  if (status == GLOB_ABORTED) {
    return Fail(ErrorCode::kIo, fmt::format("{}: a directory cannot be listed", pattern));
  }
  if (!matches.empty()) return InNaturalOrder(std::move(matches));
  return Fail(ErrorCode::kNotFound, fmt::format("{}: no file matches", pattern), ENOENT);
}

}  // namespace

bool NaturallyBefore(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      const std::string_view of_a = NumberAt(a, i);
      const std::string_view of_b = NumberAt(b, j);
      if (of_a.size() != of_b.size()) return of_a.size() < of_b.size();
      if (of_a != of_b) return of_a < of_b;
    } else {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i;
      ++j;
    }
  }
  const size_t left_of_a = a.size() - i;
  const size_t left_of_b = b.size() - j;
  return left_of_a != left_of_b ? left_of_a < left_of_b : a < b;
}

Result<std::vector<std::string>> ListDataFiles(const std::string& path) {
  Result<std::string> single = FindDataFile(path);
  if (single) return std::vector<std::string>{path};
  if (single.error().code() != ErrorCode::kNotFound) return Fail(std::move(single).error());
  if (IsDirectory(path)) return ListDirectory(path);
  if (path.find_first_of("*?[") != std::string::npos) return ListMatches(path);
  return Fail(std::move(single).error());
}

}  // namespace lmdbio::file
