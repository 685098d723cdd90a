// Replaces lmdb_stream.cc and snapshot_pin.cc in a build with LMDBIO_WITH_LMDB=OFF. The two
// features that need liblmdb are refused, and the message names them.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/load/baseline/lmdb_stream.h"
#include "lmdbio/load/baseline/snapshot_pin.h"

namespace lmdbio::load {
namespace {

Error WithoutLmdb(std::string_view data_path, std::string_view feature, std::string_view others) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("{}: {} needs liblmdb, and this lmdbio was built without it; choose {}, "
                           "or build lmdbio with -DLMDBIO_WITH_LMDB=ON",
                           data_path, feature, others));
}

}  // namespace

Result<std::unique_ptr<LmdbStream>> LmdbStream::Open(const std::string& data_path,
                                                     const std::string& /*database_name*/) {
  return Fail(WithoutLmdb(data_path, "strategy lmdb", "another strategy, such as auto"));
}

Result<std::unique_ptr<SnapshotPin>> SnapshotPin::Open(const std::string& data_path) {
  return Fail(WithoutLmdb(data_path, "snapshot mode pinned", "immutable or optimistic"));
}

}  // namespace lmdbio::load
