#include "tools/make/image_list.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::tools {
namespace {

namespace fs = std::filesystem;

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Appends the files under the folder root/label_name.
Status AppendFiles(const fs::path& root, const std::string& label_name, int32_t label,
                   std::vector<LabelledFile>& files) {
  const size_t first = files.size();
  std::error_code error;
  fs::recursive_directory_iterator entry(root / label_name, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const bool is_folder = entry->is_directory(error);
    if (IsHidden(entry->path())) {
      if (is_folder) entry.disable_recursion_pending();
    } else if (!is_folder) {
      // A broken link is listed, too. Reading it later fails with its path.
      files.push_back({entry->path().lexically_relative(root).generic_string(), label});
    }
    error.clear();
  }
  if (error) return Fail(ErrnoError(error.value(), (root / label_name).string(), "cannot be read"));
  // A file system lists names in any order. Sorting by bytes gives the same keys on every machine.
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end(),
            [](const LabelledFile& a, const LabelledFile& b) { return a.path < b.path; });
  return {};
}

}  // namespace

Result<ImageList> ListImages(const std::string& root) {
  ImageList list;
  std::error_code error;
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (IsHidden(entry->path())) continue;
    std::error_code ignored;  // an entry that cannot be examined does not count as a folder
    if (entry->is_directory(ignored)) {
      list.labels.push_back(entry->path().filename().string());
    } else {
      ++list.unlabelled_count;
    }
  }
  if (error) return Fail(ErrnoError(error.value(), root, "cannot be read"));
  if (list.labels.empty()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: contains no folder; each folder is a label", root));
  }
  std::sort(list.labels.begin(), list.labels.end());
  for (size_t label = 0; label < list.labels.size(); ++label) {
    LMDBIO_TRY_VOID(AppendFiles(root, list.labels[label], static_cast<int32_t>(label), list.files));
  }
  return list;
}

void Shuffle(std::vector<LabelledFile>& files, uint64_t seed) {
  // Fisher-Yates. std::shuffle is not used, because its result depends on the standard library.
  std::mt19937_64 random(seed);
  for (size_t rest = files.size(); rest > 1; --rest) {
    std::swap(files[rest - 1], files[random() % rest]);  // the bias is below rest / 2^64
  }
}

}  // namespace lmdbio::tools
