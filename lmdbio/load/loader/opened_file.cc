#include "lmdbio/load/loader/opened_file.h"

#include <utility>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {

Status OpenedFile::Find(const std::string& path) {
  if (!data_path.empty()) return {};
  LMDBIO_TRY(data_path, file::FindDataFile(path));
  return {};
}

Status OpenedFile::Open(SnapshotMode mode) {
  LMDBIO_TRY(source, file::FileSource::Open(data_path));
  LMDBIO_TRY(guard, SnapshotGuard::Open(*source, mode));
  return {};
}

Result<file::Database> OpenedFile::FindDatabase(const LoaderOptions& options) const {
  const file::Environment& environment = guard->environment();
  if (options.database_name.empty()) return environment.Main();
  return environment.Named(options.database_name);
}

Result<OpenDecision> OpenedFile::Decide(const LoaderOptions& options, const HostMember& member,
                                        Notes& notes) {
  LMDBIO_TRY(const file::Database database, FindDatabase(options));
  LMDBIO_TRY(OpenDecision decision, LookAtDatabase(database, data_path, options));
  // Rank 0 does not know the page caches of other hosts.
  if (!member.is_only_host) decision.is_in_place = false;
  decision.locating = CompositionOf(options.strategy).locating;
  const bool has_choice = decision.locating == LocateMethod::kBest;
  if (!has_choice && decision.locating != LocateMethod::kProvenance) return decision;
  // Rank 0 computes the layout here, because only the expansion proves that the file fits.
  Result<file::Layout> found = LayoutFromProvenance(database);
  if (found) {
    decision.locating = LocateMethod::kProvenance;
    layout = std::move(*found);
    return decision;
  }
  if (!has_choice) return Fail(std::move(found).error());
  // Absent provenance is normal. Provenance that does not fit is worth a line.
  if (found.error().code() != ErrorCode::kNotFound) {
    notes.Add(found.error().message() + ": using a page walk instead");
  }
  decision.locating = LocateMethod::kScan;
  return decision;
}

}  // namespace lmdbio::load
