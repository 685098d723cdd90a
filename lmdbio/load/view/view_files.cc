#include "lmdbio/load/view/view_files.h"

#include <fmt/format.h>

namespace lmdbio::load {

Result<std::vector<DatabasePath>> DatabasesOfField(const ViewDatabaseName& other,
                                                   const std::vector<DatabasePath>& own) {
  if (other.path.empty()) {
    std::vector<DatabasePath> same;
    same.reserve(own.size());
    for (const DatabasePath& one : own) same.push_back({one.path, other.database_name});
    return same;
  }
  LMDBIO_TRY(std::vector<DatabasePath> found, DatabasesOf(other.path, other.database_name));
  if (found.size() == own.size()) return found;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: has {} files, but the view has {}, {}: files are joined one by one",
                          other.path, found.size(), own.size(), NameOfList(own)));
}

}  // namespace lmdbio::load
