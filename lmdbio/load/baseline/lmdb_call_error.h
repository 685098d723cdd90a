// lmdbio/load/baseline/lmdb_call_error.h - liblmdb's return codes as errors.
#ifndef LMDBIO_LOAD_BASELINE_LMDB_CALL_ERROR_H_
#define LMDBIO_LOAD_BASELINE_LMDB_CALL_ERROR_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::load {

// "PATH: liblmdb: WHAT: reason", with the matching error code.
Error LmdbCallError(int rc, std::string_view path, std::string_view what);

// The same for mdb_env_open. liblmdb rejects a file of a newer data version as if it were no LMDB
// file. The error is then kUnsupported, and the message names the version.
Error LmdbOpenError(int rc, const std::string& data_path);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_BASELINE_LMDB_CALL_ERROR_H_
