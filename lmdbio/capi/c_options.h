// lmdbio/capi/c_options.h - lmdbio_options as the library has them.
#ifndef LMDBIO_CAPI_C_OPTIONS_H_
#define LMDBIO_CAPI_C_OPTIONS_H_

#include "lmdbio/base/status.h"
#include "lmdbio/capi/lmdbio.h"
#include "lmdbio/loader/options.h"
#include "lmdbio/loader/record_reader.h"

namespace lmdbio::capi {

// What the caller means, whatever version of the struct it knows: fields that it lacks are 0.
// options  may be null: all 0
// Errors: kInvalidArgument  struct_size is none that ever was
//         kUnsupported      something is set that this version does not know
Result<lmdbio_options> CompleteOptions(const lmdbio_options* options);

// Errors: kInvalidArgument  a value or name that there is not; names the field
Result<loader::LoaderOptions> LoaderOptionsOf(const lmdbio_options& options);
Result<loader::RecordReaderOptions> RecordReaderOptionsOf(const lmdbio_options& options);

}  // namespace lmdbio::capi
#endif  // LMDBIO_CAPI_C_OPTIONS_H_
