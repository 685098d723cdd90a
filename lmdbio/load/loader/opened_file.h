// lmdbio/load/loader/opened_file.h - the data file as this process sees it.
//
// Source: docs/loader.md "Opening".
#ifndef LMDBIO_LOAD_LOADER_OPENED_FILE_H_
#define LMDBIO_LOAD_LOADER_OPENED_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/kept/layout_cache.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/slots/snapshot_guard.h"
#include "lmdbio/load/view/view.h"

namespace lmdbio::load {

// Empty on ranks that do not read. Outlives everything that reads.
struct OpenedFile {
  // Finds the data file of `path`; does nothing if it was found before.
  // path  a directory with data.mdb, or a data file
  // Errors: kNotFound, kPermission
  Status Find(const std::string& path);

  // Opens the file and notes its snapshot. Requires: Find has succeeded
  // Errors: as SnapshotGuard::Open
  Status Open(SnapshotMode mode);

  // The database that options.database_name names. Requires: Open has succeeded
  // Errors: kNotFound, kCorruption, kIo
  Result<file::Database> FindDatabase(const LoaderOptions& options) const;

  // The layout by provenance, or the one that an earlier job has kept (then sets is_kept_layout).
  // notes  gets a line if a kept layout does not fit, or replaces provenance that does not
  // Errors: of provenance, as ReadProvenance
  Result<file::Layout> FindLayout(const file::Database& database, Notes& notes);

  // Resolves the view for this process. Does nothing if it was resolved before, or `spec` is null.
  // Requires: Open has succeeded
  // notes  as View::Resolve
  // Errors: as View::Resolve
  Status ResolveView(const ViewSpec* spec, const LoaderOptions& options, Notes& notes);

  // Decides for all ranks how records are located and read. Only job rank 0 calls this. If
  // provenance was read for the decision, `layout` has the result.
  // notes  gets a line if provenance does not fit
  // Requires: ResolveView has succeeded
  // Errors: as LookAtDatabase and TakeView; as LayoutFromProvenance, for strategies that need
  //         provenance
  Result<OpenDecision> Decide(const LoaderOptions& options, const HostMember& member, Notes& notes);

  std::string data_path;  // of the file itself
  std::unique_ptr<file::FileSource> source;
  std::optional<SnapshotGuard> guard;  // borrows source
  std::optional<file::Layout> layout;  // until the locator takes it
  std::optional<LayoutCache> cache;    // if layouts are kept, and this process walks alone
  bool is_kept_layout = false;         // the layout comes from the cache
  std::shared_ptr<const View> view;    // null: each record is a sample
  std::vector<ViewDatabase> sources;   // of the view, this file's own database first
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_OPENED_FILE_H_
