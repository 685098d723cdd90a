// lmdbio/load/loader/opened_file.h - the data file, or the list of them, as this process sees it.
//
// Source: docs/loader.md "Opening".
#ifndef LMDBIO_LOAD_LOADER_OPENED_FILE_H_
#define LMDBIO_LOAD_LOADER_OPENED_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/load/files/file_listing.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/kept/layout_cache.h"
#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/slots/notes.h"
#include "lmdbio/load/view/view.h"

namespace lmdbio::load {

// The argument of Loader::Open: a path, or a list of databases.
struct WantedFiles {
  std::string path;                // a file, a folder or a glob; empty if there is a list
  std::vector<DatabasePath> list;  // more than one; or empty
  std::shared_ptr<const ViewSpec> view = nullptr;  // null: each record is a sample
  // The first files of `list`, if the others are those of fields of the view. 0: those of fields
  // are to be found.
  size_t own_count = 0;
};

// Empty on ranks that do not read. Outlives everything that reads.
struct OpenedFile {
  // Finds the data files of `wanted`; does nothing if they were found before.
  // Errors: as file::ListDataFiles; kNotFound, kPermission; as DatabasesOfField
  Status Find(const WantedFiles& wanted, const LoaderOptions& options);

  // Opens the files and notes their snapshots. Requires: Find has succeeded
  // Errors: as OpenedFiles::Open
  Status Open(const LoaderOptions& options);

  bool is_open() const { return files != nullptr; }
  bool is_list() const { return list.size() > 1; }

  // The layout by provenance, or the one that an earlier job has kept (then sets is_kept_layout).
  // notes  gets a line if a kept layout does not fit, or replaces provenance that does not
  // Errors: of provenance, as ReadProvenance
  Result<file::Layout> FindLayout(const file::Database& database, Notes& notes);

  // Resolves the view for this process. Does nothing if it was resolved before, or `spec` is null.
  // Requires: Open has succeeded
  // notes  as View::Resolve
  // Errors: as View::Resolve
  Status ResolveView(const ViewSpec* spec, Notes& notes);

  // Decides for all ranks how records are located and read. Only job rank 0 calls this. If
  // provenance was read for the decision, `layout` has the result.
  // notes    gets a line if provenance does not fit
  // listing  gets the files of a list
  // Requires: ResolveView has succeeded
  // Errors: as LookAtFiles and TakeView; as LayoutFromProvenance, for strategies
  //         that need provenance
  Result<OpenDecision> Decide(const LoaderOptions& options, const HostMember& member, Notes& notes,
                              FileListing& listing);

  // The databases of the list one after the other, for a scan. Those with a known layout are not
  // walked, if `decision` allows it. Requires: is_list()
  // notes  borrowed by the result
  // member  of this rank
  std::vector<ScanFile> ScanFiles(const OpenDecision& decision, const HostMember& member,
                                  Notes& notes);

  // The file to measure the storage with: of a list the largest.
  const std::string& measured_path() const { return files->data_path(files->largest()); }
  uint64_t measured_bytes() const { return files->snapshot(files->largest()).file_size_bytes; }

  // Appends the files of fields of other databases. Errors: as DatabasesOfField
  Status FindOthers(const ViewSpec& spec, std::vector<DatabasePath>& found) const;

  std::vector<DatabasePath> list;      // as found; those of fields of other databases at the end
  size_t own_count = 1;                // the others before them
  std::string data_path;               // of a single file
  std::unique_ptr<OpenedFiles> files;  // once they are open
  std::optional<file::Layout> layout;  // until the locator takes it
  std::optional<LayoutCache> cache;    // if layouts are kept, and this process walks alone
  bool is_kept_layout = false;         // the layout comes from the cache
  std::shared_ptr<const View> view;    // null: each record is a sample
  std::vector<ViewDatabase> sources;   // of the view: the databases of `list`
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_OPENED_FILE_H_
