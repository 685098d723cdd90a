// lmdbio/load/baseline/lmdb_call_error.h - liblmdb's return codes as errors.
#ifndef LMDBIO_LOAD_BASELINE_LMDB_CALL_ERROR_H_
#define LMDBIO_LOAD_BASELINE_LMDB_CALL_ERROR_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::load {

// "PATH: liblmdb: WHAT: reason", with the code that tells the caller what to do.
Error LmdbCallError(int rc, std::string_view path, std::string_view what);

// The same for mdb_env_open. What liblmdb takes for no LMDB file may be one of a data version that
// it does not know: then kUnsupported, and the message says so.
Error LmdbOpenError(int rc, const std::string& data_path);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_BASELINE_LMDB_CALL_ERROR_H_
