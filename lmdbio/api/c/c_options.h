// lmdbio/api/c/c_options.h - converts lmdbio_options and its view to the options of the library.
#ifndef LMDBIO_API_C_C_OPTIONS_H_
#define LMDBIO_API_C_C_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/api/c/lmdbio.h"
#include "lmdbio/base/status.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/records/record_reader.h"
#include "lmdbio/load/view/view_spec.h"

namespace lmdbio::api {

// Completes the options of a caller of any version. Fields that the caller's struct lacks are 0.
// options  may be null: all 0
// Errors: kInvalidArgument  no version of the struct has this struct_size
//         kUnsupported      a byte is set that this version does not know
Result<lmdbio_options> CompleteOptions(const lmdbio_options* options);

// Errors: kInvalidArgument  an unknown value or name; names the field
Result<load::LoaderOptions> LoaderOptionsOf(const lmdbio_options& options);
Result<load::RecordReaderOptions> RecordReaderOptionsOf(const lmdbio_options& options);

// Copies the view of `options`; null if there is none.
// Errors: kInvalidArgument  a member is NULL, or names something unknown; names it
//         kUnsupported      a struct of a later version has more than this version knows
Result<std::shared_ptr<const load::ViewSpec>> ViewSpecOf(const lmdbio_options& options);

// lmdbio_view_info, and what it points to. Must not be moved once it is filled.
struct ViewResult {
  std::vector<std::string> names;
  std::vector<const char*> name_pointers;
  lmdbio_view_info info = {};

  void Fill(std::vector<std::string> field_names, uint64_t sample_count, uint64_t digest);
};
// The databases of a list of files.
// database_name  of the files that have no name of their own
// Errors: kInvalidArgument  `files` or a path is null; as CompleteOptions for the struct
Result<std::vector<load::DatabasePath>> ListOf(const lmdbio_files* files,
                                               const std::string& database_name);

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_OPTIONS_H_
