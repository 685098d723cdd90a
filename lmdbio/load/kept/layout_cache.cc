#include "lmdbio/load/kept/layout_cache.h"

#include <vector>

#include "lmdbio/file/layout/snapshot.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/fingerprint.h"
#include "lmdbio/file/provenance/provenance.h"

namespace lmdbio::load {

std::optional<LayoutCache> LayoutCache::Of(const std::string& option) {
  std::optional<KeptFolder> folder = KeptFolder::Of(option);
  if (!folder) return std::nullopt;
  return LayoutCache(std::move(*folder));
}

Result<file::Layout> LayoutCache::Find(const file::Database& database) const {
  return LayoutFromProvenance(database, PathOf(database));
}

Status LayoutCache::Keep(const file::Database& database, const FinishedWalk& walked) const {
  if (walked.leaves.size() < kLeafPagesMin) return {};
  LMDBIO_TRY(const file::Fingerprint fingerprint, file::TakeFingerprint(database, walked.leaves));
  file::ExactEncoder encoder(database.pages().page_format());
  LMDBIO_TRY_VOID(walked.expand(encoder));
  const std::vector<std::byte> bytes =
      file::EncodeExactLayout(fingerprint, walked.record_count, encoder.Finish());
  // A file that was written meanwhile may yield a layout of two states.
  LMDBIO_TRY_VOID(file::CheckSnapshotHolds(database.pages().source(), database.pages().snapshot()));
  return folder_.Keep(PathOf(database), bytes);
}

}  // namespace lmdbio::load
