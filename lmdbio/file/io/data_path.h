// lmdbio/file/io/data_path.h - finds the data file and the provenance file of a user's path.
#ifndef LMDBIO_FILE_IO_DATA_PATH_H_
#define LMDBIO_FILE_IO_DATA_PATH_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::file {

// An LMDB environment is a directory with a file data.mdb, or a single file (MDB_NOSUBDIR). `path`
// names either.
//
// Returns: the path of the data file, which exists and is a regular file or a block device
// Errors:  kNotFound, kPermission, kIo, kInvalidArgument (another kind of file); each names the
// path
Result<std::string> FindDataFile(const std::string& path);

// The path of the provenance file of a data file: DATA.prov, or DATA.NAME.prov for a named
// database. Bytes of NAME other than letters, digits, '-' and '_' are written as %XX.
std::string ProvenancePath(const std::string& data_path, std::string_view database_name);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_DATA_PATH_H_
