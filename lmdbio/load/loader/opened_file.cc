#include "lmdbio/load/loader/opened_file.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/view/view_files.h"

namespace lmdbio::load {

Status OpenedFile::Find(const WantedFiles& wanted, const LoaderOptions& options) {
  if (!list.empty()) return {};
  std::vector<DatabasePath> found = wanted.list;
  if (found.empty()) {
    LMDBIO_TRY(found, DatabasesOf(wanted.path, options.database_name));
  }
  own_count = wanted.own_count > 0 ? wanted.own_count : found.size();
  if (wanted.view && wanted.own_count == 0) LMDBIO_TRY_VOID(FindOthers(*wanted.view, found));
  if (found.size() == 1) {
    LMDBIO_TRY(data_path, file::FindDataFile(found.front().path));
  }
  list = std::move(found);
  return {};
}

Status OpenedFile::FindOthers(const ViewSpec& spec, std::vector<DatabasePath>& found) const {
  const std::vector<DatabasePath> own = found;
  for (const ViewDatabaseName& other : spec.others) {
    LMDBIO_TRY(const std::vector<DatabasePath> of_field, DatabasesOfField(other, own));
    found.insert(found.end(), of_field.begin(), of_field.end());
  }
  return {};
}

// The files of the view are joined with those of other fields one by one.
Status OpenedFile::ResolveView(const ViewSpec* spec, Notes& notes) {
  if (spec == nullptr || view) return {};
  uint64_t first_record = 0;
  for (size_t i = 0; i < files->file_count(); ++i) {
    sources.push_back({files->database(i), first_record});
    LMDBIO_TRY(const uint64_t count, files->CountRecords(i));
    first_record += count;
  }
  std::vector<std::vector<ViewDatabase>> joined(own_count);
  for (size_t i = 0; i < sources.size(); ++i) joined[i % own_count].push_back(sources[i]);
  std::vector<std::string> lines;
  Result<View> resolved = View::Resolve(*spec, joined, lines);
  if (!resolved) return Fail(files->guards().Explain(std::move(resolved).error()));
  Status holds = files->guards().AfterSlot();
  if (!holds) return Fail(files->guards().Explain(std::move(holds).error()));
  view = std::make_shared<const View>(std::move(*resolved));
  notes.Add(std::move(lines));
  return {};
}

Status OpenedFile::Open(const LoaderOptions& options) {
  LMDBIO_TRY(files, OpenedFiles::Open(list, {options.snapshot, options.open_files_max}));
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

std::vector<ScanFile> OpenedFile::ScanFiles(const OpenDecision& decision, const HostMember& member,
                                            Notes& notes) {
  const bool needs_provenance = decision.locating == LocateMethod::kProvenance;
  std::vector<ScanFile> scans;
  for (size_t i = 0; i < files->file_count(); ++i) {
    const file::Database& database = files->database(i);
    ScanFile scan{database, files->first_page(i), {}, {}};
    if (needs_provenance) {
      scan.find_layout = [&database]() -> Result<std::optional<file::Layout>> {
        LMDBIO_TRY(file::Layout found, LayoutFromProvenance(database, ProvenancePathOf(database)));
        return found;
      };
    } else if (member.is_only_host) {
      // Several hosts walk together, so all of them must walk over the same files.
      scan.find_layout = [this, &database, &notes]() -> Result<std::optional<file::Layout>> {
        Result<file::Layout> found = FindLayout(database, notes);
        if (found) return std::move(*found);
        if (found.error().code() != ErrorCode::kNotFound) {
          notes.Add(found.error().message() + ": using a page walk instead");
        }
        return std::nullopt;
      };
    }
    if (cache) {
      scan.on_walked = [&database, kept_in = *cache, &notes](const FinishedWalk& walked) {
        const Status kept = kept_in.Keep(database, walked);
        if (auto words = kept_in.NoteOf(kept)) notes.Add(std::move(*words));
      };
    }
    scans.push_back(std::move(scan));
  }
  return scans;
}

namespace {

// Each file of a list is located by itself, in the walking thread. Only strategies that need
// provenance look for it here.
Result<OpenDecision> DecideOnList(const LoaderOptions& options, const HostMember& member,
                                  OpenDecision decision, OpenedFile& file) {
  if (decision.locating == LocateMethod::kProvenance) {
    for (size_t i = 0; i < file.files->file_count(); ++i) {
      const file::Database& database = file.files->database(i);
      LMDBIO_TRY_VOID(ReadProvenance(database, ProvenancePathOf(database)));
    }
  }
  if (decision.locating != LocateMethod::kBest) return decision;
  decision.locating = LocateMethod::kScan;
  if (member.is_only_host && member.reader_count == 1) {
    file.cache = LayoutCache::Of(options.layout_cache);
  }
  return decision;
}

}  // namespace

Result<OpenDecision> OpenedFile::Decide(const LoaderOptions& options, const HostMember& member,
                                        Notes& notes, FileListing& listing) {
  LMDBIO_TRY(OpenDecision decision, LookAtFiles(*files, options, member, notes));
  if (is_list()) {
    LMDBIO_TRY(listing, ListingOf(*files, list));
  }
  if (view) LMDBIO_TRY_VOID(TakeView(*view, sources, files->name(), decision));
  LMDBIO_TRY_VOID(CheckHasBatch(decision, files->name(), options));
  decision.exchanges = WantsExchange(decision, options, member, measured_path());
  decision.locating = CompositionOf(options.strategy).locating;
  if (CompositionOf(options.strategy).read_sizing == ReadSizing::kFromBudget) {
    const file::EngineOptions engine{
        decision.engine, decision.cache, options.queue_depth, {}, member.is_only_host};
    decision.read_cost =
        MeasureReads(measured_path(), engine, measured_bytes(), options.block_bytes, notes);
  }
  if (is_list()) return DecideOnList(options, member, decision, *this);
  const bool has_choice = decision.locating == LocateMethod::kBest;
  if (!has_choice && decision.locating != LocateMethod::kProvenance) return decision;
  // Several readers would each need the kept layout, and other hosts have other folders.
  if (has_choice && member.is_only_host && member.reader_count == 1) {
    cache = LayoutCache::Of(options.layout_cache);
  }
  // Rank 0 computes the layout here, because only the expansion proves that the file fits.
  Result<file::Layout> found = FindLayout(files->database(0), notes);
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
