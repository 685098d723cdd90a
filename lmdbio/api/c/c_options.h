// lmdbio/api/c/c_options.h - converts lmdbio_options to the options of the library.
#ifndef LMDBIO_API_C_C_OPTIONS_H_
#define LMDBIO_API_C_C_OPTIONS_H_

#include "lmdbio/api/c/lmdbio.h"
#include "lmdbio/base/status.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/records/record_reader.h"

namespace lmdbio::api {

// Completes the options of a caller of any version. Fields that the caller's struct lacks are 0.
// options  may be null: all 0
// Errors: kInvalidArgument  no version of the struct has this struct_size
//         kUnsupported      a byte is set that this version does not know
Result<lmdbio_options> CompleteOptions(const lmdbio_options* options);

// Errors: kInvalidArgument  an unknown value or name; names the field
Result<load::LoaderOptions> LoaderOptionsOf(const lmdbio_options& options);
Result<load::RecordReaderOptions> RecordReaderOptionsOf(const lmdbio_options& options);

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_OPTIONS_H_
