#include "lmdbio/load/kept/key_index_cache.h"

#include <vector>

#include "lmdbio/file/layout/snapshot.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{64} << 30;

}  // namespace

Result<file::KeyIndex> KeyIndexCache::Find(const file::Database& database,
                                           uint64_t record_count) const {
  const std::string path = PathOf(database);
  LMDBIO_TRY(const std::vector<std::byte> bytes, file::ReadSmallFile(path, kFileBytesMax));
  auto decoded = file::KeyIndex::Decode(bytes);
  if (!decoded) return Fail(std::move(decoded).error().Within(path));
  Status fits = file::CheckFingerprint(decoded->second, database);
  if (!fits) return Fail(std::move(fits).error().Within(path));
  if (decoded->first.record_count() != record_count) {
    return Fail(ErrorCode::kStale, path + ": the key index has another number of records");
  }
  return std::move(decoded->first);
}

Status KeyIndexCache::Keep(const file::Database& database, std::span<const PageNo> leaves,
                           const file::KeyIndex& index) const {
  LMDBIO_TRY(const file::Fingerprint fingerprint, file::TakeFingerprint(database, leaves));
  const std::vector<std::byte> bytes = index.Encode(fingerprint);
  // A file that was written meanwhile may yield an index of two states.
  LMDBIO_TRY_VOID(file::CheckSnapshotHolds(database.pages().source(), database.pages().snapshot()));
  return folder_.Keep(PathOf(database), bytes);
}

}  // namespace lmdbio::load
