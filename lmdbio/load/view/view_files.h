// lmdbio/load/view/view_files.h - the files of fields that are of other databases.
//
// Source: docs/views.md; docs/many_files.md.
#ifndef LMDBIO_LOAD_VIEW_VIEW_FILES_H_
#define LMDBIO_LOAD_VIEW_VIEW_FILES_H_

#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/view/view_spec.h"

namespace lmdbio::load {

// The databases that `other` stands for, one for each file of the view.
// own  the files of the view
// Errors: kInvalidArgument  their number differs; as file::ListDataFiles
Result<std::vector<DatabasePath>> DatabasesOfField(const ViewDatabaseName& other,
                                                   const std::vector<DatabasePath>& own);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_VIEW_FILES_H_
