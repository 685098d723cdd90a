#include "lmdbio/load/loader/opened_file.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

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

Status OpenedFile::ResolveView(const ViewSpec* spec, const LoaderOptions& options, Notes& notes) {
  if (spec == nullptr || view) return {};
  LMDBIO_TRY(const file::Database own, FindDatabase(options));
  sources = {{own}};
  for (const ViewDatabaseName& other : spec->others) {
    if (!other.path.empty()) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: a loader cannot read fields of other files, here of {}; a dataset "
                      "can",
                      data_path, other.path));
    }
    LoaderOptions of_other;
    of_other.database_name = other.database_name;
    LMDBIO_TRY(const file::Database database, FindDatabase(of_other));
    const ViewDatabase& before = sources.back();
    LMDBIO_TRY(const uint64_t count, CountRecords(before.database));
    sources.push_back({database, before.first_record + count});
  }
  std::vector<std::string> lines;
  Result<View> resolved = View::Resolve(*spec, {&sources, 1}, lines);
  if (!resolved) return Fail(guard->Explain(std::move(resolved).error()));
  Status holds = guard->AfterSlot();
  if (!holds) return Fail(guard->Explain(std::move(holds).error()));
  view = std::make_shared<const View>(std::move(*resolved));
  notes.Add(std::move(lines));
  return {};
}

// Absent files are normal. A file that does not fit is worth a line.
Result<file::Layout> OpenedFile::FindLayout(const file::Database& database, Notes& notes) {
  Result<file::Layout> found = LayoutFromProvenance(database, ProvenancePathOf(database));
  if (found || !cache) return found;
  Result<file::Layout> kept = cache->Find(database);
  is_kept_layout = kept.has_value();
  if (kept && found.error().code() != ErrorCode::kNotFound) {
    notes.Add(found.error().message() + ": using the layout that an earlier job kept");
  }
  if (kept) return kept;
  if (kept.error().code() != ErrorCode::kNotFound) {
    notes.Add(kept.error().message() + ": using a page walk instead");
  }
  return found;
}

Result<OpenDecision> OpenedFile::Decide(const LoaderOptions& options, const HostMember& member,
                                        Notes& notes) {
  LMDBIO_TRY(const file::Database database, FindDatabase(options));
  LMDBIO_TRY(OpenDecision decision, LookAtDatabase(database, data_path, options, member));
  if (view) LMDBIO_TRY_VOID(TakeView(*view, sources, data_path, decision));
  LMDBIO_TRY_VOID(CheckHasBatch(decision, data_path, options));
  decision.exchanges = WantsExchange(decision, options, member, data_path);
  decision.locating = CompositionOf(options.strategy).locating;
  if (CompositionOf(options.strategy).read_sizing == ReadSizing::kFromBudget) {
    const file::EngineOptions engine{
        decision.engine, decision.cache, options.queue_depth, {}, member.is_only_host};
    decision.read_cost = MeasureReads(data_path, engine, decision.snapshot->file_size_bytes,
                                      options.block_bytes, notes);
  }
  const bool has_choice = decision.locating == LocateMethod::kBest;
  if (!has_choice && decision.locating != LocateMethod::kProvenance) return decision;
  // Several readers would each need the kept layout, and other hosts have other folders.
  if (has_choice && member.is_only_host && member.reader_count == 1) {
    cache = LayoutCache::Of(options.layout_cache);
  }
  // Rank 0 computes the layout here, because only the expansion proves that the file fits.
  Result<file::Layout> found = FindLayout(database, notes);
  if (found) {
    decision.locating = LocateMethod::kProvenance;
    decision.is_kept_layout = is_kept_layout;
    layout = std::move(*found);
    return decision;
  }
  if (!has_choice) return Fail(std::move(found).error());
  if (found.error().code() != ErrorCode::kNotFound) {
    notes.Add(found.error().message() + ": using a page walk instead");
  }
  decision.locating = LocateMethod::kScan;
  return decision;
}

}  // namespace lmdbio::load
