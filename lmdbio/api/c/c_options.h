// lmdbio/api/c/c_options.h - lmdbio_options as the library has them.
#ifndef LMDBIO_API_C_C_OPTIONS_H_
#define LMDBIO_API_C_C_OPTIONS_H_

#include "lmdbio/api/c/lmdbio.h"
#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/record_reader.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::api {

// What the caller means, whatever version of the struct it knows: fields that it lacks are 0.
// options  may be null: all 0
// Errors: kInvalidArgument  struct_size is none that ever was
//         kUnsupported      something is set that this version does not know
Result<lmdbio_options> CompleteOptions(const lmdbio_options* options);

// Errors: kInvalidArgument  a value or name that there is not; names the field
Result<load::LoaderOptions> LoaderOptionsOf(const lmdbio_options& options);
Result<load::RecordReaderOptions> RecordReaderOptionsOf(const lmdbio_options& options);

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_OPTIONS_H_
